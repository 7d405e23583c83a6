"""Wire structs of core/v1 and related APIs, limited to the fields that a scheduler needs.

The decoders are strict and fast for well-formed objects. An object with a field of the wrong type is decoded again
field by field (`phalanx.dialects.lenient`): readable fields are used, unreadable ones are listed in `faults`. So
one malformed field never hides a pod, which could occupy a node. The decoders raise `msgspec.DecodeError` (or its
subclass `ValidationError`) only for bytes that are not a JSON object with a `metadata.name`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from phalanx.dialects.lenient import DecodingFault, decode_leniently
from phalanx.model.text.decoding import decode_loosely, decoded


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of the structs of API objects: camelCase field names; unknown fields are ignored."""


class Closed(Wire, forbid_unknown_fields=True):
    """API struct that restricts on which nodes a pod can run. An unknown field could restrict it further, so the
    pod is not placed: the field is listed in `faults`."""


def clamp_priority(value: int) -> int:
    """Limit a pod's priority to the 32 bits that the API allows."""
    return max(-(2**31), min(2**31 - 1, value))


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Wire):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class Named(Wire):
    metadata: Metadata


# Quantities remain raw JSON here: `phalanx.dialects.pods.requests` parses them one by one.
Amounts = dict[str, Any]


class ResourceRequirements(Wire):
    requests: Amounts = {}
    limits: Amounts = {}


class ContainerPort(Wire):
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class RestartRule(Wire):
    action: str = ""


class Container(Wire):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] = []


class SelectorRequirement(Closed):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class SelectorTerm(Closed):
    match_expressions: list[SelectorRequirement] = []
    match_fields: list[SelectorRequirement] = []


class NodeSelector(Closed):
    node_selector_terms: list[SelectorTerm] = []


class PreferredSchedulingTerm(Closed):
    weight: int = 0
    preference: SelectorTerm | None = None


class NodeAffinity(Closed):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Closed):
    match_labels: dict[str, str] = {}
    match_expressions: list[SelectorRequirement] = []


class PodAffinityTerm(Closed):
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Closed):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Closed):
    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Closed):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodToleration(Closed):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Any = None


class TopologySpreadConstraint(Closed):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class ImageVolume(Wire):
    reference: str = ""


class Unread(Wire):
    """API content that the scheduler ignores: only its presence counts."""


class VolumeObject(Closed):
    """A pod's volume. First the sources that restrict where a pod can run, and images, which nodes can have cached;
    then the sources that every node supports, which are not decoded."""

    name: str = ""

    image: ImageVolume | None = None
    persistent_volume_claim: Any = None
    ephemeral: Any = None
    gce_persistent_disk: Any = None
    aws_elastic_block_store: Any = None
    azure_disk: Any = None
    cinder: Any = None
    iscsi: Any = None
    portworx_volume: Any = None
    rbd: Any = None
    vsphere_volume: Any = None

    azure_file: Unread | None = None
    cephfs: Unread | None = None
    config_map: Unread | None = None
    csi: Unread | None = None
    downward_api: Unread | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: Unread | None = None
    fc: Unread | None = None
    flex_volume: Unread | None = None
    flocker: Unread | None = None
    git_repo: Unread | None = None
    glusterfs: Unread | None = None
    host_path: Unread | None = None
    nfs: Unread | None = None
    photon_persistent_disk: Unread | None = None
    projected: Unread | None = None
    quobyte: Unread | None = None
    scale_io: Unread | None = msgspec.field(default=None, name="scaleIO")
    secret: Unread | None = None
    storageos: Unread | None = None


class SchedulingGate(Wire):
    name: str = ""


class SchedulingGroup(Wire):
    """Pod's reference to its PodGroup, in Kubernetes 1.36 and later."""

    pod_group_name: str = ""


