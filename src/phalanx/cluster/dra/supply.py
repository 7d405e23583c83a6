"""Supply of devices: device pools that are assembled from ResourceSlices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.cluster.dra.amounts import nano
from phalanx.model.devices.claims import Device, DeviceId, DeviceSlice, NodeAccess
from phalanx.model.selectors import NodeSelectorTerm
from phalanx.model.text.quantity import QuantityError

PoolId = tuple[str, str]
CounterId = tuple[str, str]
# Predicate that is True if the node in question satisfies one of the terms.
Selected = Callable[[tuple[NodeSelectorTerm, ...]], bool]


class Offer:
    """One device in its pool. `access` determines where it is usable, `draws` its consumption of the pool's
    counters, and `amounts` its capacities; both in nano-units."""

    __slots__ = ("__weakref__", "access", "amounts", "device", "draws", "id")

    def __init__(self, pool: PoolId, device: Device, access: NodeAccess) -> None:
        self.id: DeviceId = (*pool, device.name)
        self.device = device
        self.access = access
        self.draws: dict[CounterId, int] = {(set_, name): nano(text) for set_, name, text in device.counters}
        self.amounts = {name: nano(capacity.value) for name, capacity in device.capacity}


class Pool:
    """The newest generation of one device pool. `fault` is the reason why it is unusable; an incomplete pool has no
    offers. `access` determines where any part of it is usable."""

    def __init__(self, pool: PoolId, slices: list[DeviceSlice]) -> None:
        self.id = pool
        slices = sorted(slices, key=lambda slice_: slice_.name)
        self.incomplete = len(slices) != slices[0].parts
        self.offers: tuple[Offer, ...] = ()
        self.counters: dict[CounterId, int] = {}
        self.fault = ""
        self.access = tuple(dict.fromkeys(_accesses(slices)))
        self.waits_for_conditions = any(device.conditions for slice_ in slices for device in slice_.devices)
        if not self.incomplete:
            try:
                self._assemble(slices)
            except (ValueError, KeyError) as error:
                self.fault, self.offers = str(error), ()

    def __str__(self) -> str:
        return "/".join(self.id)

    @property
    def order(self) -> tuple[bool, PoolId]:
        """Sort key of device pools: devices that must be prepared first are allocated last."""
        return self.waits_for_conditions, self.id

    def usable(self, node: str, selected: Selected) -> bool:
        """Return whether a part of the device pool is usable from a node."""
        return any(reaches(access, node, selected) for access in self.access)

    def _assemble(self, slices: list[DeviceSlice]) -> None:
        """Assemble the devices and counters of the pool from its ResourceSlices. Raise ValueError."""
        for slice_ in slices:
            if slice_.problem:
                raise ValueError(f"ResourceSlice {slice_.name}: {slice_.problem}")
            for set_, name, text in slice_.counters:
                if (set_, name) in self.counters:
                    raise ValueError(f"duplicate counter set name {set_}")
                self.counters[set_, name] = _nano(slice_, text)
        offers: dict[str, Offer] = {}
        for slice_ in slices:
            for device in slice_.devices:
                if device.name in offers:
                    raise ValueError(f"duplicate device name {device.name}")
                offers[device.name] = offer = Offer(self.id, device, device.access or slice_.access or NodeAccess())
                for set_, name in offer.draws:
                    if (set_, name) not in self.counters:
                        raise ValueError(f"counter {name} not found in counter set {set_}")
        self.offers = tuple(offers.values())


class Supply:
    """All ResourceSlices by name, and the device pools that they form."""

    def __init__(self) -> None:
        self._slices: dict[str, DeviceSlice] = {}
        self._by_pool: dict[PoolId, dict[str, DeviceSlice]] = {}
        self.pools: dict[PoolId, Pool] = {}
        self._at_node: dict[str, set[PoolId]] = {}
        self._wide: set[PoolId] = set()

    def put(self, slice_: DeviceSlice) -> set[str] | None:
        """Store a ResourceSlice; return the nodes whose devices have changed; None for any node."""
        if self._slices.get(slice_.name) == slice_:
            return set()
        touched = self.remove(slice_.name)
        self._slices[slice_.name] = slice_
        pool = (slice_.driver, slice_.pool)
        self._by_pool.setdefault(pool, {})[slice_.name] = slice_
        return _union(touched, self._renew(pool))

    def remove(self, name: str) -> set[str] | None:
        last = self._slices.pop(name, None)
        if last is None:
            return set()
        pool = (last.driver, last.pool)
        del self._by_pool[pool][name]
        return self._renew(pool)

    @property
    def wide(self) -> bool:
        """Whether any device pool is usable from several nodes."""
        return bool(self._wide)

    def where(self, pool: PoolId) -> set[str] | None:
        """Return the names of the nodes from which a device pool is usable; None if it is not restricted to named
        nodes."""
        return _nodes(self.pools.get(pool))

    def near(self, node: str, selected: Selected) -> Iterator[Pool]:
        """Yield the device pools that are partly usable from a node, in the order of allocation."""
        ids = self._at_node.get(node, set()) | self._wide
        for pool in sorted((self.pools[pool] for pool in ids), key=lambda pool: pool.order):
            if pool.usable(node, selected):
                yield pool

    def _renew(self, pool: PoolId) -> set[str] | None:
        touched = _nodes(self._withdraw(pool))
        slices = self._by_pool[pool]
        if not slices:
            del self._by_pool[pool]
            return touched
        newest = max(slice_.generation for slice_ in slices.values())
        created = self.pools[pool] = Pool(
            pool, [slice_ for slice_ in slices.values() if slice_.generation == newest]
        )
        nodes = _nodes(created)
        for node in () if nodes is None else nodes:
            self._at_node.setdefault(node, set()).add(pool)
        if nodes is None:
            self._wide.add(pool)
        return _union(touched, nodes)

    def _withdraw(self, pool: PoolId) -> Pool | None:
        last = self.pools.pop(pool, None)
        self._wide.discard(pool)
        for node in _nodes(last) or ():
            pools = self._at_node[node]
            pools.discard(pool)
            if not pools:
                del self._at_node[node]
        return last


def reaches(access: NodeAccess, node: str, selected: Selected) -> bool:
    if access.node:
        return access.node == node
    return access.all or (access.terms is not None and selected(access.terms))


def _accesses(slices: list[DeviceSlice]) -> Iterator[NodeAccess]:
    for slice_ in slices:
        if slice_.access is not None and (slice_.devices or not slice_.counters):
            yield slice_.access
        yield from (device.access for device in slice_.devices if device.access is not None)


def _nodes(pool: Pool | None) -> set[str] | None:
    """Return the names of the nodes from which a device pool is usable; None if it is not restricted to named
    nodes."""
    if pool is None:
        return set()
    names = {access.node for access in pool.access}
    return None if "" in names else names


def _union(first: set[str] | None, second: set[str] | None) -> set[str] | None:
    return None if first is None or second is None else first | second


def _nano(slice_: DeviceSlice, text: str) -> int:
    try:
        return nano(text)
    except QuantityError as error:
        raise ValueError(f"ResourceSlice {slice_.name}: {error}") from None
