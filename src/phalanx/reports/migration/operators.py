"""Operators that write a scheduler name into the pods of their jobs and create PodGroups.

The scheduler name is an option of the operator, not a field of the job (docs/workloads.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from phalanx.admission.fields import mapping, text
from phalanx.dialects.reader import Document

_POD_GROUPS = "it then creates PodGroups of scheduling.x-k8s.io"


class Operator(msgspec.Struct, frozen=True):
    """Operator that creates the pods of a kind of jobs, with advice about its scheduler option.

    `advice` replaces edits of templates; in it `{ours}` is the name of the new scheduler, `{name}` the current name
    of its pods, `{serve}` the command that serves both. `keys` are labels and annotations of its jobs that the
    operator itself uses or writes. `keeps_name` tells that the name must stay served.
    """

    name: str
    advice: str
    keys: tuple[str, ...] = ()
    keeps_name: bool = False

    def advice_for(self, name: str, ours: str) -> str:
        serve = f"run `phalanx scheduler --scheduler-name {name}` after the other scheduler is stopped"
        return self.advice.format(name=name, ours=ours, serve=serve)


TRAINING = Operator(
    "training-operator",
    "training-operator --gang-scheduler-name={name} writes {name} into templates without a scheduler name: "
    f"start it with --gang-scheduler-name={{ours}}, {_POD_GROUPS}; "
    "a name in the template takes precedence, so remove it; or {serve}",
)
MPI = Operator(
    "mpi-operator",
    "mpi-operator -gang-scheduling {name} overwrites the scheduler name of templates with {name}: start it with "
    f"-gang-scheduling {{ours}}, {_POD_GROUPS}; or {{serve}}",
)
RAY = Operator(
    "KubeRay",
    "KubeRay --batch-scheduler={name} overwrites the scheduler name of templates with {name} and creates PodGroups "
    "that Phalanx reads: {serve}, and keep that name; if KubeRay lacks this option, write {ours}",
    ("scheduling.k8s.io/group-name", "volcano.sh/task-spec", "volcano.sh/queue-name", "ray.io/priority-class-name"),
    keeps_name=True,
)
SPARK = Operator(
    "spark-operator",
    f"start spark-operator with --kube-scheduler-names={{ours}} and write batchScheduler: {{ours}}: {_POD_GROUPS}, "
    "which delay a driver until its executors fit too (without batchScheduler nothing does); the queue then "
    "belongs into the annotation scheduling.volcano.sh/queue-name of driver and executor; or {serve}",
)
_TRAINING_KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
_OPERATORS: Mapping[tuple[str, str], Operator] = MappingProxyType(
    {
        **{("kubeflow.org", kind): TRAINING for kind in _TRAINING_KINDS},
        **{("ray.io", kind): RAY for kind in ("RayCluster", "RayJob", "RayService")},
        **{("sparkoperator.k8s.io", kind): SPARK for kind in ("SparkApplication", "ScheduledSparkApplication")},
    }
)


def operator_of(api_version: str, kind: str) -> Operator | None:
    """Return the operator that creates the pods of an object of this kind; None if there is none."""
    if (api_version, kind) == ("kubeflow.org/v2beta1", "MPIJob"):
        return MPI
    return _OPERATORS.get((api_version.rpartition("/")[0], kind))


def maker_of(document: Document) -> Mapping[str, Any]:
    """Return the reference to an object's controller; {} without a controller."""
    owners = mapping(document.get("metadata")).get("ownerReferences")
    references = (mapping(reference) for reference in owners) if isinstance(owners, list) else ()
    return next((reference for reference in references if reference.get("controller") is True), {})


def operator_of_pod(document: Document) -> Operator | None:
    maker = maker_of(document)
    labels = mapping(mapping(document.get("metadata")).get("labels"))
    if "sparkoperator.k8s.io/app-name" in labels:
        return SPARK
    if labels.get("training.kubeflow.org/operator-name") == "mpi-operator":
        return MPI  # its launcher is a Job's
    return operator_of(text(maker.get("apiVersion")), text(maker.get("kind")))


class OperatorJobs:
    """Jobs of operators that name no scheduler themselves.

    Their pods, and the PodGroups that the operator creates, show the scheduler name that the operator writes.
    """

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str, str], Document] = {}
        self._names: dict[tuple[str, str, str], str] = {}

    def add(self, document: Document) -> None:
        self._jobs[_key(document, document)] = document

    def made(self, document: Document, scheduler: str) -> None:
        """Record a pod or PodGroup that names another scheduler."""
        maker = maker_of(document)
        if operator_of(text(maker.get("apiVersion")), text(maker.get("kind"))) is not None:
            metadata = {**maker, "namespace": mapping(document.get("metadata")).get("namespace")}
            self._names.setdefault(_key(maker, {"metadata": metadata}), scheduler)

    def named(self) -> Iterator[tuple[Document, Operator, str]]:
        """Yield the jobs with pods that name another scheduler, their operator, and this scheduler name.

        Jobs that another job created are skipped.
        """
        for key, document in self._jobs.items():
            operator = operator_of(text(document.get("apiVersion")), text(document.get("kind")))
            name = self._names.get(key) or self._below(document)
            if operator is not None and name and not maker_of(document):
                yield document, operator, name

    def _below(self, job: Document) -> str:
        """Return the scheduler name of the pods of jobs that this job created; "" if unknown."""
        uid = mapping(job.get("metadata")).get("uid")
        made = (key for key, child in self._jobs.items() if uid and maker_of(child).get("uid") == uid)
        return next((self._names[key] for key in made if key in self._names), "")


def _key(head: Mapping[str, Any], document: Document) -> tuple[str, str, str]:
    metadata = mapping(document.get("metadata"))
    return text(head.get("kind")), text(metadata.get("namespace")), text(metadata.get("name"))
