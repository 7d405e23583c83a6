"""Promised starts on a clock with fractions, where starts, kills and cycles are late."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from phalanx.model.gang import GangKey
from phalanx.model.node import Node
from phalanx.model.selectors import Taint
from phalanx.testing import amounts

from .live_loop import BASE, LiveJob, LiveLoop

pytestmark = pytest.mark.feature("start-reservations")

POLICY = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: binpack}}]}}]
configurations: [{{name: reserve, arguments: {{depth: {depth}, forecastSeconds: 0}}}}]
"""


def policy(depth: int) -> str:
    return POLICY.format(depth=depth)


class TestSuccessiveReservations:
    @pytest.mark.parametrize("reaction", [0.01, 0.3, 1.7])
    @pytest.mark.parametrize("begin", [0.0, 0.43, 0.97])
    def test_two_reservations_behind_each_other_start_in_their_order(self, reaction: float, begin: float) -> None:
        loop = LiveLoop(policy(1), reaction=lambda: reaction).add_nodes(1).queues(["blue", "green"])
        jobs = [
            loop.submit(begin + number * 1.31, LiveJob(name, 1, 60, queue, runs=20.0))
            for number, (name, queue) in enumerate([("first", "blue"), ("second", "blue"), ("third", "green")])
        ]
        loop.run(300)
        first, second, third = (job.bound for job in jobs)
        assert second < first + 20 + 3 * reaction + 1
        assert third < second + 20 + 3 * reaction + 1

    @pytest.mark.parametrize("nodes", [1, 300])
    def test_due_unit_starts_although_the_next_reservation_begins_at_its_end(self, nodes: int) -> None:
        """Every pod runs to its limit; with 300 nodes and as many ends the time line is a grid."""
        loop = LiveLoop(policy(0), reaction=lambda: 1.4).add_nodes(nodes)
        running = [loop.submit(0.2 + place / 1000, LiveJob(f"r{place}", 1, 600 + place)) for place in range(nodes)]
        second = loop.submit(2.3, LiveJob("second", nodes, 600))
        third = loop.submit(4.1, LiveJob("third", nodes, 600))
        loop.run(8000)
        last = max(job.bound + job.limit for job in running)
        assert second.bound < last + 120
        assert third.bound < second.bound + second.limit + 120


MINUTE = 60
NODE = Node("n1", allocatable=amounts(cpu=64, memory="64Gi", pods=110, gpu=1))


class TestSmallDelays:
    @pytest.mark.parametrize("depth", [0, 1, 2, 3])
    @pytest.mark.parametrize("start_delay", [0.3, 29.6, 31.0, 44.4])
    def test_late_start_of_a_running_gang_delays_the_next_gang_by_no_more(
        self, depth: int, start_delay: float
    ) -> None:
        loop = LiveLoop(policy(depth), start_delay=lambda: start_delay, reaction=lambda: 0.05).add_nodes(8)
        loop.submit(0.2, LiveJob("a", 8, 60 * MINUTE))
        h = loop.submit(1.3, LiveJob("h", 8, 60 * MINUTE))
        younger = [loop.submit(2.4 + place, LiveJob(name, 1, 600 * MINUTE)) for place, name in enumerate("de")]
        loop.run(200 * MINUTE)
        assert h.bound < 62 * MINUTE
        assert all(job.bound > h.bound for job in younger)
        assert all(job.bound < h.bound + 62 * MINUTE for job in younger)

    @pytest.mark.parametrize("depth", [0, 1])
    @pytest.mark.parametrize("late", [0.7, 20.0, 45.0, 170.0])
    def test_late_kill_delays_the_next_gang_by_no_more(self, depth: int, late: float) -> None:
        """Small units that end before the expected start of the late gang do not delay it once more."""
        loop = LiveLoop(policy(depth), kill_delay=lambda: late).add_nodes(8)
        loop.submit(0.2, LiveJob("a", 8, 10 * MINUTE))
        h = loop.submit(1.3, LiveJob("h", 8, 10 * MINUTE, runs=30.0))
        d = loop.submit(2.4, LiveJob("d", 1, 600 * MINUTE))
        # One pod of the first gang is killed in time.
        loop.at(10 * MINUTE + 1, lambda: loop.end_pod("a-0"))
        small = [
            loop.submit(10 * MINUTE + 2.2 + place, LiveJob(f"s{place}", 1, 20 + 10 * place)) for place in range(9)
        ]
        loop.run(30 * MINUTE)
        assert h.bound < 10 * MINUTE + late + 31
        assert d.bound > h.bound
        assert all(job.bound > h.bound for job in small)

    def test_delay_moves_a_whole_chain_by_no_more(self) -> None:
        loop = LiveLoop(policy(0), start_delay=lambda: 37.3, reaction=lambda: 0.2).add_nodes(8)
        gangs = [loop.submit(place, LiveJob(f"g{place}", 8, 10 * MINUTE)) for place in range(12)]
        last = loop.submit(20, LiveJob("last", 1, 600 * MINUTE))
        loop.run(200 * MINUTE)
        for place, gang in enumerate(gangs):
            assert gang.bound < place * (10 * MINUTE + 39) + 1
        assert last.bound > gangs[-1].bound


