"""Victims on nodes with reserved windows: reserved amounts stay reserved, every other amount can be preempted."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from phalanx.model.advance_reservation import ReservedNodes
from phalanx.model.events import MaintenanceWindowUpdated
from phalanx.model.maintenance import MaintenanceWindow
from phalanx.model.pod import ReservationUse
from phalanx.scheduling.policy.loader import DEFAULT_POLICY
from phalanx.scheduling.reservations.timeline import FOREVER

from ..extent import examples
from .scenario import Scenario
from .test_advance import lasting, plan, reserve
from .test_reclaim import CAPACITY

pytestmark = pytest.mark.feature("start-reservations")

PREEMPTING = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
RESERVING = PREEMPTING.replace("preempt,", "reserve, preempt,") + (
    "configurations: [{name: reserve, arguments: {startDelaySeconds: 0}}]"
)
SOON = 600


def beside(reserved: int, cpu: int, limit: int = 0, *, policy: str = PREEMPTING) -> Scenario:
    """A node with a pod of low priority that runs for `limit` seconds (0: for ever); `reserved` CPUs from 600 s."""
    scenario = Scenario(policy).node("n1", cpu=cpu)
    lasting(scenario, "low", limit, node="n1", priority=1).run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, cpu=reserved, count=1)
    return scenario.run()


def test_pod_is_preempted_on_a_node_with_an_advance_reservation_beside_it() -> None:
    scenario = beside(1, 2)
    scenario.pod("now", cpu=1, priority=1000).settle()
    assert scenario.evicted == ["low"]
    assert scenario.where("now") == "n1"
    assert plan(scenario).grants["course"].window is not None


def test_pod_is_not_preempted_for_room_that_an_advance_reservation_needs() -> None:
    """Without `low`, the one CPU beside it is still reserved."""
    scenario = beside(2, 3, limit=300)
    scenario.pod("mid", cpu=1, priority=50, node="n1").pod("now", cpu=1, priority=40).settle()
    assert scenario.evicted == []


@pytest.mark.parametrize(("seconds", "evicted"), [(400, ["low"]), (900, []), (0, [])])
def test_pod_preempts_only_if_it_ends_before_the_reserved_start(seconds: int, evicted: list[str]) -> None:
    scenario = beside(2, 2, limit=500)
    lasting(scenario, "now", seconds, cpu=2, priority=1000)
    assert scenario.settle().evicted == evicted


def test_victim_that_ends_by_itself_frees_its_room_once() -> None:
    """From 600 s on 2 CPUs are reserved and `mid` keeps 1, whether or not `low` ends before."""
    scenario = Scenario(PREEMPTING).node("n1", cpu=4)
    lasting(scenario, "low", 500, node="n1", priority=1, cpu=2)
    scenario.pod("mid", cpu=2, priority=2000, node="n1").run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, cpu=2, count=1).run()
    assert scenario.pod("now", cpu=1, priority=1000).settle().evicted == []
    lasting(scenario, "brief", 400, priority=1000).settle()
    assert scenario.evicted == ["low"]


def test_gang_is_placed_whole_beside_advance_reservations_after_evictions() -> None:
    scenario = Scenario(PREEMPTING).nodes(2, cpu=2)
    for node in ("n1", "n2"):
        scenario.pod(f"low-{node}", cpu=1, priority=1, node=node)
    reserve(scenario.run(), "course", start=SOON, end=SOON + 3600, cpu=1, count=2).run()
    scenario.job("now", 2, cpu=1, priority=1000).settle()
    assert sorted(scenario.evicted) == ["low-n1", "low-n2"]
    assert len(scenario.placed("now")) == 2


def test_gang_evicts_no_pod_where_reserved_room_leaves_one_member_out() -> None:
    scenario = Scenario(PREEMPTING).node("n1", cpu=2).node("n2", cpu=1)
    scenario.pod("low-n1", cpu=1, priority=1, node="n1").run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, nodes=ReservedNodes(("n2",))).run()
    reserve(scenario, "lesson", start=SOON, end=SOON + 3600, cpu=1, count=1).run()
    assert scenario.job("now", 2, cpu=1, priority=1000).settle().evicted == []


def test_queue_reclaims_its_share_on_a_node_with_an_advance_reservation() -> None:
    scenario = Scenario(CAPACITY).node("n1", cpu=3).queue("a", deserved={"cpu": 1}).queue("b", deserved={"cpu": 1})
    scenario.pods("b", 2, cpu=1, queue="b", node="n1", priority=9).run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, cpu=1, count=1).run()
    scenario.pod("a", cpu=1, queue="a").settle()
    assert len(scenario.evicted) == 1
    assert scenario.where("a") == "n1"


def test_quota_gets_its_min_back_on_a_node_with_an_advance_reservation() -> None:
    scenario = Scenario(DEFAULT_POLICY).node("n1", cpu=3)
    scenario.elastic_quota("a", {"cpu": 1}, {"cpu": 3}).elastic_quota("b", {"cpu": 1}, {"cpu": 3})
    scenario.within("b").pods("b", 2, cpu=1, node="n1", priority=9).run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, cpu=1, count=1).run()
    scenario.within("a").pod("a", cpu=1).settle()
    assert len(scenario.evicted) == 1
    assert scenario.where("a") == "n1"


def test_pod_evicts_no_pod_where_its_queue_pays_for_reserved_room() -> None:
    """The queue may use 2 CPUs, and 1 of them is charged for the reservation from 600 s on."""
    policy = PREEMPTING.replace("{name: binpack}", "{name: binpack}, {name: capacity}")
    scenario = Scenario(policy).node("n1", cpu=4).queue("q", capability={"cpu": 2})
    scenario.pod("high", cpu=1, priority=2000, queue="q", node="n1")
    lasting(scenario, "low", 300, queue="q", priority=1, node="n1").run()
    reserve(scenario, "course", start=SOON, end=SOON + 3600, cpu=1, count=1, queue="q").run()
    assert plan(scenario).grants["course"].window is not None
    assert scenario.pod("now", cpu=1, priority=1000, queue="q").settle().evicted == []
    lasting(scenario, "brief", 200, queue="q", priority=1000).settle()
    assert scenario.evicted == ["low"]
    assert scenario.where("brief") == "n1"


def test_user_of_an_advance_reservation_preempts_on_its_nodes() -> None:
    """The reservation ignores running pods: its users make room for themselves by priority."""
    scenario = Scenario(PREEMPTING).node("n1", cpu=2)
    scenario.pods("low", 2, cpu=1, priority=1, node="n1").run()
    reserve(scenario, "course", end=3600, cpu=1, count=1, ignore_running=True).run()
    lasting(scenario, "user", 0, use=ReservationUse(("course",), True), priority=1000).settle()
    assert len(scenario.evicted) == 1
    assert scenario.where("user") == "n1"


class TestStartReservations:
    def waiting(self, priority: int) -> Scenario:
        """`big` has a promised start on the whole node when `long` ends."""
        scenario = Scenario(RESERVING).node("n1", cpu=2)
        lasting(scenario, "long", 600, node="n1", priority=3000)
        lasting(scenario, "low", 900, node="n1", priority=1).run()
        lasting(scenario, "big", 600, cpu=2, priority=priority, more={"preempts": False})
        return scenario.run()

    def test_pod_preempts_beside_a_promised_start_of_higher_priority_if_it_ends_before(self) -> None:
        scenario = self.waiting(2000)
        lasting(scenario, "brief", 700, priority=1000).settle()
        assert scenario.evicted == ["low"]
        assert scenario.where("brief") == "n1"

    def test_pod_does_not_preempt_into_a_promised_start_of_higher_priority(self) -> None:
        scenario = self.waiting(2000)
        lasting(scenario, "longer", 1000, priority=1000).settle()
        assert scenario.evicted == []

    def test_pod_preempts_where_a_unit_of_lower_priority_has_a_promised_start(self) -> None:
        scenario = self.waiting(500)
        lasting(scenario, "longer", 1000, priority=1000).settle()
        assert scenario.evicted == ["low"]
        assert scenario.where("longer") == "n1"


@pytest.mark.feature("maintenance")
class TestMaintenance:
    def closing(self) -> Scenario:
        scenario = Scenario(PREEMPTING).node("n1", cpu=2)
        window = MaintenanceWindow("kernel", "uid", ("n1",), start=1000 + SOON, end=1000 + SOON + 3600)
        scenario.observe("window kernel", MaintenanceWindowUpdated(window))
        lasting(scenario, "low", 0, node="n1", priority=1, cpu=2)
        return scenario.run()

    @pytest.mark.parametrize(("seconds", "evicted"), [(400, ["low"]), (900, []), (0, [])])
    def test_pod_preempts_on_a_node_before_its_maintenance_only_if_it_ends_before(
        self, seconds: int, evicted: list[str]
    ) -> None:
        scenario = self.closing()
        lasting(scenario, "now", seconds, priority=1000)
        assert scenario.settle().evicted == evicted

    def test_pod_preempts_on_a_node_with_maintenance_and_a_later_reservation(self) -> None:
        scenario = self.closing()
        reserve(scenario, "course", start=6000, end=9000, cpu=2, count=1, ignore_running=True).run()
        lasting(scenario, "now", 400, priority=1000).settle()
        assert scenario.evicted == ["low"]


class SlotWorld:
    """Up to three nodes with running pods and granted reservations, and one pod that preempts."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.cpus = {f"n{number}": draw.randint(2, 4) for number in range(draw.choice([1, 1, 2, 3]))}
        self.scenario = scenario = Scenario(PREEMPTING)
        for name, cpu in self.cpus.items():
            scenario.node(name, cpu=cpu)
        self.running: list[tuple[str, str, int, int, int]] = []
        for node, cpu in self.cpus.items():
            free = cpu - draw.choice([0, 0, 1])
            while free > 0:
                name, size = f"p{len(self.running)}", draw.randint(1, free)
                pod = (name, node, size, draw.choice([0, 300, 900, 2500]), draw.choice([1, 5, 2000]))
                self.running.append(pod)
                lasting(scenario, name, pod[3], node=node, cpu=size, priority=pod[4])
                free -= size
        scenario.run()
        for number in range(draw.randint(1, 2)):
            start = draw.choice([100, 600, 1200])
            end, size = start + draw.choice([200, 3000]), draw.randint(1, 3)
            reserve(scenario, f"r{number}", start=start, end=end, cpu=size, count=1)
        scenario.run()
        self.size, self.limit = draw.randint(1, 4), draw.choice([0, 150, 700, 1500])
        lasting(scenario, "now", self.limit, cpu=self.size, priority=1000)

    def kept(self, node: str, moment: int) -> int:
        """Return the CPUs that granted reservations hold on a node at a moment."""
        held = 0
        for grant in plan(self.scenario).grants.values():
            if grant.window is not None and grant.window.start <= moment < grant.window.end:
                held += grant.nodes[node].amounts["cpu"] // 1000 if node in grant.nodes else 0
        return held

    def fits_without(self, node: str, evicted: Collection[str]) -> bool:
        """Return whether the pod fits from now until its end, moment by moment."""
        now = self.scenario.now
        ends = {name: now + limit if limit else FOREVER for name, _, _, limit, _ in self.running}
        windows = [grant.window for grant in plan(self.scenario).grants.values() if grant.window is not None]
        last = now + self.limit + 30 if self.limit else FOREVER
        moments = [now, *ends.values(), *(edge for each in windows for edge in (each.start, each.end))]
        for moment in [each for each in moments if now <= each < last]:
            used = sum(
                size
                for name, where, size, _, _ in self.running
                if where == node and name not in evicted and moment < ends[name]
            )
            if used + self.kept(node, moment) + self.size > self.cpus[node]:
                return False
        return True

    def possible(self) -> bool:
        """Return whether the pod fits without all pods of lower priority on some node."""
        lower = {name for name, _, _, _, priority in self.running if priority < 1000}
        return any(self.fits_without(node, lower) for node in self.cpus)


def test_pod_preempts_in_random_worlds_if_and_only_if_it_fits_in_every_slot() -> None:
    evicting = refused = 0
    for seed in range(examples(300)):
        world = SlotWorld(seed)
        possible = world.possible()
        plan_of_cycle = world.scenario.cycle()
        evicted = [each.name for each in plan_of_cycle.evictions]
        assert bool(plan_of_cycle.binds or evicted) == possible, f"SlotWorld({seed})"
        if evicted:
            (node,) = {each.node for each in plan_of_cycle.evictions}
            assert world.fits_without(node, evicted), f"SlotWorld({seed})"
            assert not any(world.fits_without(node, set(evicted) - {each}) for each in evicted), (
                f"SlotWorld({seed})"
            )
            world.scenario.settle()
            assert world.scenario.where("now") == node, f"SlotWorld({seed})"
        evicting += bool(evicted)
        refused += not possible
    assert min(evicting, refused) >= 10
