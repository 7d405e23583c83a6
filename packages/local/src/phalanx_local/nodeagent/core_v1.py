"""Typed structs of the fields of core/v1 Pod and Node that a kubelet reads.

The decoder skips all other fields. Absent and `null` are equal.
"""

from __future__ import annotations

import msgspec

from phalanx.model.selectors import Requirement, Toleration

Amounts = dict[str, str | int | float]


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of the structs for pods and nodes, with camel case in JSON. No struct is part of a reference cycle, so
    none is tracked by the garbage collector."""


class V1ObjectMeta(_Wire):
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


class V1FieldRef(_Wire):
    field_path: str = ""


class V1ResourceFieldRef(_Wire):
    resource: str = ""
    container_name: str | None = None
    divisor: str | int | float | None = None


class V1KeyRef(_Wire):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class V1EnvFromSource(_Wire):
    """Source of environment variables; `config_map_ref` and `secret_ref` name an object whose keys all become
    variables."""

    prefix: str = ""
    config_map_ref: V1KeyRef | None = None
    secret_ref: V1KeyRef | None = None


class V1EnvVarSource(_Wire):
    field_ref: V1FieldRef | None = None
    resource_field_ref: V1ResourceFieldRef | None = None
    config_map_key_ref: V1KeyRef | None = None
    secret_key_ref: V1KeyRef | None = None
    file_key_ref: dict[str, object] | None = None


class V1EnvVar(_Wire):
    name: str
    value: str | None = None
    value_from: V1EnvVarSource | None = None


class V1ContainerPort(_Wire):
    container_port: int = 0
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class V1ResourceRequirements(_Wire):
    requests: Amounts | None = None
    limits: Amounts | None = None


class V1Container(_Wire):
    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[V1EnvVar] | None = None
    env_from: list[V1EnvFromSource] | None = None
    ports: list[V1ContainerPort] | None = None
    resources: V1ResourceRequirements | None = None
    restart_policy: str | None = None


class V1KeyToPath(_Wire):
    key: str = ""
    path: str = ""


class V1ConfigMapVolume(_Wire):
    name: str = ""
    items: list[V1KeyToPath] | None = None
    optional: bool | None = None


class V1SecretVolume(_Wire):
    secret_name: str = ""
    items: list[V1KeyToPath] | None = None
    optional: bool | None = None


class V1Volume(_Wire):
    name: str
    empty_dir: dict[str, object] | None = None
    config_map: V1ConfigMapVolume | None = None
    secret: V1SecretVolume | None = None


class V1ReadinessGate(_Wire):
    condition_type: str


class V1PodResourceClaim(_Wire):
    name: str
    resource_claim_name: str | None = None


class V1NodeSelectorTerm(_Wire):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class V1NodeSelector(_Wire):
    node_selector_terms: tuple[V1NodeSelectorTerm, ...] = ()


class V1NodeAffinity(_Wire):
    required: V1NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class V1Affinity(_Wire):
    node_affinity: V1NodeAffinity | None = None


class V1PodSpec(_Wire):
    containers: list[V1Container] = msgspec.field(default_factory=list)
    init_containers: list[V1Container] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: V1Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    overhead: Amounts | None = None
    resources: V1ResourceRequirements | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    hostname: str | None = None
    subdomain: str | None = None
    service_account_name: str | None = None
    volumes: list[V1Volume] | None = None
    readiness_gates: list[V1ReadinessGate] | None = None
    resource_claims: list[V1PodResourceClaim] | None = None


class V1ContainerStateRunning(_Wire):
    started_at: str | None = None


class V1ContainerStateWaiting(_Wire):
    reason: str | None = None
    message: str | None = None


class V1ContainerStateTerminated(_Wire):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class V1ContainerState(_Wire):
    waiting: V1ContainerStateWaiting | None = None
    running: V1ContainerStateRunning | None = None
    terminated: V1ContainerStateTerminated | None = None


class V1ContainerStatus(_Wire):
    name: str
    restart_count: int = 0
    resources: V1ResourceRequirements | None = None
    allocated_resources: Amounts | None = None
    state: V1ContainerState | None = None
    last_state: V1ContainerState | None = None


class V1Condition(_Wire):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class V1RequestMapping(_Wire):
    container_name: str = ""
    resource_name: str = ""


class V1ExtendedResourceClaimStatus(_Wire):
    resource_claim_name: str = ""
    request_mappings: list[V1RequestMapping] | None = None


class V1PodStatus(_Wire):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: str | None = None
    conditions: list[V1Condition] | None = None
    init_container_statuses: list[V1ContainerStatus] | None = None
    container_statuses: list[V1ContainerStatus] | None = None
    resource_claim_statuses: list[V1PodResourceClaim] | None = None
    resources: V1ResourceRequirements | None = None
    allocated_resources: Amounts | None = None
    extended_resource_claim_status: V1ExtendedResourceClaimStatus | None = None


class V1Pod(_Wire):
    metadata: V1ObjectMeta
    spec: V1PodSpec = msgspec.field(default_factory=V1PodSpec)
    status: V1PodStatus = msgspec.field(default_factory=V1PodStatus)

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


class V1Taint(_Wire):
    key: str
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class V1NodeSpec(_Wire):
    taints: list[V1Taint] | None = None
    unschedulable: bool | None = None


class V1NodeAddress(_Wire):
    type: str = ""
    address: str = ""


class V1NodeStatus(_Wire):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[V1Condition] | None = None
    addresses: list[V1NodeAddress] | None = None


class V1Node(_Wire):
    metadata: V1ObjectMeta
    spec: V1NodeSpec = msgspec.field(default_factory=V1NodeSpec)
    status: V1NodeStatus = msgspec.field(default_factory=V1NodeStatus)

    @property
    def address(self) -> str:
        """InternalIP of the node; "" if it has none."""
        return next((item.address for item in self.status.addresses or () if item.type == "InternalIP"), "")