class TestBackfilledUnits:
    def test_due_gang_uses_idle_nodes_before_a_younger_gang_whose_window_begins_soon(self) -> None:
        """The window of the younger gang was reserved while the older gang had to wait for much longer."""
        loop = LiveLoop(policy(0)).add_nodes(4)
        for place, limit in enumerate([100, 100, 250, 300]):
            loop.submit(0.1 + place / 100, LiveJob(f"r{place}", 1, limit))
        older = loop.submit(1.0, LiveJob("older", 3, 60))
        loop.submit(50.0, LiveJob("high", 2, 1000, priority=10))
        younger = loop.submit(60.0, LiveJob("younger", 2, 500))
        for member in range(2):
            loop.at(280.5, partial(loop.end_pod, f"high-{member}"))
        loop.run(279)
        assert {each.name: each.start - BASE > 300 for each in loop.plan.all()} == {
            "gang ns/older": True,
            "gang ns/younger": False,
        }
        loop.run(1000)
        assert 280 < older.bound < 282
        assert older.bound < younger.bound < 380

    def test_backfilled_unit_that_is_late_by_seconds_starts_before_the_gang_behind_it(self) -> None:
        """The unit was to end in the second in which the older gang starts."""
        loop = LiveLoop(policy(0), kill_delay=lambda: 20.0).add_nodes(2)
        loop.submit(0.1, LiveJob("short", 1, 100))
        loop.submit(0.2, LiveJob("long", 1, 1000))
        gang = loop.submit(1.0, LiveJob("gang", 2, 600))
        backfilled = loop.submit(2.0, LiveJob("backfilled", 1, 870))
        loop.run(3000)
        assert backfilled.bound < 122
        assert gang.bound < 1000 + 20 + 30

    def test_backfilled_unit_that_is_late_delays_no_gang_of_higher_priority(self) -> None:
        loop = LiveLoop(policy(0), kill_delay=lambda: 50.0).add_nodes(2)
        loop.submit(0.1, LiveJob("short", 1, 100))
        loop.submit(0.2, LiveJob("long", 1, 1000, runs=999.0))
        gang = loop.submit(1.0, LiveJob("gang", 2, 600, priority=10))
        backfilled = loop.submit(2.0, LiveJob("backfilled", 1, 870))
        loop.run(3000)
        assert gang.bound < 1001
        assert backfilled.bound > gang.bound


