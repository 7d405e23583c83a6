"""Preemption by drf: between gangs of one queue and priority the smaller preempts the larger, and never back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from phalanx.cluster.accounts import add_amounts
from phalanx.model.pod import PodPhase
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption, gang_holdings
from phalanx.scheduling.preemption.rules.rule import ReclaimRule

from ..extent import examples
from .desk import policy
from .reclaim_trial import takes
from .scenario import Scenario, key

LEVELS = policy("name: drf, enablePreemptable: true").replace("backfill", "backfill, preempt")


def world(**gangs: int) -> Scenario:
    """Twenty CPUs with this number of one-CPU pods of each gang; the remainder is idle."""
    scenario = Scenario(LEVELS).node("n", cpu=20, gpu=20, pods=1000)
    for name, members in gangs.items():
        scenario.job(name, members, 1, node="n", cpu=1)
    return scenario


def drf(scenario: Scenario, wanted: dict[str, int], *gangs: str) -> DrfPreemption:
    records = [scenario.state.gangs[key(name)] for name in gangs]
    return DrfPreemption(scenario.scheduler.new_session(scenario.now), records, wanted)


class TestShares:
    def test_smaller_gang_preempts_while_its_share_stays_no_larger(self) -> None:
        scenario = world(small=2, large=8)
        large = scenario.state.gangs[key("large")]
        for wanted, taken, allowed in [(1, 0, True), (5, 0, True), (6, 0, False), (3, 2, True), (3, 3, False)]:
            share = drf(scenario, {"cpu": wanted * 1000}, "small")
            assert share.allows_victim(large, {"cpu": 1000}, {"cpu": taken * 1000}) is allowed

    def test_single_pods_have_no_share(self) -> None:
        scenario = world(large=8)
        share = drf(scenario, {"cpu": 3000})
        assert share.allows_victim(scenario.state.gangs[key("large")], {"cpu": 1000})
        assert not share.allows_victim(None, {"cpu": 1000})

    def test_pod_that_does_not_change_a_share_is_not_preempted_between_equals(self) -> None:
        scenario = world(one=4, other=4)
        for name in ("one", "other"):
            scenario.pod(f"{name}-gpu", gang=name, node="n", gpu=1)
        share = drf(scenario, {"gpu": 1000}, "one")
        assert not share.allows_victim(scenario.state.gangs[key("other")], {"nvidia.com/gpu": 1})


class TestReclaimRules:
    def word(self, scenario: Scenario, pod: str) -> ReclaimRule | str:
        return takes(scenario.pod("more", cpu=1, gang="small"), "more").word(pod)

    def levels(self, scenario: Scenario, pod: str) -> bool:
        word = self.word(scenario, pod)
        return isinstance(word, ReclaimRule) and word.drf

    def test_drf_preempts_within_a_queue_if_the_policy_says_so(self) -> None:
        assert self.levels(world(small=2, large=8), "large-0")
        scenario = Scenario(policy("name: drf")).node("n").job("small", 1, node="n", cpu=1)
        assert not self.levels(scenario.job("large", 2, node="n", cpu=1), "large-0")

    def test_drf_preempts_neither_between_queues_nor_within_a_quota(self) -> None:
        scenario = world(small=2, large=8).queue("q").pod("far", queue="q", node="n", cpu=1)
        assert not self.levels(scenario, "far")
        scenario = world(small=2, large=8).elastic_quota("ns", {"cpu": 1}, {})
        assert not self.levels(scenario, "large-0")


class TestEvictions:
    """End to end: eight CPUs, all held by one gang with a minimum of one member."""

    def late(self, members: int, text: str = LEVELS, priority: int = 0) -> Scenario:
        scenario = Scenario(text).node("n", cpu=8).job("large", 8, 1, cpu=1).run()
        return scenario.job("small", members, cpu=1, priority=priority).run()

    @pytest.mark.parametrize(("members", "gets"), [(3, 3), (4, 4), (5, 0)])
    def test_gang_gets_its_minimum_from_a_gang_whose_share_stays_as_large(self, members: int, gets: int) -> None:
        scenario = self.late(members)
        assert len(scenario.placed("small")) == gets
        assert len(scenario.evicted) == gets

    def test_eviction_message_of_drf_names_no_priority(self) -> None:
        scenario = self.late(3)
        (message,) = {eviction.message for plan in scenario.plans for eviction in plan.evictions}
        assert message == "both have priority 0, and the preemptor has a smaller share"

    def test_without_the_switch_gangs_of_equal_priority_do_not_preempt_each_other(self) -> None:
        text = LEVELS.replace(", enablePreemptable: true", "")
        assert self.late(3, text).evicted == []
        assert len(self.late(5, text, priority=1).evicted) == 5

    def test_starving_gang_preempts_members_above_the_minimum(self) -> None:
        starving = LEVELS.replace("{name: gang}", "{name: gang, enableJobStarving: false}")
        for text in (LEVELS, starving):
            scenario = Scenario(text).node("n", cpu=8).job("large", 8, 1, cpu=1).run()
            scenario.job("small", 8, 1, cpu=1).run()
            assert len(scenario.placed("small")) == 4
            assert len(scenario.placed("large")) == 4


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(40)))
def test_drf_preemption_terminates(seed: int) -> None:
    """Gangs preempt pod by pod wherever the rule allows it; no gang is preempted by one that it preempted."""
    draw = random.Random(seed)
    scenario = Scenario(LEVELS).node("n", cpu=40, gpu=40, pods=60)
    sizes: list[dict[str, Any]] = [{"cpu": 1}, {"cpu": 2}, {"gpu": 1}, {"cpu": 1, "gpu": 2}, {}]
    names = ["a", "b", "c", "d"]
    for name in names:
        scenario.gang(name, 1)
        for number in range(draw.randint(1, 6)):
            scenario.pod(f"{name}-{number}", gang=name, node="n", **draw.choice(sizes))
    waiting = [f"{name}-w{number}" for name in names for number in range(3)]
    for pod in waiting:
        scenario.pod(pod, gang=pod[0], **draw.choice(sizes))
    for _ in range(200):
        move = _move(scenario, draw, waiting)
        if move is None:
            return
        taker, evicted = move
        scenario.becomes(taker, node="n", phase=PodPhase.RUNNING)
        scenario.becomes(evicted, node="", phase=PodPhase.PENDING)
        waiting[waiting.index(taker)] = evicted
    raise AssertionError("gangs go on taking from each other")


def _move(scenario: Scenario, draw: random.Random, waiting: list[str]) -> tuple[str, str] | None:
    pods = scenario.state.pods
    session = scenario.scheduler.new_session(scenario.now)
    for taker in draw.sample(waiting, len(waiting)):
        wanted, gang = pods[taker].footprint.amounts, pods[taker].gang
        assert gang is not None
        share = DrfPreemption(session, [gang], wanted)
        others = [record for record in pods.values() if record.pod.node and record.gang is not gang]
        for victim in sorted(others, key=lambda record: record.pod.name):
            if share.allows_victim(victim.gang, victim.footprint.amounts):
                return taker, victim.pod.name
    return None


def test_share_of_a_gang_is_the_sum_over_its_members() -> None:
    scenario = world(a=3).pod("a-big", gang="a", node="n", cpu=2, gpu=1)
    held = gang_holdings(scenario.state.gangs[key("a")])
    add_amounts(held, {"pods": 4}, -1)
    assert held == {"cpu": 5000, "nvidia.com/gpu": 1}
