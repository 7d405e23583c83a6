"""The part of core/v1 Pod and Node that a kubelet has to read, as typed structs.

Everything else in the objects is skipped while decoding. Absent and `null` read alike.
"""

from __future__ import annotations

import msgspec

from phalanx.model.selectors import Requirement, Toleration

Amounts = dict[str, str | int | float]


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Camel case on the wire. None of them can be part of a reference cycle, so the collector skips them."""


class ObjectMeta(_Wire):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class FieldRef(_Wire):
    field_path: str = ""


class ResourceFieldRef(_Wire):
    resource: str = ""
    container_name: str | None = None
    divisor: str | int | float | None = None


class EnvVarSource(_Wire):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: dict[str, object] | None = None
    secret_key_ref: dict[str, object] | None = None
    file_key_ref: dict[str, object] | None = None


class EnvVar(_Wire):
    name: str
    value: str | None = None
    value_from: EnvVarSource | None = None


class ContainerPort(_Wire):
    container_port: int = 0
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class ResourceRequirements(_Wire):
    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Wire):
    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class Volume(_Wire):
    name: str
    empty_dir: dict[str, object] | None = None


class ReadinessGate(_Wire):
    condition_type: str


class PodResourceClaim(_Wire):
    name: str
    resource_claim_name: str | None = None


class NodeSelectorTerm(_Wire):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(_Wire):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(_Wire):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Wire):
    node_affinity: NodeAffinity | None = None


class PodSpec(_Wire):
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    overhead: Amounts | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    hostname: str | None = None
    subdomain: str | None = None
    service_account_name: str | None = None
    volumes: list[Volume] | None = None
    readiness_gates: list[ReadinessGate] | None = None
    resource_claims: list[PodResourceClaim] | None = None


class ContainerStateRunning(_Wire):
    started_at: str | None = None


class ContainerStateWaiting(_Wire):
    reason: str | None = None
    message: str | None = None


class ContainerStateTerminated(_Wire):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Wire):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(_Wire):
    name: str
    restart_count: int = 0
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class Condition(_Wire):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class RequestMapping(_Wire):
    container_name: str = ""
    resource_name: str = ""


class ExtendedResourceClaimStatus(_Wire):
    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] | None = None


class PodStatus(_Wire):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: str | None = None
    conditions: list[Condition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[PodResourceClaim] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(_Wire):
    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def node(self) -> str:
        return self.spec.node_name or ""

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class Taint(_Wire):
    key: str
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class NodeObjectSpec(_Wire):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeAddress(_Wire):
    type: str = ""
    address: str = ""


class NodeStatus(_Wire):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None
    addresses: list[NodeAddress] | None = None


class Node(_Wire):
    metadata: ObjectMeta
    spec: NodeObjectSpec = msgspec.field(default_factory=NodeObjectSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def address(self) -> str:
        """Its InternalIP, "" while it has none."""
        return next((item.address for item in self.status.addresses or () if item.type == "InternalIP"), "")
