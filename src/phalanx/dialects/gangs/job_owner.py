"""Job that a PodGroup or a pod belongs to, from its owner references and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.core import Metadata
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.reader import Document
from phalanx.dialects.workloads.rule import controller_of
from phalanx.model.gang import GangOwner
from phalanx.model.gang_names import kind_word

# Labels with the name of a job that does not control its pods itself: (label, label of its uid, word of its kind).
_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid", "jobset"),
    ("leaderworkerset.sigs.k8s.io/name", "", "lws"),
    ("sparkoperator.k8s.io/app-name", "", "sparkapplication"),
)
# Controllers that are no jobs: a PodGroup of theirs has their name only where it is generated from their uid.
_NO_JOBS = frozenset(
    {
        "Pod",
        "Node",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "DaemonSet",
        "Workload",
        "PodGroup",
        "CompositePodGroup",
    }
)
# (API group, kind) of jobs whose operators make a job of another kind, which then makes the pods.
_SUBMITTED = frozenset({("ray.io", "RayJob"), ("ray.io", "RayService"), ("trainer.kubeflow.org", "TrainJob")})


def submitted_job(metadata: Document) -> GangOwner | None:
    """Return the job that a user wrote and whose operator made the owner of pods with this metadata."""
    group, kind, uid = controller_of(metadata)
    owners = metadata["ownerReferences"] if (group, kind) in _SUBMITTED else ()
    name = next((str(each.get("name") or "") for each in owners if each.get("uid") == uid), "")
    return GangOwner(kind_word(group, kind), name, uid) if name else None


def job_of_pod(metadata: Metadata) -> GangOwner | None:
    """Return the job of a pod; None for a pod that no job makes."""
    if metadata.labels and (labelled := _labelled(metadata.labels)) is not None:
        return labelled
    owner = controlling_owner(metadata)
    if owner is None or owner.kind in _NO_JOBS:
        return None
    return GangOwner(kind_word(owner.api_version.rpartition("/")[0], owner.kind), owner.name, owner.uid)


def job_of_group(metadata: Document) -> GangOwner | None:
    """Return the job for which an operator made a PodGroup; None for one that a user wrote."""
    labels, owners = metadata.get("labels"), metadata.get("ownerReferences")
    if (
        isinstance(labels, dict)
        and isinstance(owners, list)
        and owners
        and (found := _labelled(labels)) is not None
    ):
        return found
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            version, kind, name, uid = (str(owner.get(key) or "") for key in ("apiVersion", "kind", "name", "uid"))
            if not name or (kind in _NO_JOBS and not (uid and str(metadata.get("name")).endswith(uid))):
                return None
            return GangOwner(kind_word(version.rpartition("/")[0], kind), name, uid)
    return None


def _labelled(labels: Mapping[str, Any]) -> GangOwner | None:
    for label, uid, word in _LABELS:
        if isinstance(name := labels.get(label), str) and name:
            return GangOwner(word, name, str(labels.get(uid) or "") if uid else "")
    return None
