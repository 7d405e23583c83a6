"""Captured fields of each kind: the fields that a decoder reads, and named annotations.

All labels are captured: any selector can match any label, and a label has at most 63 plain characters. Data that
the scheduler never reads (environments, commands, parameters of devices and volumes, messages) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from phalanx.dialects.core import (
    NodeSpec,
    NodeStatus,
    PodSpec,
    PodStatus,
    PriorityClassObject,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
)
from phalanx.dialects.devices.claim_wire import (
    ClaimSpecWire,
    ClaimStatusWire,
    ClassSpecWire,
    SliceSpecWire,
    TaintRuleSpecWire,
)
from phalanx.dialects.pods.evictability import PREEMPTION_BY_SCHEDULER
from phalanx.model.eviction_condition import EVICTION, eviction_fields, read_eviction
from phalanx.reports.capture.allowed_fields import (
    SCALAR,
    SCALARS,
    Allowed,
    fields_of,
    keep_allowed,
    paths,
    with_annotations,
)

GPU_MODEL: Final = "node.koordinator.sh/gpu-model"
_METADATA = paths(
    "name namespace uid generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds labels.*",
    "annotations.* ownerReferences.apiVersion ownerReferences.kind ownerReferences.name ownerReferences.uid",
    "ownerReferences.controller",
)

_BY_GROUP: Final[Mapping[str, str]] = {
    "alpha.jobset.sigs.k8s.io": "exclusive-topology node-selector",
    "apps.kubernetes.io": "pod-index",
    "batch.kubernetes.io": "job-completion-index",
    "dask.org": "component",
    "gang.scheduling.koordinator.sh": (
        "groups match-policy min-available mode name network-topology-index network-topology-spec total-number "
        "waiting-time"
    ),
    "kai.scheduler": "batch-min-member expected-runtime skip-podgrouper",
    "karpenter.sh": "nodeclaim-termination-timestamp",
    "kubernetes.io": "config.mirror",
    "kueue.x-k8s.io": (
        "max-exec-time-seconds pod-group-fast-admission pod-group-name pod-group-total-count "
        "podset-preferred-topology podset-required-topology podset-slice-required-topology "
        "podset-unconstrained-topology"
    ),
    "hami.io": "device-cordon",
    "leaderworkerset.sigs.k8s.io": "exclusive-topology size worker-index",
    "nvidia.com": "nouse-gputype use-gputype",
    "phalanx.dev": (
        "bound budget checkpointed-at collect-after cordoned-by device-plan disruption-mode eviction-rate "
        "expected-members expected-requests generated-from-pods growth-delay hold reservation scale-up-delay "
        "expected-run-time expected-timeout gang gang-plan job-running-estimate made-from-pods "
        "max-protection-time max-run-time min-count min-run-time pod-group quotas self-protection topology-key"
    ),
    "pod-group.scheduling.sigs.k8s.io": "groups match-policy min-available name",
    "pod-group.scheduling.x-k8s.io": "min-available name",
    "pv.kubernetes.io": "bind-completed",
    "quota.scheduling.koordinator.sh": (
        "allow-lent-resource is-parent is-root name namespaces parent preemptible resource-keys shared-weight "
        "total-resource tree-id unschedulable-resource"
    ),
    "resource.kubernetes.io": "extended-resource-claim",
    "scheduling.k8s.io": "group-min-member group-name group-template-name",
    "scheduling.koordinator.sh": (
        "device-allocate-hint device-allocated device-joint-allocate gpu-partition-spec reservation-affinity "
        "reservation-allocated"
    ),
    "scheduling.volcano.sh": "group-min-member group-name queue-name",
    "slurmjob.slinky.slurm.net": "timelimit",
    "training.kubeflow.org": "job-role replica-index replica-type",
    "volcano.sh": (
        "bind-phase bind-time closed-by-parent cooldown-time devices-to-allocate gpu-index gpu-memory gpu-number "
        "gpu-unhealthy-ids hierarchy hierarchy-weights jdb-max-unavailable jdb-min-available "
        "job-allocated-hypernode namespace.weight network-topology-highest-tier network-topology-mode "
        "node-vgpu-register nodegroup-name nodegroup-resource-limits numa-topology-policy partition-id "
        "predicate-time preemptable queue-name resource-strategy-scoring-type resource-strategy-weight "
        "revocable-zone sla-waiting-time task-index task-spec task-topology-affinity task-topology-anti-affinity "
        "task-topology-task-order vgpu-cores vgpu-ids-new vgpu-memory vgpu-memory-percentage vgpu-mode vgpu-node "
        "vgpu-nouse-gpuuuid vgpu-number vgpu-podgroup-policy vgpu-time vgpu-use-gpuuuid"
    ),
    "volume.beta.kubernetes.io": "storage-class",
    "volume.kubernetes.io": "selected-node",
    "yunikorn.apache.org": "task-group-name task-groups",
}
ANNOTATIONS: Final = frozenset(f"{group}/{name}" for group, names in _BY_GROUP.items() for name in names.split())

_SOURCES: Final[Mapping[str, Allowed]] = {
    "VolumeObject.persistentVolumeClaim": paths("claimName readOnly"),
    "VolumeObject.ephemeral": {},
    "VolumeObject.gcePersistentDisk": paths("pdName readOnly"),
    "VolumeObject.awsElasticBlockStore": paths("volumeID readOnly"),
    "VolumeObject.azureDisk": paths("diskURI kind"),
    "VolumeObject.cinder": paths("volumeID"),
    "VolumeObject.iscsi": paths("iqn readOnly"),
    "VolumeObject.portworxVolume": paths("volumeID"),
    "VolumeObject.rbd": paths("pool image monitors readOnly"),
    "VolumeObject.vsphereVolume": {},
    # Messages are free text; `_cut_conditions` keeps the one word that decoders read.
    "Condition.message": {},
    # Only drivers read these parameters.
    "DevicesWire.config": {},
    "ClassSpecWire.config": {},
}
_REASONS = ("Infeasible", PREEMPTION_BY_SCHEDULER)

_SELECTOR = "matchLabels.* matchExpressions.key matchExpressions.operator matchExpressions.values"
_CONDITIONS = "status.conditions.type status.conditions.status status.conditions.lastTransitionTime"
_POLICY = "schedulingPolicy.basic.** schedulingPolicy.gang.minCount schedulingPolicy.gang.minGroupCount"
_TERMS = "matchExpressions.key matchExpressions.operator matchExpressions.values"
_TOPOLOGY = "mode highestTierAllowed highestTierName"
_SUBSPEC = (
    "deserved.* capability.* guarantee.resource.* weight priority reclaimable parent dequeueStrategy type state"
)


def _under(prefix: str, fields: str) -> str:
    return " ".join(f"{prefix}.{field}" for field in fields.split())


def _replicas(field: str) -> dict[str, Allowed]:
    """Return the rules for the captured fields of a Kubeflow training job."""
    policy = "activeDeadlineSeconds cleanPodPolicy schedulingPolicy.minAvailable suspend"
    return paths(
        f"spec.{field}.*.replicas spec.elasticPolicy.minReplicas spec.cleanPodPolicy spec.launcherCreationPolicy",
        _under("spec.runPolicy", policy), _CONDITIONS, "status.startTime",
    )  # fmt: skip


def _job_set() -> dict[str, Allowed]:
    tree: dict[str, Any] = paths(
        "spec.suspend spec.startupPolicy.startupPolicyOrder spec.replicatedJobs.name spec.replicatedJobs.replicas",
        "spec.replicatedJobs.dependsOn.name spec.replicatedJobs.dependsOn.status",
        "spec.replicatedJobs.template.spec.parallelism spec.replicatedJobs.template.spec.completions",
        _under("status.replicatedJobsStatus", "name succeeded ready failed"), _CONDITIONS,
    )  # fmt: skip
    annotations = {key: SCALAR for key in ANNOTATIONS if key.startswith("alpha.jobset.")}
    tree["spec"]["replicatedJobs"]["template"]["metadata"] = {"annotations": annotations}
    return tree


_GROUP = paths(
    _under("spec", "minMember minMembers numMember queue priorityClassName minTaskMember.* scheduleTimeoutSeconds"),
    _under("spec", "minResources.* totalResources.* priority preemptionPolicy parentCompositePodGroupName"),
    _under("spec", f"{_POLICY} disruptionMode.** schedulingConstraints.topology.key workloadRef.workloadName"),
    _under("spec", "podGroupTemplateRef.workload.workloadName"),
    _under("spec.resourceClaims", "name resourceClaimName resourceClaimTemplateName"),
    _under("spec.networkTopology", _TOPOLOGY),
    _under("spec.subGroupPolicy", "name subGroupSize minSubGroups matchLabelKeys"),
    _under("spec.subGroupPolicy", _under("labelSelector", _SELECTOR)),
    _under("spec.subGroupPolicy", _under("networkTopology", _TOPOLOGY)),
    _under("status", "phase running succeeded failed scheduled occupiedBy scheduleStartTime"),
    _under("status", "resourceClaimStatuses.name resourceClaimStatuses.resourceClaimName"),
    _CONDITIONS,
)
_ACCOUNT = paths(
    _under("spec", f"{_SUBSPEC} min.* max.*"),
    _under("spec.affinity", "nodeGroupAffinity.** nodeGroupAntiAffinity.**"),
    "status.state",
)
# Node of a quota tree; its children have the same form.
_TREE: dict[str, Allowed] = {
    **paths("name namespaces min.* max.*"),
    "attributes": dict.fromkeys(ANNOTATIONS, SCALARS),
}
_TREE["children"] = _TREE
_WHO = "namespace name uid"
# Reservations of Phalanx and of Koordinator.
_RESERVATION: dict[str, Allowed] = paths(
    _under("spec", "count gang.namespace gang.name start notBefore end duration queue magnetic flex ignoreRunning"),
    _under("spec", "overlap replace onEnd unusedAfter ttl expires allocateOnce allocatePolicy unschedulable"),
    _under("spec", "preAllocation nodes.names nodes.count recurrence.rule recurrence.timeZone recurrence.skip"),
    _under("spec.nodes.selector", _SELECTOR),
    _under("spec.owners", "namespaces queues"),
    _under("spec.owners.object", _WHO),
    _under("spec.owners.controller", _WHO),
    _under("spec.owners.labelSelector", _SELECTOR),
    _under("status", "phase nodeName start end"),
    _CONDITIONS,
)
_RESERVATION["spec"]["template"] = {  # type: ignore[index]
    "metadata": paths("labels.*"),
    "spec": fields_of(PodSpec, _SOURCES),
}
_WORKLOAD_OF_KUEUE = paths("spec.maximumExecutionTimeSeconds status.accumulatedPastExecutionTimeSeconds")

# Rules by kind; kinds of one name in several groups share their rules.
KINDS: Final[Mapping[str, Mapping[str, Allowed]]] = {
    "Pod": {"spec": fields_of(PodSpec, _SOURCES), "status": fields_of(PodStatus, _SOURCES)},
    "Node": {"spec": fields_of(NodeSpec), "status": fields_of(NodeStatus)},
    "Namespace": {},
    "PriorityClass": fields_of(PriorityClassObject),
    "ResourceQuota": {
        "spec": fields_of(ResourceQuotaSpec, {"ResourceQuotaSpec.scopeSelector": SCALARS}),
        "status": fields_of(ResourceQuotaStatus),
    },
    "PodDisruptionBudget": paths(
        _under("spec.selector", _SELECTOR), "spec.minAvailable spec.maxUnavailable",
        _under("status", "disruptionsAllowed observedGeneration disruptedPods.*"),
        _under("status", "currentHealthy desiredHealthy expectedPods"),
    ),
    "PodGroup": _GROUP,
    "Workload": {
        "spec": {
            **paths("maximumExecutionTimeSeconds"),
            "podGroups": paths("name", _POLICY.replace("schedulingPolicy", "policy")),
        },
        "status": {**_WORKLOAD_OF_KUEUE["status"], **paths(_CONDITIONS)["status"]},  # type: ignore[dict-item]
    },
    "CompositePodGroup": _GROUP,
    "Queue": _ACCOUNT,
    "ElasticQuota": _ACCOUNT,
    "ElasticQuotaTree": {"spec": {"root": _TREE}},
    "ElasticQuotaProfile": paths(
        _under("spec.nodeSelector", _SELECTOR), "spec.quotaName spec.resourceRatio spec.quotaLabels.*"
    ),
    "HyperNode": paths(
        "spec.tier spec.tierName spec.members.type spec.members.selector.exactMatch.name",
        "spec.members.selector.regexMatch.pattern", _under("spec.members.selector.labelMatch", _SELECTOR),
    ),
    "MaintenanceWindow": paths(
        "spec.nodes.names", _under("spec.nodes.selector", _SELECTOR), "spec.start spec.end spec.duration",
        "spec.recurrence.rule spec.recurrence.timeZone spec.recurrence.skip",
        "spec.before spec.closeBefore spec.atStart spec.notice",
    ),
    "NodeClaim": paths("spec.expireAfter status.nodeName"),
    "Numatopology": paths(
        "spec.policies.* spec.numares.cpu.allocatable spec.resReserved.* spec.cpuDetail.*.socket",
        "spec.cpuDetail.*.core spec.cpuDetail.*.numa",
        "spec.podAllocations.uid spec.podAllocations.namespace spec.podAllocations.name",
    ),
    "Device": {
        "spec": {"devices": {**paths("type minor health resources.*"), "labels": {GPU_MODEL: SCALAR}}},
    },
    "PersistentVolumeClaim": paths(
        _under("spec", "accessModes volumeMode storageClassName volumeName volumeAttributesClassName"),
        _under("spec.selector", _SELECTOR), "spec.resources.requests.storage status.phase",
    ),
    "PersistentVolume": paths(
        _under("spec", "accessModes volumeMode storageClassName volumeAttributesClassName capacity.storage"),
        _under("spec", "claimRef.namespace claimRef.name claimRef.uid csi.driver csi.volumeHandle"),
        _under("spec", "gcePersistentDisk.pdName awsElasticBlockStore.volumeID azureDisk.diskURI azureDisk.kind"),
        _under("spec", "cinder.volumeID portworxVolume.volumeID"), "status.phase",
        _under("spec.nodeAffinity.required.nodeSelectorTerms", _TERMS),
        _under("spec.nodeAffinity.required.nodeSelectorTerms", _TERMS.replace("matchExpressions", "matchFields")),
    ),
    "StorageClass": paths(
        "provisioner volumeBindingMode allowedTopologies.matchLabelExpressions.key",
        "allowedTopologies.matchLabelExpressions.values",
    ),
    "CSINode": paths("spec.drivers.name spec.drivers.allocatable.count"),
    "CSIDriver": paths("spec.storageCapacity spec.preventPodSchedulingIfMissing"),
    "CSIStorageCapacity": paths(
        "maximumVolumeSize capacity storageClassName", _under("nodeTopology", _SELECTOR)
    ),
    "VolumeAttachment": paths("spec.nodeName spec.attacher spec.source.persistentVolumeName"),
    "Reservation": _RESERVATION,
    "ResourceClaim": {"spec": fields_of(ClaimSpecWire, _SOURCES), "status": fields_of(ClaimStatusWire)},
    "DeviceClass": {"spec": fields_of(ClassSpecWire, _SOURCES)},
    "ResourceSlice": {"spec": fields_of(SliceSpecWire)},
    "DeviceTaintRule": {"spec": fields_of(TaintRuleSpecWire)},
    "Service": paths("spec.selector.*"),
    "ReplicationController": paths("spec.selector.*"),
    "ReplicaSet": paths(_under("spec.selector", _SELECTOR)),
    "StatefulSet": paths(_under("spec.selector", _SELECTOR)),
    "Job": paths(
        _under("spec", "activeDeadlineSeconds parallelism completions completionMode suspend"),
        "status.startTime status.succeeded status.failedIndexes", _CONDITIONS,
    ),
    "JobSet": _job_set(),
    "LeaderWorkerSet": paths("spec.leaderWorkerTemplate.size spec.startupPolicy"),
    "RayCluster": paths(
        "spec.enableInTreeAutoscaling spec.suspend",
        _under("spec.workerGroupSpecs", "groupName suspend replicas minReplicas maxReplicas numOfHosts"),
    ),
    "RayJob": paths(
        "spec.suspend spec.activeDeadlineSeconds spec.shutdownAfterJobFinishes spec.ttlSecondsAfterFinished",
        "status.startTime",
    ),
    "SparkApplication": paths("spec.suspend"),
    "TrainJob": paths("spec.activeDeadlineSeconds spec.suspend", _CONDITIONS),
    "PodGang": paths("spec.podgroups.name spec.podgroups.minReplicas"),
    "MPIJob": _replicas("mpiReplicaSpecs"),
    "TFJob": _replicas("tfReplicaSpecs"),
    "PyTorchJob": _replicas("pytorchReplicaSpecs"),
    "XGBoostJob": _replicas("xgbReplicaSpecs"),
    "PaddleJob": _replicas("paddleReplicaSpecs"),
    "JAXJob": _replicas("jaxReplicaSpecs"),
}  # fmt: skip


def captured(api_version: str, kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an object that a capture contains; of an unknown kind only the metadata."""
    kept = {
        "apiVersion": api_version,
        "kind": kind,
        **keep_allowed(document, {**KINDS.get(kind, {}), "metadata": _METADATA}),
    }
    if kind == "Pod":
        _cut_conditions(kept, document)
    return with_annotations(kept, ANNOTATIONS)


def _cut_conditions(kept: dict[str, Any], document: Mapping[str, Any]) -> None:
    """Keep the condition reasons that decoders know, and of an eviction message the scheduler's own name."""
    status = kept.get("status", {})
    status.pop("reason", None)
    stated = document.get("status") or {}
    for now, before in zip(status.get("conditions", ()), stated.get("conditions") or (), strict=True):
        reason = now.pop("reason", "")
        if reason in _REASONS:
            now["reason"] = reason
        if now.get("type") != EVICTION:
            continue
        eviction = read_eviction(str(reason), str(before.get("message") or ""))
        if eviction is not None and eviction.scheduler == (document.get("spec") or {}).get("schedulerName"):
            now["reason"], now["message"] = eviction.reason.value, eviction_fields(eviction.scheduler)
