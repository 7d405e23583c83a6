"""Devices that pods claim by name and selector: resource.k8s.io, dynamic resource allocation.

Quantities are kept as they were written (`40Gi`): they are compared exactly, in `cluster/dra/`.
"""

from __future__ import annotations

import msgspec

from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm

# What one claim may be given, and by how many it may be reserved (resource.k8s.io/v1).
MOST_DEVICES = 32
MOST_CONSUMERS = 256
# How a device is told from all others: driver, pool, device.
DeviceId = tuple[str, str, str]


class DeviceToleration(msgspec.Struct, frozen=True, cache_hash=True):
    """Which device taints a request puts up with; the empty `key` and `effect` mean all, `seconds` is only handed
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


class DeviceAsk(msgspec.Struct, frozen=True, cache_hash=True):
    """Devices of one class that meet all `selectors` (CEL): `count` of them, or all that a node has (`count` 0).

    With `admin` the devices are used beside whoever has them. `capacity` is what is consumed of a device that
    several may share: (capacity's name, quantity).
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()


class DeviceRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """One request of a claim: its only ask, or `prioritised` alternatives of which the first that can be met is."""

    name: str
    asks: tuple[DeviceAsk, ...]
    prioritised: bool = False

    def full_name(self, ask: int) -> str:
        """How results and configuration refer to one of the alternatives."""
        return f"{self.name}/{self.asks[ask].name}" if self.prioritised else self.name


class DeviceConstraint(msgspec.Struct, frozen=True, cache_hash=True):
    """All devices of the `requests` (none named: of the claim) agree in the attribute `match`, or each pair differs
    in the attribute `distinct`; where both are stated the former counts."""

    requests: tuple[str, ...] = ()
    match: str = ""
    distinct: str = ""


class DeviceConfig(msgspec.Struct, frozen=True, cache_hash=True):
    """Configuration for drivers, handed on as it is: `body` is the JSON object without its requests."""

    requests: tuple[str, ...]
    body: str


class ClaimSpec(msgspec.Struct, frozen=True, cache_hash=True):
    """What a claim asks for. `fault` says why it cannot be read as a whole (a kind of request or constraint that
    this version does not know): then nothing is allocated for it."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    fault: str = ""

    @property
    def admin(self) -> bool:
        return any(ask.admin for request in self.requests for ask in request.asks)


class DeviceMapping(msgspec.Struct, frozen=True, cache_hash=True, rename="camel"):
    """Which request of a pod's claim for extended resources serves a container's amount of one."""

    container_name: str
    resource_name: str
    request_name: str


class ExtendedNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """An extended resource that a device class offers: `amount` of it on a node whose kubelet offers it, on others
    the devices of the `requests`."""

    resource: str
    amount: int
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[DeviceMapping, ...] = ()


class ClaimNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """One resource claim of a pod, as its class sees it.

    A claim of the pod's own that is not allocated yet is nothing but its `spec`, so pods made from equal templates
    are one class. `claim` (namespace/name) names one that several pods share, or that is allocated already: then it
    decides where the pods can be. `reserved`: the pod is among its consumers already, or its PodGroup is or will be
    instead. `waits` says what has to come before the pod can be placed at all. A claim for `extended` resources
    does not exist yet: what it asks for depends on the node, and the scheduler makes it.
    """

    spec: ClaimSpec = ClaimSpec()
    claim: str = ""
    reserved: bool = False
    waits: str = ""
    extended: tuple[ExtendedNeed, ...] = ()


class AllocatedDevice(msgspec.Struct, frozen=True):
    """One device that a claim has got. `consumed` is set for a device that others may share."""

    id: DeviceId
    admin: bool = False
    shared: bool = False
    consumed: tuple[tuple[str, str], ...] = ()


class ClaimResult(msgspec.Struct, frozen=True):
    """What a claim was given, and the nodes on which it can be used (None: all), as the API tells.

    `document` is the JSON of `status.allocation` of what is yet to be written, "" once it has been; `conditions`
    says that the claim is usable only when its devices are ready (binding conditions).
    """

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: tuple[NodeSelectorTerm, ...] | None = None
    document: str = ""
    conditions: bool = False


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim as last observed. `consumers` are the uids for which it is reserved, `owner` the uid of its
    controlling owner ("" without one), which is the PodGroup `group` if that is set. `extended`: a scheduler made
    it for the extended resources of its owner. `version` is that of the API which serves it."""

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
    """What administrators call a kind of device; `extended` is the extended resource that stands for it."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    extended: str = ""
    problem: str = ""


class DeviceAttribute(msgspec.Struct, frozen=True):
    """`kind` is int, bool, string or version, or the plural of one for a list (a tuple here)."""

    kind: str
    value: int | bool | str | tuple[int | bool | str, ...]


class ConsumptionPolicy(msgspec.Struct, frozen=True):
    """How requests for a capacity that is shared are rounded up: to one of `values`, or into low..high by steps."""

    default: str = ""
    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    step: str = ""


class DeviceCapacity(msgspec.Struct, frozen=True):
    value: str
    policy: ConsumptionPolicy | None = None


class NodeAccess(msgspec.Struct, frozen=True):
    """From which nodes something can be used: from one, from those that a term selects, or from `all`."""

    node: str = ""
    terms: tuple[NodeSelectorTerm, ...] | None = None
    all: bool = False
    selector: str = ""  # JSON of the node selector, handed on with allocations


class Device(msgspec.Struct, frozen=True):
    """One device of a pool. Names without a domain belong to the driver's. `counters` are what it draws from the
    pool's shared counters: (counter set, counter, quantity). `access` is set where each device has its own."""

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
    """A ResourceSlice: a part of a pool of devices. Only the newest generation of a pool counts, and only when all
    `parts` of it are there. `access` is None where each device says it."""

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
    """Give a claim its devices and reserve it for a pod, or for the pod's PodGroup if `group` names one.

    `allocation` is the JSON of `status.allocation`, "" where the claim has been allocated before. `uid` is the
    claim's, `version` the one of its API. With `conditions` the pod has to wait until the devices are ready, and
    `fault` says that none were found after all. A claim for extended resources is made first, from the JSON of its
    spec in `create`; `mappings` is the JSON of what the pod's status says about it.
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


# What the allocator of claims is told (`AllocatorFact`).


class ClaimGone(msgspec.Struct, frozen=True):
    key: str


class DeviceClassGone(msgspec.Struct, frozen=True):
    name: str


class DeviceSliceGone(msgspec.Struct, frozen=True):
    name: str
