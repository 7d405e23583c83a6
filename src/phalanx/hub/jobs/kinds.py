"""Kinds of jobs that the hub dispatches as a whole.

`managedBy` keeps their controller from running them at the hub, suspension gates their copies, and the pods that
they declare can be marked.
"""

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

#: Value of `managedBy` with which the hub dispatches a Job or a JobSet.
MANAGED_BY = "phalanx.dev/hub"
#: Value of `managedBy` that other kinds accept; the annotation then selects this hub.
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
#: Annotation, with the value "true", with which this hub dispatches the object.
DISPATCH = DISPATCH_GATE
#: Reason of a failure because the copy was deleted.
COPY_LOST = "CopyLost"
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"


class JobKind(msgspec.Struct, frozen=True):
    """Kind of job that the hub can dispatch.

    `managed_by` is the path of the field, `accepts` its value for the hub. `removed` are paths that a copy must not
    have. `templates` are paths of pod templates beside the pod sets. An `endless` kind never ends by itself.
    """

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
    """Return the dispatch settings of a suspendable kind."""
    suspendable = next(suspendable_kind for suspendable_kind in SUSPENDABLE if suspendable_kind.served.kind == name)
    return JobKind(suspendable, **fields)


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

#: Kinds with the field that cannot be dispatched, with the reason and the fix.
REFUSED_KINDS: Mapping[Resource, str] = {
    Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"): (
        "its pods come from a runtime in the other cluster, so the hub cannot mark them; submit the JobSet"
    ),
    Resource("ray.io", "v1", "rayservices", "RayService"): (
        "it cannot be suspended, so a copy could not wait for its grant; submit a RayCluster"
    ),
    Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"): (
        "its content is not read; submit the wrapped job"
    ),
}


def job_kind(api_version: str, kind: str) -> JobKind | None:
    """Return the job kind of a reference in a Dispatch; None for another kind."""
    for known in JOB_KINDS:
        if (known.resource.api_version, known.name) == (api_version, kind):
            return known
    return None


def at(document: object, path: Path) -> Any:
    """Return the value at a path of keys in a document; None if the document has another structure."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def is_left(kind: JobKind, job: Json) -> bool:
    """Return whether the hub dispatches a job."""
    meant = kind.accepts == MANAGED_BY or is_annotated(job)
    return meant and at(job, kind.managed_by) == kind.accepts and not refusal(kind, job)


def is_annotated(job: Json) -> bool:
    """Return whether a job's annotation requests the dispatch by this hub."""
    return bool(at(job, ("metadata", "annotations", DISPATCH)) == "true")


def refusal(kind: JobKind, job: Json) -> str:
    """Return the reason why a job that is meant for the hub is not dispatched, and the fix; "" for any other
    job."""
    stated, field = at(job, kind.managed_by), ".".join(kind.managed_by)
    if not is_annotated(job) and (stated != kind.accepts or kind.accepts == MULTIKUEUE):
        return ""
    if stated != kind.accepts:
        return (
            f"write {field}: {kind.accepts}; the field is immutable, so delete the {kind.name} and create it again"
        )
    if kind.accepts == MULTIKUEUE and at(job, ("metadata", "labels", _KUEUE_QUEUE)):
        return (
            f"with the label {_KUEUE_QUEUE} it is managed by Kueue; remove the label, or the annotation {DISPATCH}"
        )
    if kind.name == "RayJob" and at(job, ("spec", "clusterSelector")):
        return "spec.clusterSelector names an existing RayCluster; write spec.rayClusterSpec"
    if kind.name == "RayJob" and at(job, ("spec", "shutdownAfterJobFinishes")) is not True:
        return "write spec.shutdownAfterJobFinishes: true; KubeRay can suspend only such a RayJob"
    return ""


def wants_suspension(kind: JobKind, job: Json) -> bool:
    return is_suspended(kind.job, job)


class JobEnd(msgspec.Struct, frozen=True):
    """End of a job, and whether it failed."""

    ended: bool = False
    failed: bool = False


def job_end(kind: JobKind, job: Json) -> JobEnd:
    """Return the end of a job by its status; a job with the conditions Complete and Failed has failed."""
    status = job.get("status") or {}
    if kind.endless:
        lost = at(status, ("reason",)) == COPY_LOST
        return JobEnd(lost, lost)
    conditions = {
        at(condition, ("type",))
        for condition in _entries(status, "conditions")
        if at(condition, ("status",)) == "True"
    }
    if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
        conditions.add("Succeeded" if status.get("jobStatus") == "SUCCEEDED" else "Failed")
    failed = "Failed" in conditions
    return JobEnd(failed or not conditions.isdisjoint(("Complete", "Completed", "Succeeded")), failed)


def _entries(status: object, key: str) -> list[Any]:
    entries = at(status, (key,))
    return entries if isinstance(entries, list) else []