class WorkloadRef(Wire):
    """Pod's reference to its Workload, in Kubernetes 1.35 only."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodResourceClaim(Closed):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Wire):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: Any = None  # parsed later: an invalid value must not block the pod
    scheduling_gates: list[SchedulingGate] = []
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Amounts = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[PodToleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    volumes: list[VolumeObject] = []
    resource_claims: list[PodResourceClaim] = []
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class ContainerStatus(Wire):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts = {}


class ResourceClaimStatus(Wire):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Wire):
    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts = {}
    resource_claim_statuses: list[ResourceClaimStatus] = []


class _PodWire(Named):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class SharedSpec(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A decoded spec of pods without their node, and the part of their `template` that depends on it; compared by
    identity."""

    spec: PodSpec
    template: bytes


class PodObject(msgspec.Struct, gc=False):
    """A core/v1 Pod. `faults` lists every unreadable field. `template` is equal for pods with identically written
    requests and constraints, and serves as a cache key; empty until it is computed. `shared` is one object for pods
    whose specs are equal except for the node; None where that is unknown."""

    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    faults: tuple[DecodingFault, ...] = ()
    template: bytes = b""
    shared: SharedSpec | None = None
    _condition_types: list[str] | None = None

    def condition_types(self) -> list[str]:
        """Return the condition types in order; cached, since each pod change reads them several times."""
        types = self._condition_types
        if types is None:
            types = self._condition_types = [condition.type for condition in self.status.conditions]
        return types


class NodeTaint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: list[NodeTaint] = []


class ContainerImage(Wire):
    names: list[str] = []
    size_bytes: int = 0


class NodeCondition(Wire):
    type: str = ""
    status: str = ""


class NodeStatus(Wire):
    conditions: list[NodeCondition] = []
    allocatable: Amounts = {}
    capacity: Amounts = {}
    images: list[ContainerImage] = []
    declared_features: list[str] = []


class _NodeWire(Named):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NodeObject(msgspec.Struct, gc=False):
    """A core/v1 Node. `faults` lists every unreadable field."""

    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
    faults: tuple[DecodingFault, ...] = ()


class PriorityClassObject(Named):
    """A scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class NamespaceObject(Named):
    """A core/v1 Namespace."""


class ResourceQuotaSpec(Wire):
    hard: Amounts = {}
    scopes: list[str] = []
    scope_selector: Any = None


class ResourceQuotaStatus(Wire):
    hard: Amounts = {}
    used: Amounts = {}


class ResourceQuotaObject(Named):
    """A core/v1 ResourceQuota."""

    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


_POD = msgspec.json.Decoder(_PodWire)
_NODE = msgspec.json.Decoder(_NodeWire)
_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClassObject)
_NAMESPACE = msgspec.json.Decoder(NamespaceObject)
_RESOURCE_QUOTA = msgspec.json.Decoder(ResourceQuotaObject)

N = TypeVar("N", bound=Named)


def decode_pod(raw: bytes) -> PodObject:
    try:
        wire = _POD.decode(raw)  # The common case is inlined: it runs for every pod.
        if wire.metadata.name:
            return PodObject(wire.metadata, wire.spec, wire.status)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        pass
    wire, faults = _decode(_POD, _PodWire, raw)
    return PodObject(wire.metadata, wire.spec, wire.status, faults)


def decode_node(raw: bytes) -> NodeObject:
    wire, faults = _decode(_NODE, _NodeWire, raw)
    return NodeObject(wire.metadata, wire.spec, wire.status, faults)


def decode_priority_class(raw: bytes) -> PriorityClassObject:
    """Decode a PriorityClass; an unreadable `value` counts as 0, like an absent one."""
    return _decode(_PRIORITY_CLASS, PriorityClassObject, raw)[0]


def decode_namespace(raw: bytes) -> NamespaceObject:
    return _decode(_NAMESPACE, NamespaceObject, raw)[0]


def decode_resource_quota(raw: bytes) -> ResourceQuotaObject:
    return _decode(_RESOURCE_QUOTA, ResourceQuotaObject, raw)[0]


def _decode(decoder: msgspec.json.Decoder[N], kind: type[N], raw: bytes) -> tuple[N, tuple[DecodingFault, ...]]:
    try:
        wire = decoded(decoder.decode, raw)
        if wire.metadata.name:
            return wire, ()
    except msgspec.DecodeError:
        pass
    return decode_leniently(kind, decode_loosely(raw))
