"""Random streams of pods and gangs under collecting: what holds after every cycle."""

from __future__ import annotations

import random

import numpy as np
import pytest

from phalanx.model.collection_records import decode_collections, encode_collections
from phalanx.model.decisions import Plan
from phalanx.model.run_time import RunTime
from phalanx.scheduling.collecting.plugin import Collecting
from phalanx.scheduling.start_reservations.plugin import reservation_plan

from .scenario import Scenario

pytestmark = pytest.mark.feature("collecting")

MINUTE = 60
HOUR = 60 * MINUTE

POLICIES = {
    "built-in": None,
    "collect": """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: none, collectAfter: 3m}}]
""",
    "promises": """
actions: "enqueue, allocate, preempt, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: 1, collectAfter: 3m}}]
""",
}


class Life(Scenario):
    """A cluster in which pods and gangs arrive, end, and meet cordons, drains and restarts."""

    def __init__(self, policy: str | None, seed: int) -> None:
        super().__init__(policy)
        self.now = 100 * HOUR
        self.draws = random.Random(seed)
        self.count = 0
        self.sizes = {f"n{number}": self.draws.choice((2, 4)) for number in range(1, 5)}
        for name, gpus in self.sizes.items():
            self.node(name, gpu=gpus)
        self.ends: dict[str, int] = {}
        self.gangs: dict[str, int] = {}
        self.collected = 0

    @property
    def feature(self) -> Collecting:
        feature = self.scheduler.features.get(Collecting)
        assert feature is not None
        return feature

    def arrive(self, *, gangs: bool = True) -> None:
        draws = self.draws
        self.count += 1
        limit = draws.choice((0, 0, 0, 10 * MINUTE))
        more: dict[str, object] = {"run_time": RunTime(limit=limit), "endless": draws.random() < 0.03}
        priority = draws.choice((0, 0, 0, 0, 5))
        if gangs and draws.random() < 0.15:
            size = draws.randint(2, 8)
            self.gangs[f"g{self.count}"] = size
            self.job(
                f"g{self.count}", size, cpu=1, gpu=1, priority=priority, more={"run_time": RunTime(limit=limit)}
            )
        else:
            self.pod(f"s{self.count}", cpu=1, gpu=draws.choice((1, 1, 1, 2)), priority=priority, more=more)

    def disturb(self) -> None:
        """Cordon or open a node, or start another scheduler process with the stored collections."""
        chance, node = self.draws.random(), self.draws.choice(list(self.sizes))
        if chance < 0.05:
            self.node(node, gpu=self.sizes[node], unschedulable=self.draws.random() < 0.5)
        elif chance < 0.08:
            stored = encode_collections(self.feature.export())
            self.restart()
            collections, fault = decode_collections(stored)
            assert not fault
            self.feature.restore(collections)

    def end_pods(self) -> None:
        for name in self.placed():
            record = self.state.pods[name]
            if name not in self.ends and not record.pod.endless:
                self.ends[name] = self.now + self.draws.randint(1, 40) * MINUTE
            if self.ends.get(name, self.now + 1) <= self.now:
                self.gone(name)

    def step(self) -> None:
        self.now += self.draws.randint(5, 120)
        self.scheduler.activate_due(self.now)
        for _ in range(50):
            if self.scheduler.idle:
                break
            due = self.due_starts()
            self.check(self.cycle(), due)
            self.confirm().depart()
        assert self.scheduler.idle
        self.end_pods()

    def due_starts(self) -> set[object]:
        """Return the units whose promised start has come: collected room is open to them."""
        plan = reservation_plan(self.scheduler.features)
        starts = plan.all() if plan is not None else ()
        return {each.key for each in starts if min(each.promised, each.start) <= self.now}

    def check(self, plan: Plan, due: set[object]) -> None:
        """Check what holds after every cycle."""
        assert not plan.failures, plan.failures[0].trace
        collections = list(self.feature.collections.values())
        self.collected += len(collections)
        rows = [row for collection in collections for row in collection.rows.tolist()]
        assert len(rows) == len(set(rows)), "a node is collected twice"
        singles = [bind for bind in plan.binds if bind.gang is None]
        privileged = {
            bind.node for bind in plan.binds if self.state.pods[bind.uid].pod.priority > 0 or bind.uid in due
        }
        for collection in collections:
            assert self.scheduler.queue.waits(collection.key)
            assert collection.counted_at <= self.now
            if collection.since == self.now or collection.expected:
                continue
            for bind in singles:
                place = np.searchsorted(collection.rows, self.state.nodes.row(bind.node))
                row = self.state.nodes.row(bind.node)
                inside = place < len(collection.rows) and collection.rows[place] == row
                if inside and bind.node not in privileged:
                    assert (
                        self.state.nodes.idle[: len(collection.wanted), row] >= collection.wanted[:, place]
                    ).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_random_streams_starve_no_gang_and_collect_no_node_twice(policy: str, seed: int) -> None:
    life = Life(POLICIES[policy], seed)
    for _ in range(120):
        if len(life.waiting()) < 15:
            life.arrive()
        life.disturb()
        life.step()
    # The stream ends, and all nodes open: whatever fits the empty cluster starts.
    for node, gpus in life.sizes.items():
        life.node(node, gpu=gpus)
    life.gone(*[name for name in life.state.pods if life.state.pods[name].pod.endless])
    for _ in range(400):
        if not life.waiting():
            break
        life.step()
    free = sum(life.sizes.values())
    assert not life.waiting("s")
    assert not [gang for gang, size in life.gangs.items() if size <= free and life.waiting(f"{gang}-")]


def test_streams_of_this_file_do_collect() -> None:
    life = Life(POLICIES["collect"], 0)
    for _ in range(150):
        if len(life.waiting()) < 15:
            life.arrive()
        life.step()
    assert life.collected
