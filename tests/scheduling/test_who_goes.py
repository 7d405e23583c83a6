"""Who goes: members by their own priority, subgroups that can be spared, few gangs before many."""

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
    def test_a_member_is_not_evicted_for_somebody_of_lower_own_priority_whatever_its_groups_class(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("low", 1, priority=10)
        scenario.pods("low", 2, gang="low", node=NODE, cpu=1, priority=2000)
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_neither_does_its_gang_fall_as_a_whole(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("low", 2, priority=10)
        scenario.pod("low-0", gang="low", node=NODE, cpu=1).pod(
            "low-1", gang="low", node=NODE, cpu=1, priority=2000
        )
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_the_class_of_its_group_protects_a_member_as_well(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).gang("high", 1, priority=2000)
        scenario.pods("high", 2, gang="high", node=NODE, cpu=1)
        scenario.pod("middle", cpu=1, priority=1000).run()
        assert scenario.evicted == []

    def test_surplus_goes_lowest_own_priority_first(self) -> None:
        scenario = Scenario().node(NODE, cpu=4).gang("job", 1, priority=10)
        for name, own in (("a", 7), ("b", 5), ("c", 3), ("d", 9)):
            # The one with the least to lose has the most work behind it.
            more = {"started": 100 * own}
            scenario.pod(f"job-{name}", gang="job", node=NODE, cpu=1, priority=own, more=more)
        scenario.pod("high", cpu=2, priority=1000).run(10)
        assert sorted(scenario.evicted) == ["job-b", "job-c"]

    def test_so_it_does_in_a_gang_that_states_no_priority(self) -> None:
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
    def test_a_gang_keeps_the_subgroups_that_it_needs(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=5), "job", 2, 2, minimum=2, least=2)
        scenario.pod("single", node=NODE, cpu=1, priority=5)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["single"]

    def test_one_more_subgroup_than_needed_may_go_and_only_one(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=8), "job", 3, 2, minimum=2, least=2)
        scenario.pods("single", 2, node=NODE, cpu=1, priority=5)
        scenario.pod("high", cpu=3, priority=10).run(10)
        of_job = sorted(name for name in scenario.evicted if name.startswith("job"))
        assert len(of_job) == 2
        assert len({name.rpartition("-")[0] for name in of_job}) == 1
        assert len(scenario.evicted) == 3

    def test_if_nothing_else_is_left_all_of_it_goes(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=4), "job", 2, 2, minimum=2, least=2)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 4


class TestSmallGangs:
    def test_one_surplus_member_of_each_of_two_goes_before_both_members_of_one(self) -> None:
        scenario = Scenario().node(NODE, cpu=4)
        for name, since in (("old", 100), ("young", 900)):
            scenario.gang(name, 1).pods(name, 2, gang=name, node=NODE, cpu=1, more={"started": since})
        scenario.pod("high", cpu=2, priority=10).run(10)
        assert sorted(name[:-2] for name in scenario.evicted) == ["old", "young"]

    def test_a_gang_of_one_is_no_more_than_a_pod_on_its_own(self) -> None:
        scenario = Scenario().node(NODE, cpu=2).pod("single", node=NODE, cpu=1, priority=5)
        scenario.gang("job", 1).pod("job-0", gang="job", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["job-0"]

    def test_members_of_a_gang_that_lacks_its_minimum_already_go_singly(self) -> None:
        scenario = Scenario().node(NODE, cpu=3).gang("job", 4).pods("job", 3, gang="job", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 1

    def test_those_of_one_that_may_only_be_disrupted_together_do_not(self) -> None:
        scenario = (
            Scenario().node(NODE, cpu=3).gang("job", 4, unit=True).pods("job", 3, gang="job", node=NODE, cpu=1)
        )
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 3


class TestLenders:
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
    def test_they_give_in_turns_whether_two_ask_at_once_or_one_by_one(self, batch: int) -> None:
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

    def test_they_give_in_turns_to_a_gang(self) -> None:
        scenario = self.world()
        scenario.within("b1").job("nginx-b1", 2, cpu=5).run(20)
        assert self.running(scenario) == [3, 3, 2, 0]

    def test_so_do_many_queues(self) -> None:
        scenario = Scenario(CAPACITY).nodes(5, cpu=20)
        names = [f"q{number}" for number in range(5)]
        for name in names:
            scenario.queue(name, deserved={"cpu": 10})
            scenario.pods(name, 20, cpu=1, queue=name).run()
            scenario.now += 100
        scenario.queue("mine", deserved={"cpu": 50}).job("mine", 20, cpu=1, queue="mine").run(10)
        assert [len(scenario.placed(name)) for name in names] == [16] * 5


class TestSubgroupsThatCanBeSpared:
    """A replica on several hosts is of no use when one of them is gone."""

    def test_all_of_it_goes(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=6), "job", 3, 2, minimum=2, least=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 2
        assert len({name.rpartition("-")[0] for name in scenario.evicted}) == 1

    def test_a_pod_that_is_as_good_goes_instead(self) -> None:
        scenario = grouped(Scenario().node(NODE, cpu=5), "job", 2, 2, minimum=2, least=1)
        scenario.pod("single", node=NODE, cpu=1)
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert scenario.evicted == ["single"]

    def test_members_beyond_its_size_go_singly(self) -> None:
        scenario = (
            Scenario()
            .node(NODE, cpu=3)
            .gang("job", 2, subgroups=(SubgroupRule("p", keys=("p",), size=2, least=1),))
        )
        scenario.pods("job", 3, gang="job", node=NODE, cpu=1, more={"labels": (("p", "0"),)})
        scenario.pod("high", cpu=1, priority=10).run(10)
        assert len(scenario.evicted) == 1
