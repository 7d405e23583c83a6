"""Promised starts on a clock with fractions, where starts, kills and cycles are late."""

from __future__ import annotations

import pytest

from .live_loop import LiveJob, LiveLoop

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
