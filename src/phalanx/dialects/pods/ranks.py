"""Which place a pod has among its siblings, and whether it leads them: in the words of those who make pods."""

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
# (Most pods state neither: that is found out at once.)
_STATES_INDEX, _STATES_ROLE = frozenset(_INDEX_KEYS), frozenset(_ROLE_KEYS)
RANK_KEYS = _STATES_INDEX | _STATES_ROLE
# Without these the others are of no use, and most start their gang anew when one is gone.
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
    """The pod's place among its siblings; a pod that states none comes after those that do."""
    if _STATES_INDEX.isdisjoint(metadata.annotations) and _STATES_INDEX.isdisjoint(metadata.labels):
        return NO_INDEX
    for key in _INDEX_KEYS:
        text = metadata.annotations.get(key) or metadata.labels.get(key) or ""
        if text.isascii() and text.isdecimal():
            return min(int(text[:12]), NO_INDEX)
    return NO_INDEX


def leads(metadata: Metadata) -> bool:
    """Whether it is the one among its siblings that the others work for, by its role."""
    if _STATES_ROLE.isdisjoint(metadata.annotations) and _STATES_ROLE.isdisjoint(metadata.labels):
        return False
    for key in _ROLE_KEYS:
        role = metadata.annotations.get(key) or metadata.labels.get(key)
        if role and role.lower() in _LEADERS:
            return True
    return False
