"""Index of a pod among its siblings, and whether it leads them, from the keys of common workload controllers."""

from __future__ import annotations

from phalanx.dialects.core import Metadata

NO_INDEX = 2**31
_INDEX_KEYS = (
    "gang.scheduling.koordinator.sh/network-topology-index",
    "volcano.sh/task-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
_ROLE_KEYS = (
    "volcano.sh/task-spec",
    "training.kubeflow.org/job-role",
    "training.kubeflow.org/replica-type",
    "ray.io/node-type",
    "spark-role",
    "dask.org/component",
    "component",  # Flink's
)
# Most pods state neither, which a set operation detects at once.
_STATES_INDEX, _STATES_ROLE = frozenset(_INDEX_KEYS), frozenset(_ROLE_KEYS)
RANK_KEYS = _STATES_INDEX | _STATES_ROLE
# Roles that the other members cannot do without; most frameworks restart the gang after it.
_LEADERS = frozenset(
    (
        "master",
        "head",
        "headgroup",
        "driver",
        "launcher",
        "chief",
        "coordinator",
        "leader",
        "jobmanager",
        "scheduler",
    )
)


def index_of(metadata: Metadata) -> int:
    """Return the pod's index among its siblings; a pod without one sorts after them."""
    if _STATES_INDEX.isdisjoint(metadata.annotations) and _STATES_INDEX.isdisjoint(metadata.labels):
        return NO_INDEX
    for key in _INDEX_KEYS:
        text = metadata.annotations.get(key) or metadata.labels.get(key) or ""
        if text.isascii() and text.isdecimal():
            return min(int(text[:12]), NO_INDEX)
    return NO_INDEX


def leads(metadata: Metadata) -> bool:
    """Return whether a pod's role makes it the leader of its siblings."""
    if _STATES_ROLE.isdisjoint(metadata.annotations) and _STATES_ROLE.isdisjoint(metadata.labels):
        return False
    for key in _ROLE_KEYS:
        role = metadata.annotations.get(key) or metadata.labels.get(key)
        if role and role.lower() in _LEADERS:
            return True
    return False
