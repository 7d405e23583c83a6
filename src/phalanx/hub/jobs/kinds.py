"""Kinds whose objects are dispatched whole: `managedBy` keeps their controller off at the hub, suspension is the
gate of their copies, and the pods that they declare can be marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.hub.names import DISPATCH_GATE
from phalanx.jobs.suspended import SUSPENDABLE, PodSetRule, SuspendableKind, is_suspended
from phalanx.kube.paths import Resource

Json = dict[str, Any]
Path = tuple[str, ...]

#: What leaves a Job or a JobSet to the hub.
MANAGED_BY = "phalanx.dev/hub"
#: What other kinds accept besides their own controller; with it, the annotation leaves them to this hub.
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
#: The annotation, with the value "true".
DISPATCH = DISPATCH_GATE
#: The reason of what has failed because its copy was gone.
COPY_LOST = "CopyLost"
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"


class JobKind(msgspec.Struct, frozen=True):
    """`managed_by` is where the field is, `accepts` the value of it that leaves an object to the hub, `removed`
    what a copy must not have, `templates` where pods are declared besides the pod sets of the kind. One that is
    `endless` has no end of its own."""

    job: SuspendableKind
    accepts: str = MULTIKUEUE
    managed_by: Path = ("spec", "managedBy")
    removed: tuple[Path, ...] = ()
    templates: tuple[Path, ...] = ()
    endless: bool = False

    @property
    def resource(self) -> Resource:
        served = self.job.served
        return Resource(served.group, served.version, served.plural, served.kind)

    @property
    def name(self) -> str:
        return self.job.served.kind


def _kind(name: str, **fields: Any) -> JobKind:
    """Of a kind that the scheduler's own queue knows."""
    found = next(each for each in SUSPENDABLE if each.served.kind == name)
    return JobKind(found, **fields)


_TTL: Path = ("spec", "ttlSecondsAfterFinished")
_RUN_POLICY: Path = ("spec", "runPolicy")
_TRAINING: Mapping[str, Any] = {
    "managed_by": (*_RUN_POLICY, "managedBy"),
    "removed": ((*_RUN_POLICY, "ttlSecondsAfterFinished"),),
}
_RAY_CLUSTER = SuspendableKind(
    ServedKind("ray.io", "v1", "rayclusters", "RayCluster"),
    (
        PodSetRule(("spec", "headGroupSpec"), ("template",)),
        PodSetRule(("spec", "workerGroupSpecs", "*"), ("template",), (("replicas",), ("numOfHosts",))),
    ),
)

JOB = _kind("Job", accepts=MANAGED_BY, removed=(_TTL,))
JOB_SET = _kind("JobSet", accepts=MANAGED_BY, removed=(_TTL,))
JOB_KINDS = (
    JOB,
    JOB_SET,
    *(_kind(name, **_TRAINING) for name in ("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    _kind("RayJob", templates=(("spec", "submitterPodTemplate"),)),
    JobKind(_RAY_CLUSTER, endless=True),
)

#: Kinds that have the field, and are not dispatched all the same; why, and what to do.
REFUSED_KINDS: Mapping[Resource, str] = {
    Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"): (
        "its pods come from a runtime in the other cluster, so the hub cannot mark them; submit the JobSet"
    ),
    Resource("ray.io", "v1", "rayservices", "RayService"): (
        "it cannot be suspended, so a copy could not wait for its grant; submit a RayCluster"
    ),
    Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"): (
        "what it wraps is not read; submit the wrapped job"
    ),
}


def job_kind(api_version: str, kind: str) -> JobKind | None:
    """The kind of a reference in a record."""
    for each in JOB_KINDS:
        if (each.resource.api_version, each.name) == (api_version, kind):
            return each
    return None


def at(document: object, path: Path) -> Any:
    """What is there; None where the document has another shape."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def is_left(kind: JobKind, job: Json) -> bool:
    """Whether the object is left to this hub, and nothing about it is refused."""
    meant = kind.accepts == MANAGED_BY or is_annotated(job)
    return meant and at(job, kind.managed_by) == kind.accepts and not refusal(kind, job)


def is_annotated(job: Json) -> bool:
    """Whether somebody has said that the hub is to dispatch it."""
    return bool(at(job, ("metadata", "annotations", DISPATCH)) == "true")


def refusal(kind: JobKind, job: Json) -> str:
    """Why an object that somebody has meant for the hub is not dispatched, and what to do; "" for one that is, and
    for one that nobody has meant for it."""
    stated, field = at(job, kind.managed_by), ".".join(kind.managed_by)
    if not is_annotated(job) and (stated != kind.accepts or kind.accepts == MULTIKUEUE):
        return ""
    if stated != kind.accepts:
        return f"write {field}: {kind.accepts}; it cannot be changed, so delete the {kind.name} and create it anew"
    if kind.accepts == MULTIKUEUE and at(job, ("metadata", "labels", _KUEUE_QUEUE)):
        return f"with the label {_KUEUE_QUEUE} it is Kueue's; take the label off, or the annotation {DISPATCH}"
    if kind.name == "RayJob" and at(job, ("spec", "clusterSelector")):
        return "spec.clusterSelector names a RayCluster that is there already; write spec.rayClusterSpec"
    if kind.name == "RayJob" and at(job, ("spec", "shutdownAfterJobFinishes")) is not True:
        return "write spec.shutdownAfterJobFinishes: true; KubeRay suspends no other RayJob, and copies are"
    return ""


def wants_suspension(kind: JobKind, job: Json) -> bool:
    return is_suspended(kind.job, job)


class JobEnd(msgspec.Struct, frozen=True):
    """Whether a job has ended, and how."""

    ended: bool = False
    failed: bool = False


def job_end(kind: JobKind, job: Json) -> JobEnd:
    """By its status; one that says both has failed."""
    status = job.get("status") or {}
    if kind.endless:
        lost = at(status, ("reason",)) == COPY_LOST
        return JobEnd(lost, lost)
    found = {at(each, ("type",)) for each in _entries(status, "conditions") if at(each, ("status",)) == "True"}
    if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
        found.add("Succeeded" if status.get("jobStatus") == "SUCCEEDED" else "Failed")
    failed = "Failed" in found
    return JobEnd(failed or not found.isdisjoint(("Complete", "Completed", "Succeeded")), failed)


def _entries(status: object, key: str) -> list[Any]:
    found = at(status, (key,))
    return found if isinstance(found, list) else []
