"""Suspended jobs of other controllers that wait in a queue, and the fields in which their kinds declare pods. No
I/O."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.workloads.suspension import HOLD as HOLD
from phalanx.dialects.workloads.suspension import QUEUE_LABEL as QUEUE_LABEL
from phalanx.jobs.pod_group import add_pods, written
from phalanx.model.pod_quota import Amounts, mapping, sequence, text
from phalanx.model.text.decoding import parse_whole

#: Annotation of the job with the PodGroup of its current run.
QUEUED_GROUP = "phalanx.dev/queued-pod-group"
GROUP_NAME = "scheduling.k8s.io/group-name"

Json = dict[str, Any]
Path = tuple[str, ...]

_MAX_PODS = 1_000_000
_FINISHED = frozenset({"Complete", "Completed", "Succeeded", "Failed"})


class PodSetRule(msgspec.Struct, frozen=True):
    """Fields of a kind that declare pods.

    `entries` is the path to the sets of pods (`*` for each), `template` the path from there to the pod template,
    and `counts` the paths to the factors of the number of pods (1 if absent). Sets with a field `later`
    are created only after other sets; sets without `gang` start pod by pod.
    """

    entries: Path
    template: Path
    counts: tuple[Path, ...] = ()
    later: str = ""
    gang: bool = True


class SuspendableKind(msgspec.Struct, frozen=True):
    """Kind of jobs whose controller creates no pods while the field `suspend` is true.

    `other_versions` are equivalent, for servers without the version of `served`. If the controller creates a
    suspended object of the same name that declares the pods, `made` is the kind of that object.
    """

    served: ServedKind
    pod_sets: tuple[PodSetRule, ...]
    suspend: Path = ("spec", "suspend")
    other_versions: tuple[str, ...] = ()
    made: SuspendableKind | None = None

    def in_versions(self) -> Iterator[SuspendableKind]:
        """Yield the kind in each of its API versions, the preferred version first."""
        yield self
        for version in self.other_versions:
            yield replace(self, served=replace(self.served, version=version))


def _training(plural: str, kind: str, specs: str, version: str = "v1", *other_versions: str) -> SuspendableKind:
    return SuspendableKind(
        ServedKind("kubeflow.org", version, plural, kind),
        (PodSetRule(("spec", specs, "*"), ("template",), (("replicas",),)),),
        ("spec", "runPolicy", "suspend"),
        other_versions,
    )


JOB = SuspendableKind(
    ServedKind("batch", "v1", "jobs", "Job"), (PodSetRule(("spec",), ("template",), (("parallelism",),)),)
)
JOB_SET = SuspendableKind(
    ServedKind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    (
        PodSetRule(
            ("spec", "replicatedJobs", "*"),
            ("template", "spec", "template"),
            (("replicas",), ("template", "spec", "parallelism")),
            later="dependsOn",
        ),
    ),
)
SUSPENDABLE: tuple[SuspendableKind, ...] = (
    JOB,
    JOB_SET,
    _training("mpijobs", "MPIJob", "mpiReplicaSpecs", "v2beta1", "v1"),
    _training("pytorchjobs", "PyTorchJob", "pytorchReplicaSpecs"),
    _training("tfjobs", "TFJob", "tfReplicaSpecs"),
    _training("xgboostjobs", "XGBoostJob", "xgbReplicaSpecs"),
    _training("paddlejobs", "PaddleJob", "paddleReplicaSpecs"),
    _training("jaxjobs", "JAXJob", "jaxReplicaSpecs"),
    SuspendableKind(ServedKind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"), (), made=JOB_SET),
    SuspendableKind(
        ServedKind("ray.io", "v1", "rayjobs", "RayJob"),
        (
            PodSetRule(("spec", "rayClusterSpec", "headGroupSpec"), ("template",)),
            PodSetRule(
                ("spec", "rayClusterSpec", "workerGroupSpecs", "*"), ("template",), (("replicas",), ("numOfHosts",))
            ),
        ),
        other_versions=("v1alpha1",),
    ),
)


class PodTemplateSet(msgspec.Struct, frozen=True):
    """Pods of one template in a job; `counted`: they are in the gang and created at once; `later`: created after
    other sets."""

    template: Json
    count: int
    counted: bool
    later: bool = False

    @property
    def spec(self) -> Json:
        return mapping(self.template.get("spec"))


def pod_sets(kind: SuspendableKind, job: Json) -> list[PodTemplateSet]:
    """Return all sets of pods that a job declares, one per template."""
    sets: list[PodTemplateSet] = []
    in_order = _at(job, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder"
    for rule in kind.pod_sets:
        for entry in _entries(job, rule.entries):
            template = _at(entry, rule.template)
            if isinstance(template, dict):
                later = bool(rule.later and entry.get(rule.later)) or (in_order and bool(sets))
                sets.append(
                    PodTemplateSet(template, _count(entry, rule), rule.gang and not later, rule.gang and later)
                )
    return sets


def is_suspended(kind: SuspendableKind, job: Json) -> bool:
    return _at(job, kind.suspend) is True


def is_over(job: Json) -> bool:
    """Return whether the job has finished and creates no more pods."""
    status = mapping(job.get("status"))
    if status.get("jobDeploymentStatus") in _FINISHED or status.get("terminalState"):
        return True
    return any(
        mapping(condition).get("type") in _FINISHED and mapping(condition).get("status") == "True"
        for condition in sequence(status.get("conditions"))
    )


def wrong_scheduler(sets: list[PodTemplateSet], ours: Sequence[str]) -> str:
    """Return the reason why the job's pods cannot join its PodGroup: another scheduler, or no pods; "" for none."""
    if not sets:
        return "the job declares no pods"
    for pod_set in sets:
        name = text(pod_set.spec.get("schedulerName")) or "default-scheduler"
        if name not in ours:
            return (
                f"its pods have schedulerName {name}; set schedulerName: {' or '.join(ours)} in every pod template"
            )
    return ""