class TestChangedNodes:
    def loop(self, depth: int) -> tuple[LiveLoop, LiveJob]:
        """Return a gang of 9 on 10 nodes that is promised a start at 60 min, behind a gang of 6."""
        loop = LiveLoop(policy(depth)).add_nodes(10)
        loop.submit(0.2, LiveJob("a", 6, 60 * MINUTE))
        return loop, loop.submit(1.3, LiveJob("h", 9, 60 * MINUTE))

    @pytest.mark.parametrize("depth", [0, 1])
    @pytest.mark.parametrize("change", ["cordon", "taint", "labels", "shrink", "remove", "not ready"])
    def test_window_moves_off_a_changed_node_before_its_room_is_given_away(self, depth: int, change: str) -> None:
        loop, h = self.loop(depth)
        loop.run(10 * MINUTE - 1)
        (reservation,) = loop.plan.all()
        busy = {pod.node for _, pod in loop.pods.values()}
        name = next(
            loop.state.nodes.names[row]
            for row in reservation.window.rows.tolist()
            if loop.state.nodes.names[row] not in busy
        )

        def change_node() -> None:
            assert name is not None
            node = loop.nodes[name]
            if change == "cordon":
                loop.cordon(name)
            elif change == "taint":
                loop.set_node(msgspec.structs.replace(node, taints=(Taint("a", "b"),)))
            elif change == "not ready":
                loop.set_node(msgspec.structs.replace(node, taints=(Taint("node.kubernetes.io/not-ready", ""),)))
            elif change == "labels":
                loop.set_node(msgspec.structs.replace(node, labels=()))
            elif change == "shrink":
                loop.set_node(msgspec.structs.replace(node, allocatable=amounts(cpu=64, memory="64Gi", pods=110)))
            else:
                loop.lose_node(name)

        loop.at(10 * MINUTE, change_node)
        long = loop.submit(11 * MINUTE, LiveJob("long", 1, 500 * MINUTE))
        loop.run(700 * MINUTE)
        assert h.bound < 61 * MINUTE
        assert len(set(h.nodes)) == 9
        if change != "labels":
            assert name not in h.nodes
            assert long.bound > h.bound

    @pytest.mark.parametrize(
        ("change", "cause"), [("cordon", "NodeClosed"), ("shrink", "NodeShrunk"), ("remove", "NodeLost")]
    )
    def test_lost_start_names_the_change_of_the_node(self, change: str, cause: str) -> None:
        loop = LiveLoop(policy(1)).add_nodes(2)
        loop.submit(0.2, LiveJob("a", 2, 60 * MINUTE))
        loop.submit(0.3, LiveJob("b", 2, 60 * MINUTE))
        loop.run(MINUTE)
        shrunk = msgspec.structs.replace(loop.nodes["n1"], allocatable=amounts(cpu=64, memory="64Gi", pods=110))
        changes: dict[str, Callable[[], object]] = {
            "cordon": lambda: loop.cordon("n1"),
            "shrink": lambda: loop.set_node(shrunk),
            "remove": lambda: loop.lose_node("n1"),
        }
        loop.at(2 * MINUTE, changes[change])
        loop.run(3 * MINUTE)
        slip = loop.plan.starts.lost((GangKey("ns", "b"),))
        assert slip is not None
        assert (slip.when, slip.cause, slip.start) == (BASE + 2 * MINUTE, cause, 0)
        # The start is promised again as soon as the node is back.
        loop.at(4 * MINUTE, lambda: loop.set_node(NODE))
        loop.run(5 * MINUTE)
        assert [each.name for each in loop.plan.all()] == ["gang ns/b"]


class TestPriorities:
    @pytest.mark.parametrize("depth", [0, 1, 2, 3])
    def test_gang_of_higher_priority_starts_before_a_promised_gang(self, depth: int) -> None:
        loop = LiveLoop(policy(depth)).add_nodes(8)
        loop.submit(0.2, LiveJob("a", 8, 60 * MINUTE))
        low = loop.submit(1.3, LiveJob("low", 8, 60 * MINUTE, priority=50))
        high = loop.submit(10 * MINUTE, LiveJob("high", 8, 60 * MINUTE, priority=90))
        loop.run(200 * MINUTE)
        assert high.promised <= 60.5 * MINUTE
        assert high.bound < 61 * MINUTE
        assert high.bound < low.bound < 122 * MINUTE

    @pytest.mark.parametrize("depth", [0, 1])
    def test_promise_that_fits_beside_a_higher_priority_stays(self, depth: int) -> None:
        loop = LiveLoop(policy(depth)).add_nodes(8)
        loop.submit(0.2, LiveJob("a", 8, 60 * MINUTE))
        low = loop.submit(1.3, LiveJob("low", 4, 60 * MINUTE, priority=50))
        high = loop.submit(10 * MINUTE, LiveJob("high", 4, 60 * MINUTE, priority=90))
        loop.run(20 * MINUTE)
        assert {each.name: each.start - BASE for each in loop.plan.all()} == {
            "gang ns/low": low.promised,
            "gang ns/high": low.promised,
        }
        loop.run(200 * MINUTE)
        assert low.bound < 61 * MINUTE
        assert high.bound < 61 * MINUTE

    def test_gang_of_lower_priority_gets_no_start_beyond_the_depth(self) -> None:
        loop = LiveLoop(policy(1)).add_nodes(8)
        loop.submit(0.2, LiveJob("a", 8, 60 * MINUTE))
        loop.submit(1.3, LiveJob("high", 8, 60 * MINUTE, priority=90))
        loop.submit(2.3, LiveJob("low", 8, 60 * MINUTE, priority=50))
        loop.run(MINUTE)
        assert [each.name for each in loop.plan.all()] == ["gang ns/high"]
