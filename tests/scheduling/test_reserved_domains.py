"""Reserved starts of gangs with a required topology."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model.topology import TopologyRule

from ..extent import examples
from .test_reserve import busy, lasting, node_of, plan_of, policy, runs_for, start_of
from .test_topology import IN_A_RACK, Network

pytestmark = pytest.mark.feature("start-reservations")


def world(racks: dict[str, list[int]], **arguments: object) -> Network:
    """Racks of nodes of 4 CPUs, each busy for this number of seconds (0: idle)."""
    made = Network(policy(**arguments))
    for name, ends in racks.items():
        made.rack(name, len(ends))
        for number, seconds in enumerate(ends, 1):
            if seconds:
                busy(made, f"runs-{name}{number}", f"{name}{number}", seconds, cpu=4)
    return made


def gang(made: Network, name: str, members: int, seconds: int = 50, rule: TopologyRule | None = IN_A_RACK) -> None:
    made.gang(name, members, created=made.now, topology=rule)
    made.pods(name, members, gang=name, cpu=4, pod_class=runs_for(seconds), more=lasting(seconds))


def test_gang_starts_when_one_rack_has_room_not_when_enough_nodes_have_it_anywhere() -> None:
    made = world({"a": [100, 400], "b": [100, 300], "c": [100]})
    gang(made, "close", 2)
    made.settle()
    assert start_of(made, "close") == 300
    everywhere = world({"a": [100, 400], "b": [100, 300], "c": [100]})
    gang(everywhere, "close", 2, rule=None)
    everywhere.settle()
    assert start_of(everywhere, "close") == 100


def test_no_start_is_reserved_where_no_rack_is_large_enough() -> None:
    made = world({"a": [100, 100], "b": [100]})
    gang(made, "wide", 3)
    made.settle()
    assert len(plan_of(made)) == 0


def test_members_of_two_classes_share_one_rack() -> None:
    made = world({"a": [100, 500], "b": [200, 200]})
    made.gang("mixed", 2, created=made.now, topology=IN_A_RACK)
    for name, cpu in (("large", 4), ("small", 3)):
        made.pod(name, gang="mixed", cpu=cpu, pod_class=runs_for(50), more=lasting(50))
    made.settle()
    assert start_of(made, "mixed") == 200


def test_room_reserved_for_one_gang_is_not_reserved_for_another() -> None:
    made = world({"a": [100, 100], "b": [300, 300]}, depth=0)
    gang(made, "first", 2, seconds=1000)
    gang(made, "second", 2, seconds=1000)
    made.settle()
    assert [start_of(made, name) for name in ("first", "second")] == [100, 300]


def test_running_members_pin_the_rack_of_a_reserved_start() -> None:
    made = world({"a": [0, 500, 500], "b": [100, 100, 100]})
    made.gang("grows", 3, created=made.now, topology=IN_A_RACK)
    made.pod("there", gang="grows", cpu=4, node="a1", pod_class=runs_for(2000), more=lasting(2000))
    for number in (1, 2):
        made.pod(f"new-{number}", gang="grows", cpu=4, pod_class=runs_for(50), more=lasting(50))
    made.settle()
    assert start_of(made, "grows") == 500


@pytest.mark.thorough
@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_reserved_start_is_the_first_moment_at_which_a_rack_has_enough_idle_nodes(
    ends: list[list[int]], members: int
) -> None:
    made = world({"abcd"[number]: [100 * each for each in rack] for number, rack in enumerate(ends)})
    gang(made, "close", members)
    made.settle()
    possible = [100 * sorted(rack)[members - 1] for rack in ends if len(rack) >= members]
    assert start_of(made, "close") == (min(possible) if possible else None)
    if possible:
        # The gang starts at that time.
        while made.now < 1000 + min(possible):
            made.now += 100
            for name, record in [(each.pod.name, each) for each in made.state.pods.values()]:
                if name.startswith("runs-") and record.pod.run_time.limit <= made.now - 1000:
                    made.gone(name)
            made.settle()
        assert len({node_of(made, name).rstrip("0123456789") for name in made.placed("close")}) == 1
        assert len(made.placed("close")) == members