def next_group_name(kind: SuspendableKind, job: Json) -> str:
    """Return the name of the PodGroup for a job's next start: terminating pods of an earlier start are not in
    it."""
    metadata = mapping(job.get("metadata"))
    base = f"{kind.served.kind.lower()}-{text(metadata.get('name'))[:200]}-{text(metadata.get('uid'))[:8]}"
    last = text(mapping(metadata.get("annotations")).get(QUEUED_GROUP))
    number = parse_whole(last.removeprefix(f"{base}-"), 1, _MAX_PODS) if last.startswith(f"{base}-") else None
    return f"{base}-{(number or 0) + 1}"


def queued_group(
    kind: SuspendableKind, job: Json, name: str, sets: list[PodTemplateSet], labels: Mapping[str, str]
) -> Json:
    """Return the PodGroup of a queued suspended job, as large as all pods that the job creates at once.

    Pods of `later` sets count for the minimum, of which the scheduler requires only those that can exist: each
    stage starts as a whole.
    """
    metadata = mapping(job.get("metadata"))
    total: Amounts = {}
    gang = 0
    for pod_set in sets:
        if pod_set.counted:
            add_pods(total, pod_set.spec, pod_set.count)
        if pod_set.counted or pod_set.later:
            gang += pod_set.count
    if kind is JOB and not _is_gang(mapping(job.get("spec"))):
        gang = 1  # independent pods start one by one
    queue = text(mapping(metadata.get("labels")).get(QUEUE_LABEL))
    classes = {text(pod_set.spec.get("priorityClassName")) for pod_set in sets}
    spec: Json = {"minMember": gang, "queue": queue, "minResources": written(total)}
    if len(classes) == 1 and (name_of_class := classes.pop()):
        spec["priorityClassName"] = name_of_class
    owner = {
        "apiVersion": kind.served.api_version,
        "kind": kind.served.kind,
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "controller": True,
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace"),
            "labels": dict(labels),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def resumed(kind: SuspendableKind, job: Json, group: str) -> Json:
    """Return the updated job: not suspended, with pods that are members of the PodGroup."""
    body = grouped(kind, job, group)
    annotations = body["metadata"].get("annotations") or {}
    body["metadata"]["annotations"] = {**annotations, QUEUED_GROUP: group}
    return _with_suspend(kind, body, False)


def suspended(kind: SuspendableKind, job: Json) -> Json:
    """Return the updated job: suspended, so that its pods are deleted and it waits again."""
    return _with_suspend(kind, copy.deepcopy(job), True)


def _with_suspend(kind: SuspendableKind, body: Json, value: bool) -> Json:
    parent = body
    for key in kind.suspend[:-1]:
        parent = parent.setdefault(key, {})
    parent[kind.suspend[-1]] = value
    return body


def grouped(kind: SuspendableKind, job: Json, group: str) -> Json:
    """Return the job with pod templates whose pods are members of the PodGroup."""
    body = copy.deepcopy(job)
    for pod_set in pod_sets(kind, body):
        metadata = pod_set.template.get("metadata")
        if not isinstance(metadata, dict):
            metadata = pod_set.template["metadata"] = {}
        notes = metadata.get("annotations")
        if not isinstance(notes, dict):
            notes = metadata["annotations"] = {}
        notes[GROUP_NAME] = group
    return body


def _is_gang(spec: Mapping[str, Any]) -> bool:
    """Return whether all pods of a Job run at the same time, each with its own index."""
    return spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism", 1)


def _entries(value: Any, path: Path) -> Iterator[Json]:
    if not path:
        if isinstance(value, dict):
            yield value
    elif path[0] != "*":
        yield from _entries(mapping(value).get(path[0]), path[1:])
    else:
        for item in value.values() if isinstance(value, dict) else sequence(value):
            yield from _entries(item, path[1:])


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = mapping(value).get(key)
    return value


def _count(entry: Json, rule: PodSetRule) -> int:
    count = 1
    for path in rule.counts:
        stated = _at(entry, path)
        if isinstance(stated, int) and not isinstance(stated, bool):
            count *= max(0, stated)
    return min(count, _MAX_PODS)
