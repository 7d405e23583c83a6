"""Suspended owners: their groups hold no admission, since the owner creates no pods until it is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import OwnerReader, WorkloadRule, WorkloadSize, group_of

#: Label that puts a suspended job into a queue: the admission of its group resumes it.
QUEUE_LABEL = "phalanx.dev/queue"
#: Annotation of such a job: it remains suspended while this is "true".
HOLD = "phalanx.dev/hold"

# Owners of which only the suspension is read.
_KINDS = (
    WantedKind("ray.io", "rayjobs", "RayJob", ("v1",)),
    WantedKind("sparkoperator.k8s.io", "sparkapplications", "SparkApplication", ("v1beta2",)),
)


def _no_members(owner: OwnerReader) -> tuple[WorkloadSize, ...]:
    return (WorkloadSize(group_of(owner.uid), uid=owner.uid),)


# The rules group no pods: they have neither labels nor controllers.
SUSPENSION_RULES = tuple(WorkloadRule(kind.kind, lambda _: None, owner=kind, sizes=_no_members) for kind in _KINDS)


def with_suspension(owner: OwnerReader, sizes: tuple[WorkloadSize, ...]) -> tuple[WorkloadSize, ...]:
    """Return the sizes that an owner defines, with its suspension for the groups that it controls.

    A size of such a group is added where the owner defines none, since only another size ends a suspension.
    """
    if not owner.uid or not sizes:
        return sizes
    name, suspended = group_of(owner.uid), _is_suspended(owner.spec) and not _is_queued(owner)
    if not any(size.gang == name for size in sizes):
        sizes = (*sizes, WorkloadSize(name, uid=owner.uid))
    # Groups of its own controller (a TrainJob) are not concerned: that one can wait in a queue.
    return tuple(
        msgspec.structs.replace(size, suspended=suspended) if size.gang == name else size for size in sizes
    )


def _is_suspended(spec: Mapping[str, Any]) -> bool:
    # Training operators have the field in their run policy.
    policy = spec.get("runPolicy")
    return spec.get("suspend") is True or (isinstance(policy, Mapping) and policy.get("suspend") is True)


def _is_queued(owner: OwnerReader) -> bool:
    return bool(owner.labels.get(QUEUE_LABEL)) and owner.annotations.get(HOLD) != "true"
