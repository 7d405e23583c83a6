"""What drivers publish: pools of devices, put together from ResourceSlices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.cluster.dra.amounts import nano
from phalanx.model.devices.claims import Device, DeviceId, DeviceSlice, NodeAccess
from phalanx.model.selectors import NodeSelectorTerm
from phalanx.model.text.quantity import QuantityError

PoolId = tuple[str, str]
CounterId = tuple[str, str]
# Whether the node in question satisfies one of the terms.
Selected = Callable[[tuple[NodeSelectorTerm, ...]], bool]


class Offer:
    """One device in its pool. `access` is where it can be used, `draws` what it takes of the pool's counters,
    `amounts` are its capacities; both in nano-units."""

    __slots__ = ("__weakref__", "access", "amounts", "device", "draws", "id")

    def __init__(self, pool: PoolId, device: Device, access: NodeAccess) -> None:
        self.id: DeviceId = (*pool, device.name)
        self.device = device
        self.access = access
        self.draws: dict[CounterId, int] = {(set_, name): nano(text) for set_, name, text in device.counters}
        self.amounts = {name: nano(capacity.value) for name, capacity in device.capacity}


class Pool:
    """The newest generation of one pool. `fault` says why nothing can be taken from it; a pool that is not there
    as a whole yet has no offers. `access` is where any part of it can be used."""

    def __init__(self, pool: PoolId, slices: list[DeviceSlice]) -> None:
        self.id = pool
        slices = sorted(slices, key=lambda each: each.name)
        self.incomplete = len(slices) != slices[0].parts
        self.offers: tuple[Offer, ...] = ()
        self.counters: dict[CounterId, int] = {}
        self.fault = ""
        self.access = tuple(dict.fromkeys(_accesses(slices)))
        self.waits_for_conditions = any(device.conditions for each in slices for device in each.devices)
        if not self.incomplete:
            try:
                self._assemble(slices)
            except (ValueError, KeyError) as error:
                self.fault, self.offers = str(error), ()

    def __str__(self) -> str:
        return "/".join(self.id)

    @property
    def order(self) -> tuple[bool, PoolId]:
        """Devices that must be made ready first are taken last."""
        return self.waits_for_conditions, self.id

    def usable(self, node: str, selected: Selected) -> bool:
        """Whether a part of it can be used from a node."""
        return any(reaches(access, node, selected) for access in self.access)

    def _assemble(self, slices: list[DeviceSlice]) -> None:
        """Raises ValueError."""
        for each in slices:
            if each.problem:
                raise ValueError(f"ResourceSlice {each.name}: {each.problem}")
            for set_, name, text in each.counters:
                if (set_, name) in self.counters:
                    raise ValueError(f"duplicate counter set name {set_}")
                self.counters[set_, name] = _nano(each, text)
        offers: dict[str, Offer] = {}
        for each in slices:
            for device in each.devices:
                if device.name in offers:
                    raise ValueError(f"duplicate device name {device.name}")
                offers[device.name] = offer = Offer(self.id, device, device.access or each.access or NodeAccess())
                for set_, name in offer.draws:
                    if (set_, name) not in self.counters:
                        raise ValueError(f"counter {name} not found in counter set {set_}")
        self.offers = tuple(offers.values())


class Supply:
    """All slices by name, and the pools that they make."""

    def __init__(self) -> None:
        self._slices: dict[str, DeviceSlice] = {}
        self._by_pool: dict[PoolId, dict[str, DeviceSlice]] = {}
        self.pools: dict[PoolId, Pool] = {}
        self._at_node: dict[str, set[PoolId]] = {}
        self._wide: set[PoolId] = set()

    def put(self, each: DeviceSlice) -> set[str] | None:
        """The nodes on which something else is offered now; None: any."""
        if self._slices.get(each.name) == each:
            return set()
        touched = self.remove(each.name)
        self._slices[each.name] = each
        pool = (each.driver, each.pool)
        self._by_pool.setdefault(pool, {})[each.name] = each
        return _both(touched, self._renew(pool))

    def remove(self, name: str) -> set[str] | None:
        last = self._slices.pop(name, None)
        if last is None:
            return set()
        pool = (last.driver, last.pool)
        del self._by_pool[pool][name]
        return self._renew(pool)

    @property
    def wide(self) -> bool:
        """Whether some pool can be used from several nodes."""
        return bool(self._wide)

    def where(self, pool: PoolId) -> set[str] | None:
        """The nodes from which alone a pool can be used; None: not only from nodes with a name."""
        return _nodes(self.pools.get(pool))

    def near(self, node: str, selected: Selected) -> Iterator[Pool]:
        """The pools of which a part can be used from a node, in the order in which devices are taken."""
        ids = self._at_node.get(node, set()) | self._wide
        for pool in sorted((self.pools[each] for each in ids), key=lambda each: each.order):
            if pool.usable(node, selected):
                yield pool

    def _renew(self, pool: PoolId) -> set[str] | None:
        touched = _nodes(self._withdraw(pool))
        slices = self._by_pool[pool]
        if not slices:
            del self._by_pool[pool]
            return touched
        newest = max(each.generation for each in slices.values())
        made = self.pools[pool] = Pool(pool, [each for each in slices.values() if each.generation == newest])
        nodes = _nodes(made)
        for node in () if nodes is None else nodes:
            self._at_node.setdefault(node, set()).add(pool)
        if nodes is None:
            self._wide.add(pool)
        return _both(touched, nodes)

    def _withdraw(self, pool: PoolId) -> Pool | None:
        last = self.pools.pop(pool, None)
        self._wide.discard(pool)
        for node in _nodes(last) or ():
            here = self._at_node[node]
            here.discard(pool)
            if not here:
                del self._at_node[node]
        return last


def reaches(access: NodeAccess, node: str, selected: Selected) -> bool:
    if access.node:
        return access.node == node
    return access.all or (access.terms is not None and selected(access.terms))


def _accesses(slices: list[DeviceSlice]) -> Iterator[NodeAccess]:
    for each in slices:
        if each.access is not None and (each.devices or not each.counters):
            yield each.access
        yield from (device.access for device in each.devices if device.access is not None)


def _nodes(pool: Pool | None) -> set[str] | None:
    """The nodes from which alone a pool can be used; None: not only from nodes with a name."""
    if pool is None:
        return set()
    names = {access.node for access in pool.access}
    return None if "" in names else names


def _both(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    return None if one is None or other is None else one | other


def _nano(each: DeviceSlice, text: str) -> int:
    try:
        return nano(text)
    except QuantityError as error:
        raise ValueError(f"ResourceSlice {each.name}: {error}") from None
