"""Pools from resource slices: generations, completeness, and the devices usable by each node."""

from __future__ import annotations

from phalanx.cluster.dra.supply import Supply
from phalanx.model.devices.claims import Device, NodeAccess
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from tests.cluster.dra.fleet import DRIVER, Node, ask, claim, device, pool, request

ONE = claim(request(ask()))
RACK = NodeAccess(terms=(NodeSelectorTerm((Requirement("rack", "In", ("a",)),)),))


def names(supply: Supply, node: str, *, selected: bool = False) -> list[str]:
    """Return the pools usable by a node; `selected`: it satisfies every selector."""
    return [each.id[1] for each in supply.near(node, lambda terms: selected)]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    node = Node(pool(device("old")), pool(device("new"), generation=2))
    assert node.copies(ONE) == [[["new"]]]
    node.supply.remove("n1-2-0")
    assert node.copies(ONE) == [[["old"]]]


def test_incomplete_pool_provides_no_device() -> None:
    node = Node(pool(device("a"), parts=2, part=1))
    assert node.copies(ONE) == []
    node.supply.put(pool(device("b"), parts=2, part=2))
    assert node.copies(ONE) == [[["a"]], [["b"]]]


def test_incomplete_newer_generation_hides_the_old_one() -> None:
    """The driver is about to replace it."""
    node = Node(pool(device("a")), pool(device("a"), generation=2, parts=2))
    assert node.copies(ONE) == []


def test_two_devices_of_one_name_make_a_pool_unusable() -> None:
    node = Node(pool(device("a"), parts=2, part=1), pool(device("a"), parts=2, part=2))
    assert node.supply.pools[DRIVER, "n1"].fault == "duplicate device name a"
    assert node.copies(ONE) == []


def test_missing_counter_makes_a_pool_unusable() -> None:
    node = Node(pool(device("a", counters=[("card", "memory", "1Gi")])))
    assert node.supply.pools[DRIVER, "n1"].fault == "counter memory not found in counter set card"
    assert node.copies(ONE) == []


def test_pools_are_usable_by_one_node_by_selected_nodes_or_by_all() -> None:
    supply = Supply()
    supply.put(pool(device("a"), name="local"))
    supply.put(pool(device("a"), name="rack", access=RACK))
    supply.put(pool(device("a"), name="everywhere", access=NodeAccess(all=True)))
    assert names(supply, "n1") == ["everywhere", "local"]
    assert names(supply, "n1", selected=True) == ["everywhere", "local", "rack"]
    assert names(supply, "n2") == ["everywhere"]
    assert supply.wide


def test_each_device_can_state_the_nodes_that_can_use_it() -> None:
    here, there = (Device(name, access=NodeAccess(node=name)) for name in ("n1", "n2"))
    each = pool(here, there, name="fabric")
    node = Node(type(each)(each.name, each.driver, each.pool, 1, 1, None, each.devices))
    assert node.copies(ONE) == [[["n1"]]]
    assert names(node.supply, "n2") == ["fabric"]
    assert names(node.supply, "n3") == []


def test_nodes_affected_by_a_change_are_returned() -> None:
    supply = Supply()
    assert supply.put(pool(device("a"))) == {"n1"}
    assert supply.put(pool(device("a"))) == set()
    assert supply.put(pool(device("a"), name="rack", access=RACK)) is None
    assert supply.remove("rack-1-0") is None
    assert supply.remove("n1-1-0") == {"n1"}
    assert supply.remove("n1-1-0") == set()
    assert not supply.pools


def test_devices_that_need_preparation_are_allocated_last() -> None:
    slow = pool(Device("slow", conditions=("Attached",)), name="a")
    node = Node(slow, pool(device("fast"), name="z"))
    assert node.copies(ONE) == [[["fast"]], [["slow"]]]
