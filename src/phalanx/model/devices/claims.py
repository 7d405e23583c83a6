"""Devices that pods claim by class and selector: resource.k8s.io, dynamic resource allocation (DRA).

Quantities have their original text (`40Gi`); `cluster/dra/` compares them exactly.
"""

from __future__ import annotations

import msgspec

from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm

# Limits of resource.k8s.io/v1: devices and consumers of one claim.
MOST_DEVICES = 32
MOST_CONSUMERS = 256
# Identity of a device: driver, pool, device.
DeviceId = tuple[str, str, str]


class DeviceToleration(msgspec.Struct, frozen=True, cache_hash=True):
    """Device taints that a device request tolerates; empty `key` and `effect` mean all, `seconds` is only passed
    on."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class DeviceTaint(msgspec.Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class DeviceTaintSelector(msgspec.Struct, frozen=True):
    """Criteria for devices, None for any; `selectors` are CEL expressions."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class: str | None = None
    selectors: tuple[str, ...] = ()


class DeviceTaintRule(msgspec.Struct, frozen=True):
    """Taint of all devices that the selector selects; without a selector it selects none."""

    name: str
    taint: DeviceTaint
    selector: DeviceTaintSelector | None = None


class DeviceTaintRuleGone(msgspec.Struct, frozen=True):
    name: str


class DeviceAsk(msgspec.Struct, frozen=True, cache_hash=True):
    """One choice in a device request: devices of one class that match all `selectors` (CEL), `count` devices or all
    of a node (`count` 0).

    With `admin` the devices are used besides their users. `capacity` is the consumed capacity of a shared device:
    (name of the capacity, quantity).
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()


class DeviceRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """One request of a ResourceClaim: its only choice, or `prioritised` alternatives, of which the first
    satisfiable one applies."""

    name: str
    asks: tuple[DeviceAsk, ...]
    prioritised: bool = False

    def full_name(self, ask: int) -> str:
        """Return the name of an alternative (request/subrequest) in results and configuration."""
        return f"{self.name}/{self.asks[ask].name}" if self.prioritised else self.name


class DeviceConstraint(msgspec.Struct, frozen=True, cache_hash=True):
    """Constraint of a ResourceClaim on the devices of all `requests` (none: of all requests of the claim): equal
    `match` attributes, or pairwise different `distinct` attributes.

    If both are set, `match` applies.
    """

    requests: tuple[str, ...] = ()
    match: str = ""
    distinct: str = ""


class DeviceConfig(msgspec.Struct, frozen=True, cache_hash=True):
    """Configuration of a ResourceClaim for device drivers, passed on unchanged: `body` is the JSON object without
    its requests."""

    requests: tuple[str, ...]
    body: str


class ClaimSpec(msgspec.Struct, frozen=True, cache_hash=True):
    """Spec of a ResourceClaim. `fault` is the reason why it is unreadable (an unknown kind of request or
    constraint): then no device is allocated."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    fault: str = ""

    @property
    def admin(self) -> bool:
        return any(ask.admin for request in self.requests for ask in request.asks)


class DeviceMapping(msgspec.Struct, frozen=True, cache_hash=True, rename="camel"):
    """Mapping of one container's extended resource to a device request in the pod's ResourceClaim."""

    container_name: str
    resource_name: str
    request_name: str


class ExtendedNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """Request for an extended resource that a DeviceClass provides: `amount` on a node whose kubelet offers it, the
    devices of `requests` on other nodes."""

    resource: str
    amount: int
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[DeviceMapping, ...] = ()


class ClaimNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """One ResourceClaim of a pod, in the form that its pod class contains.

    The pod's own unallocated claim is only its `spec`, so that pods of equal templates are one class. `claim`
    (namespace/name) names a claim that several pods share, or that is allocated already: then it restricts the
    nodes. `reserved`: the pod is one of its consumers already, or its PodGroup is or will be. `waits` is the
    reason why the pod cannot be placed yet. A claim for `extended` resources does not exist yet: its requests
    depend on the node, and the scheduler creates it.
    """

    spec: ClaimSpec = ClaimSpec()
    claim: str = ""
    reserved: bool = False
    waits: str = ""
    extended: tuple[ExtendedNeed, ...] = ()


class AllocatedDevice(msgspec.Struct, frozen=True):
    """One allocated device of a ResourceClaim. `consumed` is set for a device that several claims can share."""

    id: DeviceId
    admin: bool = False
    shared: bool = False
    consumed: tuple[tuple[str, str], ...] = ()


