"""Deadlines of owners: the time limit of a Job, TrainJob or RayJob for its pods.

A deadline counts only if it terminates the pods: some operators mark a job as failed and do not delete its pods,
unless configured to clean up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from phalanx.dialects.api_groups import KUEUE
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.reader import MAX_WHOLE, Document, is_whole, show
from phalanx.dialects.times import parse_time


class OwnerTime(msgspec.Struct, frozen=True):
    """Run time that one object defines for the pods below it. The pods are killed `limit` seconds after `clock`
    (seconds since the epoch, 0 if the clock has not started or is per pod).

    `parent` is the uid of its controller; a limit of that applies to the same pods. For an object attached to the
    pods' owner, `beside` are the uids of the objects that it refers to.
    """

    limit: int = 0
    source: str = ""
    clock: int = 0
    parent: str = ""
    parent_kind: tuple[str, str] = ("", "")
    beside: tuple[str, ...] = ()
    asks_kueue: bool = False
    fault: str = ""


Read = Callable[["_Owner"], "tuple[int, int]"]


class OwnerKind(msgspec.Struct, frozen=True, eq=False):
    """Kind of owners that can limit run times. `read` returns limit and clock of an object; it is None for kinds
    that only lead to their owners."""

    wanted: WantedKind
    read: Read | None = None
    field: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.wanted.group, self.wanted.plural)


class _FieldError(ValueError):
    """Unreadable field of an owner's deadline."""


class _Owner:
    """Decodes an owner's fields; missing ones are empty."""

    def __init__(self, document: Document) -> None:
        self.metadata = _object(document.get("metadata"))
        self.spec = _object(document.get("spec"))
        self.status = _object(document.get("status"))

    def seconds(self, holder: Mapping[str, Any], path: str) -> int:
        value = holder.get(path.rpartition(".")[2])
        if value is None:
            return 0
        if not is_whole(value) or not 0 < value <= MAX_WHOLE:
            raise _FieldError(f"{path} is {show(value)}; write whole seconds above 0; the value is ignored")
        return value

    def time(self, name: str) -> int:
        return parse_time(str(self.status.get(name) or ""))

    @property
    def created(self) -> int:
        return parse_time(str(self.metadata.get("creationTimestamp") or ""))

    def condition(self, kind: str, status: str) -> int:
        """Return the time since which a condition of the owner has this status; 0 if it has another."""
        stated = self.status.get("conditions")
        for condition in stated if isinstance(stated, list) else ():
            if (
                isinstance(condition, Mapping)
                and condition.get("type") == kind
                and condition.get("status") == status
            ):
                return parse_time(str(condition.get("lastTransitionTime") or ""))
        return 0


def _job(owner: _Owner) -> tuple[int, int]:
    return owner.seconds(owner.spec, _DEADLINE), owner.time("startTime")


def _train_job(owner: _Owner) -> tuple[int, int]:
    """Return the time limit of a TrainJob and its clock, which starts at the creation, and again at each
    resumption."""
    limit = owner.seconds(owner.spec, _DEADLINE)
    if owner.spec.get("suspend") is True or owner.condition("Suspended", "True"):
        return limit, 0
    return limit, max(owner.created, owner.condition("Suspended", "False"))


def _ray_job(owner: _Owner) -> tuple[int, int]:
    """Return the time limit of a RayJob and its clock; a failed RayJob retains its cluster unless its spec states
    otherwise."""
    limit = owner.seconds(owner.spec, _DEADLINE)
    if not limit or owner.spec.get("shutdownAfterJobFinishes") is not True:
        return 0, 0
    ttl = owner.spec.get("ttlSecondsAfterFinished")
    return limit + (ttl if is_whole(ttl) and ttl > 0 else 0), owner.time("startTime")


def _training_job(owner: _Owner) -> tuple[int, int]:
    """Return the time limit of a Kubeflow training job and its clock; a failed job retains its pods unless its
    cleanPodPolicy states otherwise."""
    policy = _object(owner.spec.get("runPolicy"))
    limit = owner.seconds(policy, _POLICY_DEADLINE)
    cleans = policy.get("cleanPodPolicy") or owner.spec.get("cleanPodPolicy")
    return (limit, owner.time("startTime")) if cleans in ("Running", "All") else (0, 0)


