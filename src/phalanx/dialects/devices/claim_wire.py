"""Wire structs of resource.k8s.io: v1 and v1beta2, and the differing parts of v1beta1."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dialects.core import Metadata, NodeSelector, Wire


class CelSelector(Wire):
    expression: str = ""


class SelectorWire(Wire):
    cel: CelSelector | None = None


class TolerationWire(Wire):
    key: str | None = ""
    operator: str | None = "Equal"
    value: str | None = ""
    effect: str | None = ""
    toleration_seconds: int | None = None


class CapacityWire(Wire):
    requests: dict[str, str] | None = None


class AskWire(Wire):
    """An ExactDeviceRequest or a DeviceSubRequest; v1beta1 has it inline in a request without alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[SelectorWire] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[TolerationWire] | None = None
    capacity: CapacityWire | None = None


class RequestWire(AskWire):
    exactly: AskWire | None = None
    first_available: list[AskWire] | None = None


class ConstraintWire(Wire):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DevicesWire(Wire):
    requests: list[RequestWire] | None = None
    constraints: list[ConstraintWire] | None = None
    config: list[dict[str, Any]] | None = None


class ClaimSpecWire(Wire):
    devices: DevicesWire = msgspec.field(default_factory=DevicesWire)


class ResultWire(Wire):
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] | None = None
    binding_conditions: list[str] | None = None


class AllocatedWire(Wire):
    results: list[ResultWire] | None = None


class AllocationWire(Wire):
    devices: AllocatedWire = msgspec.field(default_factory=AllocatedWire)
    node_selector: NodeSelector | None = None


class ConsumerWire(Wire):
    uid: str = ""


class ClaimStatusWire(Wire):
    allocation: AllocationWire | None = None
    reserved_for: list[ConsumerWire] | None = None


class ClaimWire(Wire):
    metadata: Metadata
    spec: ClaimSpecWire = msgspec.field(default_factory=ClaimSpecWire)
    status: ClaimStatusWire = msgspec.field(default_factory=ClaimStatusWire)


class ClassSpecWire(Wire):
    selectors: list[SelectorWire] | None = None
    config: list[dict[str, Any]] | None = None
    extended_resource_name: str | None = ""


class ClassWire(Wire):
    metadata: Metadata
    spec: ClassSpecWire = msgspec.field(default_factory=ClassSpecWire)


class AttributeWire(Wire):
    int: Any = None
    bool: Any = None
    string: str | None = None
    version: str | None = None
    ints: list[Any] | None = None
    bools: list[Any] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None


class RangeWire(Wire):
    min: str | None = ""
    max: str | None = ""
    step: str | None = ""


class PolicyWire(Wire):
    default: str | None = ""
    valid_values: list[str] | None = None
    valid_range: RangeWire | None = None


class DeviceCapacityWire(Wire):
    value: str
    request_policy: PolicyWire | None = None


class CounterWire(Wire):
    value: str


class CountersWire(Wire):
    """A counter set of a ResourceSlice, or a device's consumption from one."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, CounterWire] | None = None


class TaintWire(Wire):
    key: str = ""
    value: str | None = ""
    effect: str = ""


class AccessWire(Wire):
    node_name: str | None = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None


class DeviceBodyWire(AccessWire):
    attributes: dict[str, AttributeWire] | None = None
    capacity: dict[str, DeviceCapacityWire] | None = None
    consumes_counters: list[CountersWire] | None = None
    taints: list[TaintWire] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class DeviceWire(DeviceBodyWire):
    name: str = ""
    basic: DeviceBodyWire | None = None


class PoolWire(Wire):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpecWire(AccessWire):
    driver: str = ""
    pool: PoolWire | None = None
    devices: list[DeviceWire] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CountersWire] | None = None


class SliceWire(Wire):
    metadata: Metadata
    spec: SliceSpecWire = msgspec.field(default_factory=SliceSpecWire)


class TaintSelectorWire(Wire):
    """Selector of a DeviceTaintRule; class and expressions exist in some versions only."""

    device_class_name: str | None = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selectors: list[SelectorWire] | None = None


class TaintRuleSpecWire(Wire):
    device_selector: TaintSelectorWire | None = None
    taint: TaintWire = msgspec.field(default_factory=TaintWire)


class TaintRuleWire(Wire):
    metadata: Metadata
    spec: TaintRuleSpecWire = msgspec.field(default_factory=TaintRuleSpecWire)
