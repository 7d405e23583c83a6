"""Order of victims: members by their own priority, surplus subgroups, few gangs before many."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.topology import SubgroupRule

from .scenario import Scenario

CAPACITY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""
INDEX = "index"
NODE = "n1"


def grouped(scenario: Scenario, name: str, subgroups: int, size: int, minimum: int, least: int) -> Scenario:
    """A gang with members `name-SUBGROUP-NUMBER` on the node, of one CPU each."""
    rule = SubgroupRule("parts", keys=(INDEX,), size=size, least=least)
    scenario.gang(name, minimum, subgroups=(rule,))
    for part in range(subgroups):
        for number in range(size):
            labels = ((INDEX, str(part)),)
            scenario.pod(f"{name}-{part}-{number}", gang=name, node=NODE, cpu=1, more={"labels": labels})
    return scenario


class TestPrioritiesOfMembers:
    def test_member_is_not_evicted_for_a_lower_own_priority_whatever_its_groups_class(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("low", 1, priority=10)
        scenario.pods("low", 2, gang="low", node=NODE, cpu=1, priority=2000)
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_gang_is_not_evicted_whole_for_a_priority_below_that_of_a_member(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("low", 2, priority=10)
        scenario.pod("low-0", gang="low", node=NODE, cpu=1).pod(
            "low-1", gang="low", node=NODE, cpu=1, priority=2000
        )
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_priority_class_of_the_group_protects_a_member_as_well(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("high", 1, priority=2000)
        scenario.pods("high", 2, gang="high", node=NODE, cpu=1)
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_surplus_of_the_lowest_own_priority_is_evicted_first(self) -> None:
        scenario = Scenario().node(NODE, cpu=4).gang("job", 1, priority=10)
        for name, own in (("a", 7), ("b", 5), ("c", 3), ("d", 9)):
            # The youngest member has lost the least work so far.
            more = {"started": 100 * own}
            scenario.pod(f"job-{name}", gang="job", node=NODE, cpu=1, priority=own, more=more)
        scenario.pod("high", cpu=2, priority=1000).run(10)
        assert sorted(scenario.evicted) == ["job-b", "job-c"]

    def test_surplus_of_the_lowest_own_priority_is_evicted_first_without_a_group_priority(self) -> None:
        scenario = Scenario().node(NODE, cpu=3).gang("job", 1)
        for name, own in (("a", 900), ("b", 2000), ("c", 3)):
            scenario.pod(f"job-{name}", gang="job", node=NODE, cpu=1, priority=own)
        scenario.pod("high", cpu=1, priority=1000).run(10)
        assert scenario.evicted == ["job-c"]
        scenario.pod("higher", cpu=1, priority=1000).run(10)
        assert scenario.evicted == ["job-c", "job-a"]
        scenario.pod("highest", cpu=1, priority=1000).run(10)
        assert scenario.evicted == ["job-c", "job-a"]


class TestSubgroups:
    def test_gang_keeps_its_required_subgroups(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=5), "job", 2, 2, minimum=2, least=2)
        scenario.pod("single", node=NODE, cpu=1, priority=5)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["single"]

    def test_only_one_surplus_subgroup_is_evicted(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=8), "job", 3, 2, minimum=2, least=2)
        scenario.pods("single", 2, node=NODE, cpu=1, priority=5)
        scenario.pod("high", cpu=3, priority=10).run(10)
        of_job = sorted(name for name in scenario.evicted if name.startswith("job"))
        assert len(of_job) == 2
        assert len({name.rpartition("-")[0] for name in of_job}) == 1
        assert len(scenario.evicted) == 3

    def test_whole_gang_is_evicted_if_no_other_victims_remain(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=4), "job", 2, 2, minimum=2, least=2)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 4


class TestSmallGangs:
    def test_one_surplus_member_of_each_of_two_gangs_is_evicted_before_both_members_of_one(self) -> None:
        scenario = Scenario().node(NODE, cpu=4)
        for name, since in (("old", 100), ("young", 900)):
            scenario.gang(name, 1).pods(name, 2, gang=name, node=NODE, cpu=1, more={"started": since})
        scenario.pod("high", cpu=2, priority=10).run(10)
        assert sorted(name[:-2] for name in scenario.evicted) == ["old", "young"]

    def test_gang_of_one_is_evicted_like_a_single_pod(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).pod("single", node=NODE, cpu=1, priority=5)
        scenario.gang("job", 1).pod("job-0", gang="job", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["job-0"]

    def test_members_of_a_gang_below_its_minimum_are_evicted_singly(self) -> None:
        scenario = Scenario().node(NODE, cpu=3).gang("job", 4).pods("job", 3, gang="job", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 1

    def test_members_that_are_disrupted_only_together_are_not_evicted_singly(self) -> None:
        scenario = (
            Scenario().node(NODE, cpu=3).gang("job", 4, unit=True).pods("job", 3, gang="job", node=NODE, cpu=1)
        )
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 3


class TestOrderOfLenders:
    """The worked example of ACK's capacity scheduling: pods of five CPUs, four teams with a min of two."""

    def world(self) -> Scenario:
        scenario = Scenario().node(NODE, cpu=56)
        self.quota(scenario, "root", 40, 40)
        for branch in "ab":
            self.quota(scenario, branch, 20, 40, "root")
            for leaf in "12":
                self.quota(scenario, f"{branch}{leaf}", 10, 20, branch, namespaces=(f"{branch}{leaf}",))
        scenario.recreates = True
        for team in ("a1", "a2"):
            self.deploy(scenario, team, 5).run()
            scenario.now += 100
        return scenario

    def quota(self, scenario: Scenario, name: str, least: int, most: int, parent: str = "", **more: object) -> None:
        above = AccountKey(Tree.ACK, parent) if parent else None
        stated = {"deserved": {"cpu": least, "gpu": 1}, "capability": {"cpu": most, "gpu": 4}}
        scenario.account(AccountKey(Tree.ACK, name), label=f"quota {name}", parent=above, **stated, **more)

    def deploy(self, scenario: Scenario, team: str, replicas: int, **fields: object) -> Scenario:
        return scenario.within(team).pods(f"nginx-{team}", replicas, cpu=5, **fields)

    def running(self, scenario: Scenario) -> list[int]:
        return [len(scenario.placed(f"nginx-{team}")) for team in ("a1", "a2", "b1", "b2")]

    @pytest.mark.parametrize("batch", [1, 2, 5])
    def test_borrowing_quotas_lose_pods_in_turns_to_one_or_two_preemptors(self, batch: int) -> None:
        scenario = self.world()
        assert self.running(scenario) == [4, 4, 0, 0]
        for number in range(0, 5, batch):
            for each in range(number, min(5, number + batch)):
                scenario.within("b1").pod(f"nginx-b1-{each}", cpu=5)
            scenario.run(20)
        assert self.running(scenario) == [3, 3, 2, 0]
        self.deploy(scenario, "b2", 5).run(20)
        assert self.running(scenario) == [2, 2, 2, 2]
        assert len(scenario.evicted) == 4

    def test_borrowing_quotas_lose_pods_in_turns_to_a_gang(self) -> None:
        scenario = self.world()
        scenario.within("b1").job("nginx-b1", 2, cpu=5).run(20)
        assert self.running(scenario) == [3, 3, 2, 0]

    def test_many_borrowing_queues_lose_pods_in_turns(self) -> None:
        scenario = Scenario(CAPACITY).nodes(5, cpu=20)
        names = [f"q{number}" for number in range(5)]
        for name in names:
            scenario.queue(name, deserved={"cpu": 10})
            scenario.pods(name, 20, cpu=1, queue=name).run()
            scenario.now += 100
        scenario.queue("mine", deserved={"cpu": 50}).job("mine", 20, cpu=1, queue="mine").run(10)
        assert [len(scenario.placed(name)) for name in names] == [16] * 5


class TestSurplusSubgroups:
    """A replica on several hosts is useless when one of them is gone."""

    def test_surplus_subgroup_is_evicted_whole(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=6), "job", 3, 2, minimum=2, least=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 2
        assert len({name.rpartition("-")[0] for name in scenario.evicted}) == 1

    def test_single_pod_of_equal_rank_is_evicted_instead_of_a_subgroup(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=5), "job", 2, 2, minimum=2, least=1)
        scenario.pod("single", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["single"]

    def test_members_beyond_the_size_of_a_subgroup_are_evicted_singly(self) -> None:
        scenario = (
            Scenario()
            .node(NODE, cpu=3)
            .gang("job", 2, subgroups=(SubgroupRule("p", keys=("p",), size=2, least=1),))
        )
        scenario.pods("job", 3, gang="job", node=NODE, cpu=1, more={"labels": (("p", "0"),)})
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 1
