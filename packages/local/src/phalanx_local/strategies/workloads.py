"""Strategies of kinds that create pods (replica controllers, deployments, jobs): their defaults and immutable
fields."""

from __future__ import annotations

from typing import ClassVar

from phalanx_local.objects import Json, mapping, metadata, text
from phalanx_local.strategies.base import SpecStrategy, Write
from phalanx_local.strategies.pods import default_pod_spec


class WorkloadStrategy(SpecStrategy):
    """Strategy of a kind with spec.template; `zeros` are the status counters that a new object has with value 0."""

    zeros: ClassVar[tuple[str, ...]] = ()

    def initial_status(self, obj: Json, write: Write) -> Json:
        return dict.fromkeys(self.zeros, 0)

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            self.default_spec(obj, spec)
            template = mapping(mapping(spec.get("template")).get("spec"))
            if template:
                default_pod_spec(template)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def default_spec(self, obj: Json, spec: Json) -> None:
        spec.setdefault("replicas", 1)


class ReplicaSetStrategy(WorkloadStrategy):
    """Strategy of ReplicaSets."""

    zeros = ("replicas",)
    field_labels = frozenset(("status.replicas",))

    def fields(self, obj: Json) -> dict[str, str]:
        return {"status.replicas": str(mapping(obj.get("status")).get("replicas") or 0)}


class ReplicationControllerStrategy(ReplicaSetStrategy):
    """Strategy of ReplicationControllers: the template provides selector and labels; deletion orphans the pods by
    default."""

    orphans_by_default = True
    returns_deleted = True

    def default_spec(self, obj: Json, spec: Json) -> None:
        spec.setdefault("replicas", 1)
        labels = mapping(mapping(mapping(spec.get("template")).get("metadata")).get("labels"))
        if labels:
            spec.setdefault("selector", dict(labels))
            metadata(obj).setdefault("labels", dict(labels))


class DeploymentStrategy(WorkloadStrategy):
    """Strategy of Deployments."""

    def default_spec(self, obj: Json, spec: Json) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        if isinstance(strategy, dict) and strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            if isinstance(rolling, dict):
                rolling.setdefault("maxSurge", "25%")
                rolling.setdefault("maxUnavailable", "25%")


class StatefulSetStrategy(WorkloadStrategy):
    """Strategy of StatefulSets."""

    zeros = ("replicas", "availableReplicas")

    def default_spec(self, obj: Json, spec: Json) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        spec.setdefault("persistentVolumeClaimRetentionPolicy", retention)


class DaemonSetStrategy(WorkloadStrategy):
    """Strategy of DaemonSets."""

    zeros = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")

    def default_spec(self, obj: Json, spec: Json) -> None:
        spec.setdefault("revisionHistoryLimit", 10)
        rolling = {"maxUnavailable": 1, "maxSurge": 0}
        spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": rolling})


class JobStrategy(SpecStrategy):
    """Strategy of Jobs: the server generates the selector; parallelism, suspend and few other fields are
    mutable."""

    orphans_by_default = True
    field_labels = frozenset(("status.successful",))

    def fields(self, obj: Json) -> dict[str, str]:
        return {"status.successful": str(mapping(obj.get("status")).get("succeeded") or 0)}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        spec.setdefault("manualSelector", False)
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = spec["parallelism"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
        template = spec.get("template")
        if not isinstance(template, dict):
            return
        default_pod_spec(template.setdefault("spec", {}))
        if spec.get("manualSelector") is not True:
            _generate_selector(metadata(obj), spec, template)
        labels = mapping(mapping(template.get("metadata")).get("labels"))
        if labels and not metadata(obj).get("labels"):
            metadata(obj)["labels"] = dict(labels)

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        template = mapping(mapping(mapping(obj.get("spec")).get("template")).get("spec"))
        if template:
            default_pod_spec(template)


def _generate_selector(meta: Json, spec: Json, template: Json) -> None:
    uid = text(meta.get("uid"))
    labels = mapping(metadata(template).setdefault("labels", {}))
    labels.setdefault("batch.kubernetes.io/controller-uid", uid)
    labels.setdefault("controller-uid", uid)
    labels.setdefault("batch.kubernetes.io/job-name", text(meta.get("name")))
    labels.setdefault("job-name", text(meta.get("name")))
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


class CronJobStrategy(SpecStrategy):
    """Strategy of CronJobs."""

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            for field, value in (
                ("concurrencyPolicy", "Allow"),
                ("suspend", False),
                ("successfulJobsHistoryLimit", 3),
                ("failedJobsHistoryLimit", 1),
            ):
                spec.setdefault(field, value)
            job = mapping(mapping(spec.get("jobTemplate")).get("spec"))
            template = mapping(mapping(job.get("template")).get("spec"))
            if template:
                default_pod_spec(template)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)