def _kueue_workload(owner: _Owner) -> tuple[int, int]:
    """Return the remaining time of a Kueue Workload over all admissions, and its clock, which runs while
    admitted."""
    limit = owner.seconds(owner.spec, "spec.maximumExecutionTimeSeconds")
    past = owner.status.get("accumulatedPastExecutionTimeSeconds")
    spent = past if is_whole(past) and past > 0 else 0
    return max(1, limit - spent) if limit else 0, owner.condition("Admitted", "True")


_DEADLINE = "spec.activeDeadlineSeconds"
_POLICY_DEADLINE = "spec.runPolicy.activeDeadlineSeconds"
_KUBEFLOW = "kubeflow.org"
#: Label with which Kueue terminates a workload after a time; on the pod or its owner.
KUEUE_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"

KUEUE_WORKLOADS = OwnerKind(
    WantedKind(KUEUE, "workloads", "Workload", ("v1beta2", "v1beta1")),
    _kueue_workload,
    f"label {KUEUE_LABEL}",
)

OWNER_KINDS: tuple[OwnerKind, ...] = (
    OwnerKind(WantedKind("batch", "jobs", "Job", ("v1",)), _job, _DEADLINE),
    # These two kinds only lead to their own owners.
    OwnerKind(WantedKind("jobset.x-k8s.io", "jobsets", "JobSet", ("v1", "v1alpha2"))),
    OwnerKind(WantedKind("ray.io", "rayclusters", "RayCluster", ("v1",))),
    OwnerKind(
        WantedKind("trainer.kubeflow.org", "trainjobs", "TrainJob", ("v1", "v1alpha1")), _train_job, _DEADLINE
    ),
    OwnerKind(WantedKind("ray.io", "rayjobs", "RayJob", ("v1",)), _ray_job, _DEADLINE),
    OwnerKind(WantedKind(_KUBEFLOW, "mpijobs", "MPIJob", ("v2beta1", "v1")), _training_job, _POLICY_DEADLINE),
    *(
        OwnerKind(WantedKind(_KUBEFLOW, f"{kind.lower()}s", kind, ("v1",)), _training_job, _POLICY_DEADLINE)
        for kind in ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")
    ),
    KUEUE_WORKLOADS,
)

BY_KIND = {(kind.wanted.group, kind.wanted.kind): kind for kind in OWNER_KINDS if kind is not KUEUE_WORKLOADS}
BY_PLURAL = {kind.key: kind for kind in OWNER_KINDS}


def read_owner(kind: OwnerKind, document: Document) -> OwnerTime:
    """Return the run time that an owner defines for its pods; `fault` names an unreadable field."""
    owner = _Owner(document)
    limit = clock = 0
    fault = ""
    try:
        limit, clock = kind.read(owner) if kind.read is not None else (0, 0)
    except _FieldError as error:
        fault = str(error)
    references = owner.metadata.get("ownerReferences")
    owners = [
        reference
        for reference in (references if isinstance(references, list) else ())
        if isinstance(reference, Mapping)
    ]
    source = f"{kind.wanted.kind} {owner.metadata.get('name')}: {kind.field}" if limit else ""
    if kind is KUEUE_WORKLOADS:
        uids = tuple(str(reference.get("uid")) for reference in owners if reference.get("uid"))
        return OwnerTime(limit, kind.field if limit else "", clock, beside=uids, fault=fault)
    controller = next((reference for reference in owners if reference.get("controller") is True), None)
    labels = _object(owner.metadata.get("labels"))
    return OwnerTime(
        limit,
        source,
        clock,
        str(controller.get("uid") or "") if controller is not None else "",
        (str(controller.get("apiVersion")).rpartition("/")[0], str(controller.get("kind")))
        if controller is not None
        else ("", ""),
        asks_kueue=KUEUE_LABEL in labels,
        fault=fault,
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
