"""Device selection for claims: the rules one by one, and the search against an exhaustive one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.dra import solver
from phalanx.model.devices.claims import (
    AllocatedDevice,
    ClaimResult,
    ClaimSpec,
    Device,
    DeviceAsk,
    DeviceConstraint,
    DeviceToleration,
)
from tests.cluster.dra.fleet import DRIVER, NODE, Node, ask, claim, device, pool, request
from tests.extent import examples

NUMA = f"{DRIVER}/numa"


def test_devices_are_allocated_in_the_order_of_their_publication() -> None:
    node = Node(pool(device("b"), device("a"), name="p2"), pool(device("c"), name="p1"))
    assert node.copies(claim(request(ask()))) == [[["c"]], [["b"]], [["a"]]]


def test_device_in_use_is_not_allocated_again() -> None:
    node = Node(pool(device("a"), device("b")), used=["a"])
    assert node.copies(claim(request(ask()))) == [[["b"]]]


def test_pods_are_allocated_one_after_the_other() -> None:
    node = Node(pool(*(device(f"d{number}") for number in range(5))))
    assert node.copies(claim(request(ask(count=2)))) == [[["d0", "d1"]], [["d2", "d3"]]]


def test_claims_of_one_pod_share_no_device() -> None:
    node = Node(pool(device("a"), device("b")))
    one = claim(request(ask()))
    assert node.first(one, one) == [["a"], ["b"]]
    assert node.first(one, one, one) is None


def test_search_backtracks_where_no_device_is_left_for_the_next_request() -> None:
    node = Node(pool(device("a", model="big"), device("b", model="small")))
    wanted = claim(request(ask("any")), request(ask("big", device_class="big")))
    assert node.first(wanted) == [["b", "a"]]


def test_first_feasible_alternative_is_chosen() -> None:
    wanted = claim(request(ask("one", device_class="big"), ask("two", count=2), name="gpu"))
    assert Node(pool(device("a", model="small"), device("b", model="big"))).first(wanted) == [["b"]]
    assert Node(pool(device("a", model="small"), device("b", model="small"))).first(wanted) == [["a", "b"]]


def test_mode_all_allocates_all_matching_devices_and_at_least_one() -> None:
    every = claim(request(ask(count=0, device_class="big")))
    two, small = [device("a", model="big"), device("b", model="big")], device("c", model="small")
    assert Node(pool(*two, small)).first(every) == [["a", "b"]]
    assert Node(pool(*two, small), used=["b"]).first(every) is None
    assert Node(pool(small)).first(every) is None


def test_mode_all_is_infeasible_while_a_pool_is_incomplete() -> None:
    node = Node(pool(device("a", model="big")), pool(device("b", model="big"), name="p2", parts=2))
    assert node.first(claim(request(ask(count=0, device_class="big")))) is None
    assert node.first(claim(request(ask(device_class="big")))) == [["a"]]


def test_match_constraint_requires_equal_attributes() -> None:
    node = Node(pool(device("a", numa=0), device("b", numa=1), device("c", numa=1), device("d")))
    same = claim(request(ask(count=2)), constraints=(DeviceConstraint(match=NUMA),))
    assert node.copies(same) == [[["b", "c"]]]


def test_distinct_constraint_requires_different_attributes_in_every_pair() -> None:
    node = Node(pool(device("a", numa=0), device("b", numa=1), device("c", numa=0), device("d", numa=2)))
    distinct = claim(request(ask(count=3)), constraints=(DeviceConstraint(distinct=NUMA),))
    assert node.first(distinct) == [["a", "b", "d"]]


def test_constraint_applies_to_the_requests_that_it_names() -> None:
    node = Node(pool(device("a", numa=0), device("b", numa=1), device("c", numa=1)))
    wanted = claim(
        request(ask("x")), request(ask("y")), request(ask("z")), constraints=(DeviceConstraint(("y", "z"), NUMA),)
    )
    assert node.first(wanted) == [["a", "b", "c"]]


def test_integer_one_does_not_match_true() -> None:
    """A number and a boolean are different attributes."""
    node = Node(pool(device("a", numa=1), device("b", numa=True)))
    assert node.first(claim(request(ask(count=2)), constraints=(DeviceConstraint(match=NUMA),))) is None


def test_admin_access_uses_devices_in_use() -> None:
    node = Node(pool(device("a")), used=["a"])
    look = claim(request(ask(admin=True)))
    found = node.inquiry(look)
    answer = found.answer(found.laid(0).shelf)
    assert answer.endless
    assert node.first(look) == [["a"]]
    assert node.first(claim(request(ask("one", admin=True)), request(ask("two", admin=True)))) is None


def test_tainted_device_requires_a_toleration() -> None:
    node = Node(pool(device("a", taint="broken"), device("b")))
    tolerant = ask(tolerations=(DeviceToleration("broken", "Exists"),))
    assert node.copies(claim(request(ask()))) == [[["b"]]]
    assert node.copies(claim(request(tolerant))) == [[["a"]], [["b"]]]
    assert node.first(claim(request(ask(count=0)))) is None


def test_partitions_of_a_device_consume_shared_counters() -> None:
    whole = device("whole", counters=[("card", "memory", "80Gi")])
    halves = [device(name, counters=[("card", "memory", "40Gi")]) for name in ("half-0", "half-1", "half-2")]
    node = Node(pool(*halves, whole, parts=2, part=1), pool(parts=2, part=2, counters=[("card", "memory", "80Gi")]))
    one = claim(request(ask()))
    assert node.copies(one) == [[["half-0"]], [["half-1"]]]
    node.occupy("half-2")
    assert node.copies(one) == [[["half-0"]]]
    node.occupy("half-1")
    assert node.copies(one) == []


def test_shared_device_is_allocated_until_its_capacity_is_used_up() -> None:
    node = Node(pool(device("nic", memory="10Gi", shareable=True)))
    part = claim(request(ask(capacity=(("memory", "4Gi"),))))
    assert len(node.copies(part)) == 2
    shared = AllocatedDevice((DRIVER, NODE, "nic"), shared=True, consumed=(("memory", "3Gi"),))
    node.use.book(ClaimResult((shared,)), 1)
    assert len(node.copies(part)) == 1
    assert node.first(claim(request(ask()))) is None  # a claim without a capacity request consumes all of it
    assert node.first(claim(request(ask(capacity=(("bandwidth", "1"),))))) is None


def test_claim_gets_at_most_as_many_devices_as_a_result_can_hold() -> None:
    node = Node(pool(*(device(f"d{number:02d}") for number in range(40))))
    assert node.first(claim(request(ask(count=32)))) is not None
    assert node.first(claim(request(ask(count=33)))) is None
    smaller = claim(request(ask("many", count=33), ask("few", count=2), name="gpu"))
    assert node.first(smaller) == [["d00", "d01"]]


def test_search_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_TRIES", 100)
    hopeless = claim(request(ask(count=8)), request(ask("big", device_class="big")))
    node = Node(pool(*(device(f"d{number}", serial=number, model="small") for number in range(20))))
    inquiry = node.inquiry(
        claim(*hopeless.requests, constraints=(DeviceConstraint(("gpu",), distinct=f"{DRIVER}/serial"),))
    )
    assert inquiry.answer(inquiry.laid(0).shelf).hard


# against an exhaustive search

ASKS = st.builds(
    lambda count, device_class, tolerant, admin: ask(
        "a",
        count=count,
        device_class=device_class,
        admin=admin,
        tolerations=(DeviceToleration(operator="Exists"),) if tolerant else (),
    ),
    st.sampled_from([1, 1, 2, 0]),
    st.sampled_from(["gpu", "gpu", "big"]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)
DEVICES = st.tuples(
    st.sampled_from(["big", "small"]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from(["", "", "", "broken"]),
    st.sampled_from([0, 0, 1, 2]),
)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Device], set[str], int, list[ClaimSpec]]:
    devices = []
    for number, (model, numa, taint, drawn) in enumerate(draw(st.lists(DEVICES, max_size=6))):
        attributes: dict[str, Any] = {"model": model} | ({} if numa is None else {"numa": numa})
        counters = [("set", "slots", str(drawn))] if drawn else []
        devices.append(device(f"d{number}", taint=taint, counters=counters, **attributes))
    used = {each.name for each in devices if draw(st.sampled_from([False, False, True]))}
    specs = []
    for _ in range(draw(st.integers(1, 2))):
        requests = []
        for number in range(draw(st.integers(1, 2))):
            asks = draw(st.lists(ASKS, min_size=1, max_size=2))
            if len(asks) > 1:  # alternatives never have admin access
                asks = [DeviceAsk(f"s{at}", each.device_class, count=each.count) for at, each in enumerate(asks)]
            requests.append(request(*asks, name=f"r{number}"))
        concerned = draw(st.sampled_from([(), ("r0",)]))
        constraint = draw(st.sampled_from([None, "match", "distinct"]))
        constraints = (DeviceConstraint(concerned, **{constraint: NUMA}),) if constraint else ()
        specs.append(claim(*requests, constraints=constraints))
    return devices, used, draw(st.integers(0, 4)), specs


@pytest.mark.thorough
@settings(max_examples=examples(400), deadline=None)
@given(fleets())
def test_search_returns_the_first_result_of_an_exhaustive_search(
    fleet: tuple[list[Device], set[str], int, list[ClaimSpec]],
) -> None:
    devices, used, slots, specs = fleet
    node = Node(
        pool(*devices, parts=2, part=1),
        pool(parts=2, part=2, counters=[("set", "slots", str(slots))]),
        used=sorted(used),
    )
    assert node.first(*specs) == next(everything(devices, used, slots, specs), None)


Choice = tuple[int, DeviceAsk, tuple[Device, ...]]


def everything(
    devices: list[Device], used: set[str], slots: int, specs: list[ClaimSpec]
) -> Iterator[list[list[str]]]:
    """Yield all results, in the order of requests, alternatives and devices."""
    slots -= sum(_drawn(each) for each in devices if each.name in used)
    wanted = [(number, request) for number, spec in enumerate(specs) for request in spec.requests]
    options = [
        [(number, alternative, chosen) for alternative in request.asks for chosen in _sets(devices, alternative)]
        for number, request in wanted
    ]
    for choices in itertools.product(*options):
        if _holds(list(choices), [request.name for _, request in wanted], used, slots, specs):
            yield [
                [each.name for number, _, chosen in choices if number == claim_number for each in chosen]
                for claim_number in range(len(specs))
            ]


def _sets(devices: list[Device], alternative: DeviceAsk) -> Iterator[tuple[Device, ...]]:
    fitting = [each for each in devices if alternative.device_class == "gpu" or _value(each, "model") == "big"]
    if alternative.count:
        yield from itertools.combinations(fitting, alternative.count)
    elif fitting:
        yield tuple(fitting)


def _holds(choices: list[Choice], names: list[str], used: set[str], slots: int, specs: list[ClaimSpec]) -> bool:
    taken = [each for _, alternative, chosen in choices if not alternative.admin for each in chosen]
    if len({each.name for each in taken}) < len(taken) or used & {each.name for each in taken}:
        return False
    if any(_drawn(each) for each in taken) and sum(map(_drawn, taken)) > slots:
        return False
    if any(each.taints and not alternative.tolerations for _, alternative, chosen in choices for each in chosen):
        return False
    for number, spec in enumerate(specs):
        mine = [
            (name, alternative, each)
            for name, (owner, alternative, chosen) in zip(names, choices, strict=True)
            if owner == number
            for each in chosen
        ]
        administered = [each.name for _, alternative, each in mine if alternative.admin]
        if len(set(administered)) < len(administered):
            return False
        for constraint in spec.constraints:
            values = [
                _value(each, "numa")
                for name, _, each in mine
                if not constraint.requests or name in constraint.requests
            ]
            if None in values:
                return False
            if constraint.match and len(set(values)) > 1:
                return False
            if constraint.distinct and len(set(values)) < len(values):
                return False
    return True


def _drawn(each: Device) -> int:
    return sum(int(amount) for _, _, amount in each.counters)


def _value(each: Device, name: str) -> object:
    return next((attribute.value for key, attribute in each.attributes if key == name), None)