class ClaimResult(msgspec.Struct, frozen=True):
    """Allocation of a ResourceClaim: its devices, and the nodes that can use it (None: all).

    `document` is the JSON of a `status.allocation` to write, "" once it is written; `conditions`: the claim is
    usable only after its devices are ready (binding conditions).
    """

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: tuple[NodeSelectorTerm, ...] | None = None
    document: str = ""
    conditions: bool = False


class Claim(msgspec.Struct, frozen=True):
    """ResourceClaim as last observed.

    `consumers` are the uids for which it is reserved, `owner` is the uid of its controlling owner ("" without
    one), which is the PodGroup `group` if that is set. `extended`: a scheduler created it for the extended
    resources of its owner. `version` is the version of its API.
    """

    namespace: str
    name: str
    uid: str
    spec: ClaimSpec = ClaimSpec()
    allocation: ClaimResult | None = None
    consumers: tuple[str, ...] = ()
    owner: str = ""
    group: str = ""
    terminating: bool = False
    extended: bool = False
    problem: str = ""
    version: str = "v1"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeviceClass(msgspec.Struct, frozen=True):
    """DeviceClass; `extended` is the extended resource that it provides."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    extended: str = ""
    problem: str = ""


class DeviceAttribute(msgspec.Struct, frozen=True):
    """Attribute of a device; `kind` is int, bool, string or version, or the plural of one for a list (a tuple
    here).
    """

    kind: str
    value: int | bool | str | tuple[int | bool | str, ...]


class ConsumptionPolicy(msgspec.Struct, frozen=True):
    """Rounding of requests for a shared device's capacity: up to one of `values`, or into low..high by steps."""

    default: str = ""
    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    step: str = ""


class DeviceCapacity(msgspec.Struct, frozen=True):
    value: str
    policy: ConsumptionPolicy | None = None


class NodeAccess(msgspec.Struct, frozen=True):
    """Nodes that can use a device: one node, the nodes that a selector term matches, or `all` nodes."""

    node: str = ""
    terms: tuple[NodeSelectorTerm, ...] | None = None
    all: bool = False
    selector: str = ""  # JSON of the node selector, copied to allocations


class Device(msgspec.Struct, frozen=True):
    """One device of a pool (DRA). Names without a domain belong to the domain of the driver.

    `counters` are its usage of the pool's shared counters: (counter set, counter, quantity). `access` is set if
    each device has its own.
    """

    name: str
    attributes: tuple[tuple[str, DeviceAttribute], ...] = ()
    capacity: tuple[tuple[str, DeviceCapacity], ...] = ()
    counters: tuple[tuple[str, str, str], ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    shareable: bool = False
    access: NodeAccess | None = None
    binds_to_node: bool = False
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class DeviceSlice(msgspec.Struct, frozen=True):
    """ResourceSlice: a part of a pool of devices (DRA).

    Only the newest generation of a pool counts, and only with all of its `parts`. `access` is None if each device
    has its own.
    """

    name: str
    driver: str
    pool: str
    generation: int
    parts: int
    access: NodeAccess | None = None
    devices: tuple[Device, ...] = ()
    counters: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""


class AllocateClaim(Preparation, frozen=True):
    """Preparation before a binding: write the allocation of a ResourceClaim and its reservation for a pod, or for
    the pod's PodGroup if `group` is set.

    `allocation` is the JSON of `status.allocation`, "" if the claim is allocated already. `uid` is that of the
    claim, `version` that of its API. With `conditions` the pod must wait until the devices are ready. `fault` is
    the reason if no devices were found after all. A claim for extended resources is created first, from the JSON
    of its spec in `create`; `mappings` is the JSON for the pod's status.
    """

    namespace: str
    name: str
    uid: str
    pod: str
    pod_uid: str
    allocation: str = ""
    group: str = ""
    group_uid: str = ""
    conditions: bool = False
    fault: str = ""
    version: str = "v1"
    create: str = ""
    mappings: str = ""


# Facts for the claim allocator (`AllocatorFact`).


class ClaimGone(msgspec.Struct, frozen=True):
    key: str


class DeviceClassGone(msgspec.Struct, frozen=True):
    name: str


class DeviceSliceGone(msgspec.Struct, frozen=True):
    name: str
