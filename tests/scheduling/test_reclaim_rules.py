"""Rules of reclaim: from and by quotas by their guarantees, from and by queues by their deserved amounts."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cluster.accounts import ChargePath
from phalanx.model.account import AccountKey, AccountState, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import Problem
from phalanx.scheduling.preemption.rules.queue_rules import NOBODY_DESERVES
from phalanx.scheduling.preemption.rules.quota_rules import ONE_WITHOUT_QUOTA
from phalanx.scheduling.preemption.rules.reclaim_rules import ReclaimRules
from phalanx.scheduling.preemption.rules.rule import NO_PREEMPTION, NO_RECLAIM, ReclaimRule

from .desk import policy, queue
from .reclaim_trial import settled, takes
from .scenario import Scenario

BARE = policy()
CAPACITY = policy("name: capacity")
PROPORTION = policy("name: proportion")
BROKEN = Problem("Broken", "cannot be read")


def world(plugins: str = BARE, **offered: Any) -> Scenario:
    return Scenario(plugins).node("n", **({"cpu": 1000, "gpu": 1000, "pods": 10_000} | offered))


def elastic(namespace: str) -> AccountKey:
    return AccountKey(Tree.ELASTIC_QUOTA, namespace)


def reclaimed(word: ReclaimRule | str) -> bool:
    return (
        isinstance(word, ReclaimRule) and word.reason is EvictionReason.RECLAIMED and not word.lower_priority_only
    )


def preempted(word: ReclaimRule | str) -> bool:
    return isinstance(word, ReclaimRule) and word.reason is EvictionReason.PREEMPTED and word.lower_priority_only


class TestElasticQuotas:
    """The stories and examples of KEP-9 (capacity scheduling); the unit is the GPU unless stated otherwise."""

    def story(self, **quotas: tuple[int, int]) -> Scenario:
        scenario = world()
        for name, (least, most) in quotas.items():
            scenario.elastic_quota(name, {"gpu": least}, {"gpu": most})
        return scenario

    def test_story_1_exactly_the_borrowed_amount_is_reclaimed(self) -> None:
        scenario = self.story(a=(4, 6), b=(6, 8))
        scenario.within("a").pods("a", 4, node="n", gpu=1).pod("a-big", node="n", gpu=2)
        scenario.within("b").pods("b", 3, node="n", gpu=1).pod("more", gpu=3)
        trial = takes(scenario, "more")
        assert reclaimed(trial.word("a-big"))
        trial.take(scenario.state.pods["a-big"])  # from 6 to 4
        assert trial.everything() == ["a-big"]
        settled(scenario, trial).pod("next", gpu=1)
        word = takes(scenario, "next").word("a-0")
        assert word == "ElasticQuota b/quota would use more nvidia.com/gpu than its min"

    def test_story_2_within_min_from_quotas_above_min_and_beyond_from_the_own_quota(self) -> None:
        scenario = self.story(a=(3, 4), b=(4, 6), c=(3, 4))
        scenario.within("a").pods("a", 4, node="n", gpu=1, priority=1000)
        scenario.within("c").pods("c", 3, node="n", gpu=1)
        scenario.within("b").pods("b", 3, node="n", gpu=1).pod("more", gpu=1)
        trial = takes(scenario, "more")
        assert reclaimed(trial.word("a-0"))  # whatever the priority
        assert trial.word("c-0") == "ElasticQuota c/quota is within its min"
        assert trial.count() == {"a": 1}

        scenario = self.story(a=(3, 4), b=(4, 6), c=(3, 4))
        scenario.within("a").pods("a", 2, node="n", gpu=1)
        scenario.within("c").pods("c", 3, node="n", gpu=1)
        scenario.within("b").pod("b-a", node="n", gpu=2).pod("b-b", node="n", gpu=3, priority=9)
        scenario.pod("more", gpu=1, priority=5)
        trial = takes(scenario, "more")
        assert preempted(trial.word("b-a"))
        assert trial.everything() == ["b-a"]

    def test_example_1_quota_above_its_min_reclaims_from_no_other_whatever_the_priority(self) -> None:
        scenario = world()
        for name, least in {"quota1": 0, "quota2": 0, "quota3": 1}.items():
            scenario.elastic_quota(name, {"cpu": least}, {"cpu": 2})
        scenario.within("quota1").pod("nginx", node="n", cpu=1)
        scenario.within("quota2").pod("important", cpu=1, priority=1_000_000)
        trial = takes(scenario, "important")
        assert trial.word("nginx") == "ElasticQuota quota2/quota would use more cpu than its min"
        assert trial.everything() == []

    def test_example_2_lent_amount_is_reclaimed_on_all_nodes(self) -> None:
        scenario = world(cpu=1).node("m", cpu=1)
        scenario.elastic_quota("quota1", {"cpu": 0}, {"cpu": 2}).elastic_quota("quota2", {"cpu": 2}, {"cpu": 2})
        scenario.within("quota1").pod("nginx-0", node="n", cpu=1).pod("nginx-1", node="m", cpu=1)
        scenario.within("quota2").pod("big", cpu=2)
        assert takes(scenario, "big").everything() == ["nginx-0", "nginx-1"]

    def test_only_requested_resources_decide_about_reclaim(self) -> None:
        scenario = world().elastic_quota("a", {"cpu": 1, "gpu": 1}, {}).elastic_quota("b", {"cpu": 8, "gpu": 2}, {})
        scenario.within("a").pods("cpus", 4, node="n", cpu=1).pod("gpu", node="n", gpu=1)
        scenario.within("b").pod("full", node="n", cpu=9).pod("more", gpu=1)
        # b uses too many CPUs, which the preemptor does not request; a uses too many, and they would not help.
        assert takes(scenario, "more").word("gpu") == "ElasticQuota a/quota is within its min"
        scenario.within("a").pod("second", node="n", gpu=1)
        assert takes(scenario, "more").everything() == ["gpu"]

    def test_pod_without_a_borrowed_resource_is_not_reclaimed(self) -> None:
        scenario = world().elastic_quota("a", {"cpu": 9, "gpu": 1}, {}).elastic_quota("b", {"cpu": 8, "gpu": 2}, {})
        scenario.within("a").pods("gpu", 2, node="n", cpu=1, gpu=1).pods("cpus", 2, node="n", cpu=1)
        scenario.within("b").pod("more", cpu=1, gpu=1)
        assert takes(scenario, "more").everything() == ["gpu-0"]

    def test_quota_without_a_min_of_a_resource_cannot_reclaim_it(self) -> None:
        scenario = world().elastic_quota("a", {"gpu": 1}, {}).elastic_quota("b", {"gpu": 2, "cpu": 4}, {})
        scenario.within("b").pods("b", 3, node="n", gpu=1, cpu=2)
        scenario.within("a").pod("more", gpu=1, cpu=1)
        assert takes(scenario, "more").word("b-0") == "ElasticQuota a/quota would use more cpu than its min"

    def test_resource_that_no_quota_names_does_not_block_reclaim(self) -> None:
        scenario = world().elastic_quota("a", {"gpu": 1}, {}).elastic_quota("b", {"gpu": 2}, {})
        scenario.within("b").pods("b", 3, node="n", gpu=1, cpu=2, memory="1Gi")
        scenario.within("a").pod("more", gpu=1, cpu=1, memory="1Gi")
        assert takes(scenario, "more").count() == {"b": 1}

    def test_pods_with_and_without_a_quota_do_not_reclaim_from_each_other(self) -> None:
        scenario = world().elastic_quota("a", {"gpu": 2}, {})
        scenario.within("a").pod("having", gpu=1, priority=9).pod("low", node="n", gpu=1)
        scenario.within("b").pod("without", gpu=1, priority=9).pod("poor", node="n", gpu=1)
        assert takes(scenario, "having").word("poor") == ONE_WITHOUT_QUOTA
        assert takes(scenario, "without").word("low") == ONE_WITHOUT_QUOTA
        assert takes(scenario, "without").everything() == ["poor"]  # priority alone

    def test_broken_quota_can_lose_all_and_reclaims_nothing(self) -> None:
        scenario = self.story(a=(4, 6), b=(6, 8))
        scenario.within("a").pods("a", 3, node="n", gpu=1).pod("claim", gpu=1)
        scenario.within("b").pods("b", 8, node="n", gpu=1).pod("more", gpu=1)
        scenario.account(elastic("b"), label="ElasticQuota b/quota", problem=BROKEN)
        assert takes(scenario, "claim").count() == {"b": 8}
        assert takes(scenario, "more").word("a-0") == "cannot be read"

    def test_terminating_pods_no_longer_count_as_usage(self) -> None:
        scenario = self.story(a=(4, 6), b=(6, 8))
        scenario.within("a").pods("a", 6, node="n", gpu=1).becomes("a-0", terminating=True)
        scenario.becomes("a-1", terminating=True)
        scenario.within("b").pods("b", 3, node="n", gpu=1).pod("more", gpu=1)
        assert takes(scenario, "more").word("a-2") == "ElasticQuota a/quota is within its min"
        scenario.within("b").pods("leaving", 3, node="n", gpu=1, terminating=True)
        scenario.within("a").pod("a-6", node="n", gpu=1)
        assert takes(scenario, "more").everything() == ["a-2"]

    @pytest.mark.parametrize(("preempt", "reclaim"), [(True, False), (False, True)])
    def test_preemption_and_reclaim_each_need_an_action_of_the_policy(self, preempt: bool, reclaim: bool) -> None:
        scenario = self.story(a=(4, 6), b=(6, 8))
        scenario.within("a").pods("a", 6, node="n", gpu=1)
        scenario.within("b").pod("b", node="n", gpu=1).pod("more", gpu=1, priority=1)
        trial = takes(scenario, "more", preempt=preempt, reclaim=reclaim)
        assert preempted(trial.word("b")) is preempt
        assert reclaimed(trial.word("a-0")) is reclaim
        assert trial.word("a-0" if preempt else "b") == (NO_RECLAIM if preempt else NO_PREEMPTION)


class TestQuotaTrees:
    def ack(self, name: str, least: int, most: int, parent: str = "") -> dict[str, Any]:
        above = AccountKey(Tree.ACK, parent) if parent else None
        return {
            "key": AccountKey(Tree.ACK, name),
            "label": f"quota {name}",
            "parent": above,
            "deserved": {"gpu": least},
            "capability": {"gpu": most},
            "namespaces": () if name in ("root", "x", "y") else (name,),
        }

    def test_quota_tree_of_ack_returns_up_to_the_leafs_min_nearest_first(self) -> None:
        scenario = world()
        scenario.account(**self.ack("root", 10, 10))
        for branch in ("x", "y"):
            scenario.account(**self.ack(branch, 5, 10, "root"))
        for leaf, least in {"x1": 2, "x2": 2, "y1": 2, "y2": 3}.items():
            scenario.account(**self.ack(leaf, least, 10, leaf[0]))
        for leaf, count in {"x2": 3, "y1": 5, "y2": 2}.items():
            scenario.within(leaf).pods(leaf, count, node="n", gpu=1)
        scenario.within("x1").pods("claim", 2, gpu=1)
        trial = takes(scenario, "claim")
        assert [reclaimed(trial.word(name)) for name in ("x2-0", "y1-0", "y2-0")] == [True, True, False]
        near, far = trial.word("x2-0"), trial.word("y1-0")
        assert isinstance(near, ReclaimRule)
        assert isinstance(far, ReclaimRule)
        assert (near.distance, far.distance) == (1, 2)
        assert trial.count() == {"x2": 1, "y1": 3}
        scenario.within("x1").pod("claim-2", gpu=1)
        assert takes(scenario, "claim").word("y1-0") == "quota x1 would use more nvidia.com/gpu than its min"

    def koordinator(self, **quotas: tuple[int, int]) -> Scenario:
        scenario = world(cpu=10).account(AccountKey(Tree.KOORDINATOR, "koordinator-root-quota"), parental=True)
        for name, (least, most) in quotas.items():
            scenario.account(
                AccountKey(Tree.KOORDINATOR, name),
                label=f"quota {name}",
                parent=AccountKey(Tree.KOORDINATOR, "koordinator-root-quota"),
                deserved={"cpu": least},
                capability={"cpu": most},
                namespaces=(name,),
            )
        return scenario

    def test_koordinator_quotas_return_usage_above_their_runtime(self) -> None:
        scenario = self.koordinator(a=(2, 10), b=(4, 10))
        scenario.within("a").pods("a", 10, node="n", cpu=1)
        scenario.within("b").pods("claim", 5, cpu=1)
        # All want more than their limit: 2 and 4, the remaining 4 by their max.
        assert takes(scenario, "claim").count() == {"a": 5}
        scenario.within("b").pod("claim-5", cpu=2)
        word = takes(scenario, "claim").word("a-0")
        assert word == "quota b would use more cpu than its runtime quota"

    def test_koordinators_default_quota_is_outside_of_the_tree(self) -> None:
        scenario = self.koordinator(a=(2, 10))
        scenario.account(AccountKey(Tree.KOORDINATOR, "koordinator-default-quota"), label="the default quota")
        scenario.within("x").pod("any", node="n", cpu=1).pod("other", cpu=1, priority=5)
        scenario.within("a").pod("a", cpu=1, priority=5)
        for taker in ("other", "a"):
            word = takes(scenario, taker).word("any")
            assert word == "the default quota takes no part in reclaim between quotas"

    def test_koordinator_trees_do_not_lend_to_each_other(self) -> None:
        scenario = self.koordinator(a=(10, 10))
        gpus = AccountKey(Tree.KOORDINATOR, "g", "gpus")
        scenario.account(gpus, deserved={"cpu": 0}, capability={"cpu": 5}, namespaces=("g",))
        scenario.within("g").pods("g", 5, node="n", cpu=1)
        scenario.within("a").pod("claim", cpu=1)
        assert takes(scenario, "claim").word("g-0") == "they are in different quota trees"


class TestQueues:
    def test_within_a_queue_lower_priorities_are_preempted(self) -> None:
        scenario = world().pod("low", node="n", cpu=1).pod("same", node="n", cpu=1, priority=5)
        scenario.within("other").pod("far", node="n", cpu=1)
        trial = takes(scenario.pod("more", cpu=1, priority=5), "more")
        assert preempted(trial.word("low"))
        assert trial.everything() == ["far", "low"]

    @pytest.mark.parametrize("plugins", [CAPACITY, PROPORTION])
    def test_deserved_amount_is_reclaimed_from_queues_above_theirs(self, plugins: str) -> None:
        """Volcano #5896: 64 units, conformance in a tier above; 16 evictions, not 18, and C keeps its 16."""
        tiers = plugins.replace("{name: gang}", "{name: gang}, {name: conformance}]}, {plugins: [")
        scenario = world(tiers.replace("[,", "["), cpu=64)
        for name, (deserved, holds) in {"a": (32, 16), "b": (16, 24), "c": (16, 24)}.items():
            scenario.queue(name, deserved={"cpu": deserved}, weight=deserved)
            scenario.pods(name, holds, queue=name, node="n", cpu=1)
        for reclaimee in "bc":
            scenario.pods(f"{reclaimee}wait", 8, queue=reclaimee, cpu=1)  # they would like to have more still
        scenario.pods("more", 16, queue="a", cpu=1)
        trial = takes(scenario, "more")
        assert trial.count() == {"b": 8, "c": 8}
        settled(scenario, trial)
        for reclaimee in "bc":
            word = takes(scenario, f"{reclaimee}wait-0").word("more-0")
            assert word == f"queue {reclaimee} would use more cpu than its deserved share"

    def test_without_a_plugin_for_deserved_amounts_no_queue_reclaims(self) -> None:
        scenario = world().queue("a", deserved={"cpu": 9}).queue("b")
        scenario.pod("b", queue="b", node="n", cpu=1).pod("more", queue="a", cpu=1)
        assert takes(scenario, "more").word("b") == NOBODY_DESERVES

    def test_queue_that_deserves_nothing_can_lose_all_and_reclaims_nothing(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 9}).queue("b")
        scenario.pods("b", 3, queue="b", node="n", cpu=1).pod("more", queue="a", cpu=1)
        scenario.pods("a", 2, queue="a", node="n", cpu=1).pod("poor", queue="b", cpu=1, priority=9)
        assert takes(scenario, "more").count() == {"b": 3}
        assert takes(scenario, "poor").word("a-0") == "queue b would use more cpu than its deserved share"

    def test_deserved_amount_of_one_resource_is_enough_if_no_queue_has_one_of_the_other(self) -> None:
        """Volcano #3990: deserved names GPUs only, and pods request CPUs as well."""
        scenario = world(CAPACITY).queue("a", deserved={"gpu": 16}).queue("b", deserved={"gpu": 24})
        scenario.pods("a", 20, queue="a", node="n", cpu=1, gpu=1).pods("more", 24, queue="b", cpu=1, gpu=1)
        assert takes(scenario, "more").count() == {"a": 4}

    def test_two_queues_do_not_reclaim_from_each_other_forever(self) -> None:
        """Volcano #3729: 11 CPUs, both deserve 5, pods of 2."""
        scenario = world(CAPACITY, cpu=11).queue("a", deserved={"cpu": 5}).queue("b", deserved={"cpu": 5})
        scenario.pods("a", 5, queue="a", node="n", cpu=2).pods("b", 2, queue="b", cpu=2)
        trial = takes(scenario, "b")
        assert trial.count() == {"a": 3}  # from 10 to 4; the engine evicts two, the necessary number
        settled(scenario, trial).pods("again", 3, queue="a", cpu=2)
        assert takes(scenario, "again-0").everything() == []  # 6 would be more than 5
        assert takes(scenario, "again").word("b-0") == "queue a would use more cpu than its deserved share"

    def test_queue_can_forbid_reclaim(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 9}).queue("top", reclaimable=False)
        scenario.queue("b", parent="top").queue("c", reclaimable=False)
        scenario.pod("b", queue="b", node="n", cpu=1).pod("c", queue="c", node="n", cpu=1)
        trial = takes(scenario.pod("more", queue="a", cpu=1), "more")
        assert trial.word("b") == "queue top is not reclaimable"
        assert trial.word("c") == "queue c is not reclaimable"

    def test_root_queue_that_is_not_reclaimable_has_no_effect(self) -> None:
        scenario = world(CAPACITY).account(queue("root"), reclaimable=False).queue("a", deserved={"cpu": 9})
        scenario.pod("any", node="n", cpu=1).pod("more", queue="a", cpu=1)
        assert takes(scenario, "more").everything() == ["any"]

    def test_queue_that_forbids_reclaim_still_preempts_by_priority_within_itself(self) -> None:
        scenario = world(CAPACITY).queue("a", reclaimable=False).pod("low", queue="a", node="n", cpu=1)
        assert takes(scenario.pod("more", queue="a", cpu=1, priority=1), "more").everything() == ["low"]

    def test_guarantee_protects_every_resource(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50})
        scenario.queue("b", guarantee={"cpu": 1, "memory": "4Gi"}, deserved={"cpu": 1})
        scenario.pods("b", 6, queue="b", node="n", cpu=1, memory="1Gi")
        assert takes(scenario.pod("more", queue="a", cpu=1), "more").count() == {"b": 2}

    def test_guarantee_that_is_not_reached_does_not_protect(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50})
        scenario.queue("b", guarantee={"cpu": 1, "memory": "40Gi"}, deserved={"cpu": 1})
        scenario.pods("b", 6, queue="b", node="n", cpu=1, memory="1Gi")
        assert takes(scenario.pod("more", queue="a", cpu=1), "more").count() == {"b": 5}

    def test_guarantee_counts_as_deserved(self) -> None:
        scenario = world(CAPACITY).queue("a", guarantee={"cpu": 2}, deserved={"cpu": 1}).queue("b")
        scenario.pods("b", 3, queue="b", node="n", cpu=1).pods("more", 2, queue="a", cpu=1)
        assert takes(scenario, "more").count() == {"b": 3}

    def test_queue_with_the_most_undeserved_usage_is_reclaimed_from_first(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50})
        for name, (deserved, holds) in {"b": (4, 5), "c": (1, 2), "d": (0, 1)}.items():
            scenario.queue(name, deserved={"cpu": deserved}).pods(name, holds, queue=name, node="n", cpu=1)
        trial = takes(scenario.pod("more", queue="a", cpu=1), "more")
        words = {name: trial.word(f"{name}-0") for name in "bcd"}
        excess = {name: word.excess for name, word in words.items() if isinstance(word, ReclaimRule)}
        assert excess == {"b": 0.2, "c": 0.5, "d": 1.0}

    def test_all_requests_of_a_preemptor_count_where_charge_paths_meet(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 3}).queue("b").pod("b", queue="b", node="n", cpu=1)
        for namespace in ("x", "y"):
            scenario.within(namespace).pods(namespace, 2, queue="a", cpu=1)
        charge_paths: dict[ChargePath, dict[str, int]] = {}
        for name in ("x-0", "y-0"):
            charge_path = scenario.state.pods[name].charge_path
            assert charge_path is not None
            charge_paths[charge_path] = {"cpu": 2000}
        session, reclaimee = scenario.scheduler.new_session(scenario.now), scenario.state.pods["b"].charge_path
        assert reclaimee is not None
        for charge_path, wanted in charge_paths.items():
            alone = ReclaimRules(session, charge_path, wanted, preempt=True, reclaim=True)
            assert reclaimed(alone.rule_for(reclaimee))
            both = ReclaimRules(session, charge_path, wanted, preempt=True, reclaim=True, together=charge_paths)
            assert both.rule_for(reclaimee) == "queue a would use more cpu than its deserved share"

    def test_closed_queue_keeps_usage_up_to_its_deserved_amount(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50})
        scenario.queue("b", deserved={"cpu": 2}, state=AccountState.CLOSING).pods(
            "b", 3, queue="b", node="n", cpu=1
        )
        assert takes(scenario.pod("more", queue="a", cpu=1), "more").count() == {"b": 1}

    def test_broken_or_deleted_queue_deserves_nothing_and_reclaims_nothing(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50}).queue("b", deserved={"cpu": 9}, problem=BROKEN)
        scenario.queue("c", deserved={"cpu": 9}, parent="nowhere")
        for name in ("b", "c", "gone"):
            scenario.pods(name, 2, queue=name, node="n", cpu=1).pod(f"{name}more", queue=name, cpu=1, priority=9)
        scenario.pod("a", queue="a", node="n", cpu=1).pod("more", queue="a", cpu=1)
        assert takes(scenario, "more").count() == {"b": 2, "c": 2, "gone": 2}
        assert takes(scenario, "bmore").word("a") == "cannot be read"
        assert takes(scenario, "cmore").word("a") == "queue c names the parent nowhere: not found"
        assert takes(scenario, "gonemore").word("a") == "queue gone does not exist"

    def test_pods_of_other_schedulers_are_preempted_by_priority(self) -> None:
        scenario = world(CAPACITY).queue("a").pod("theirs", node="n", scheduler="kube", cpu=1)
        assert preempted(takes(scenario.pod("more", queue="a", cpu=1), "more").word("theirs"))


class TestTreesOfQueues:
    def tree(self, plugins: str = CAPACITY) -> Scenario:
        """root: org (10: x 4, y 6), ext (8: e 8)."""
        scenario = world(plugins).queue("org", deserved={"cpu": 10}).queue("ext", deserved={"cpu": 8})
        for name, deserved in {"x": 4, "y": 6}.items():
            scenario.queue(name, parent="org", deserved={"cpu": deserved})
        return scenario.queue("e", parent="ext", deserved={"cpu": 8})

    def fill(self, scenario: Scenario, **counts: int) -> Scenario:
        for name, count in counts.items():
            scenario.pods(name, count, queue=name, node="n", cpu=1)
        return scenario

    def test_nearest_branch_of_a_queue_tree_is_reclaimed_from_first(self) -> None:
        scenario = self.fill(self.tree(), x=2, y=8, e=10).pods("more", 2, queue="x", cpu=1)
        trial = takes(scenario, "more")
        near, far = trial.word("y-0"), trial.word("e-0")
        assert isinstance(near, ReclaimRule)
        assert isinstance(far, ReclaimRule) is False
        assert far == "queue org would use more cpu than its deserved share"
        assert near.distance == 1
        scenario = self.fill(self.tree(), x=1, y=7, e=10).pods("more", 2, queue="x", cpu=1)
        far = takes(scenario, "more").word("e-0")
        assert isinstance(far, ReclaimRule)
        assert far.distance == 2
        assert takes(scenario, "more").count() == {"y": 1, "e": 2}

    def test_every_level_must_deserve_a_reclaimed_amount(self) -> None:
        scenario = self.fill(self.tree(), x=2, y=8, e=10).pod("more", queue="x", cpu=1)
        assert takes(scenario, "more").word("e-0") == "queue org would use more cpu than its deserved share"
        scenario.pod("less", queue="y", cpu=1)
        assert takes(scenario, "less").word("x-0") == "queue y would use more cpu than its deserved share"

    def test_branch_within_its_deserved_amount_loses_nothing_whatever_its_children_use(self) -> None:
        scenario = self.fill(self.tree(), x=1, y=9, e=1).pod("more", queue="e", cpu=1)
        assert takes(scenario, "more").word("y-0") == "queue org is within its deserved share"

    def test_queue_within_its_deserved_amount_loses_nothing_although_its_branch_is_above(self) -> None:
        scenario = self.fill(self.tree(), x=4, y=8, e=1).pods("more", 4, queue="e", cpu=1)
        trial = takes(scenario, "more")
        assert trial.word("x-0") == "queue x is within its deserved share"
        assert trial.count() == {"y": 2}

    def test_capacity_argument_limits_the_number_of_compared_levels(self) -> None:
        found: list[dict[str, int]] = []
        for level in (0, 1):
            tree = policy(f"name: capacity, arguments: {{ancestorReclaimLevel: {level}}}")
            # y is above its deserved amount, org with it is not.
            scenario = self.fill(self.tree(tree), x=1, y=8, e=1).pods("more", 4, queue="e", cpu=1)
            found.append(takes(scenario, "more").count())
        assert found == [{"y": 2}, {}]

    def test_one_level_within_deserved_is_enough_for_the_preemptor_if_the_policy_says_so(self) -> None:
        words: list[str | ReclaimRule] = []
        for level in (0, 1):
            tree = policy(f"name: capacity, arguments: {{ancestorReclaimLevel: {level}}}")
            scenario = self.fill(self.tree(tree), x=4, e=12).pod("more", queue="x", cpu=1)
            words.append(takes(scenario, "more").word("e-0"))
        assert words[0] == "queue x would use more cpu than its deserved share"
        assert reclaimed(words[1])

    def test_children_of_one_parent_do_not_reclaim_from_each_other_for_the_parents_share(self) -> None:
        tree = policy("name: capacity, arguments: {ancestorReclaimLevel: 1}")
        scenario = self.fill(self.tree(tree), x=5, y=7).pod("more", queue="x", cpu=1)
        assert takes(scenario, "more").word("y-0") == "queue x would use more cpu than its deserved share"

    def test_children_reclaim_through_parents_with_a_deserved_amount(self) -> None:
        scenario = world(CAPACITY)
        for parent in ("left", "right"):
            scenario.queue(parent, deserved={"cpu": 4})
            for child in "ab":
                scenario.queue(f"{parent}-{child}", parent=parent)
        scenario.pods("mine", 2, queue="left-a", node="n", cpu=1).pods("near", 1, queue="left-b", node="n", cpu=1)
        scenario.pods("far", 7, queue="right-a", node="n", cpu=1)
        trial = takes(scenario.pod("more", queue="left-a", cpu=1), "more")
        assert trial.count() == {"far": 3}
        assert trial.word("near-0") == "queue left-a would use more cpu than its deserved share"
        trial = takes(scenario.pods("more-too", 1, queue="left-a", cpu=1), "more")
        assert trial.word("far-0") == "queue left would use more cpu than its deserved share"

    def test_deserved_amount_is_protected_in_resources_without_requests_too(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 2, "gpu": 2}).queue("b", deserved={"cpu": 4})
        scenario.pods("both", 2, queue="a", node="n", cpu=2, gpu=1).pods("plain", 1, queue="a", node="n", cpu=1)
        trial = takes(scenario.pods("more", 2, queue="b", cpu=1), "more")
        assert trial.everything() == ["plain-0"]
        scenario.pod("both-more", queue="a", node="n", cpu=2, gpu=1)
        assert takes(scenario, "more-0").count() == {"both": 1, "plain": 1}

    def test_queue_within_deserved_in_one_resource_reclaims_that_resource(self) -> None:
        scenario = (
            world(CAPACITY).queue("a", deserved={"cpu": 4, "gpu": 1}).queue("b", deserved={"cpu": 4, "gpu": 4})
        )
        scenario.pods("b", 4, queue="b", node="n", cpu=2, gpu=1).pods("light", 2, queue="b", node="n", cpu=1)
        scenario.pod("a", queue="a", node="n", gpu=1)
        # a has all its deserved devices and no CPUs.
        trial = takes(scenario.pod("more", queue="a", cpu=1, gpu=1), "more")
        assert trial.count() == {"light": 2}
        scenario.pods("full", 4, queue="a", node="n", cpu=1)
        assert takes(scenario, "more").word("light-0") == "queue a would use more cpu than its deserved share"

    def test_queue_without_a_deserved_amount_deserves_the_sum_of_its_children(self) -> None:
        scenario = world(CAPACITY).queue("org").queue("ext", deserved={"cpu": 8})
        for name, deserved in {"x": 4, "y": 6}.items():
            scenario.queue(name, parent="org", deserved={"cpu": deserved})
        self.fill(scenario, x=3, y=6, ext=12).pod("more", queue="x", cpu=1)
        assert takes(scenario, "more").count() == {"ext": 4}

    def test_guarantees_of_every_level_protect(self) -> None:
        scenario = world(CAPACITY).queue("a", deserved={"cpu": 50})
        scenario.queue("org", guarantee={"cpu": 5}, deserved={"cpu": 5})
        scenario.queue("x", parent="org").queue("y", parent="org", guarantee={"cpu": 3})
        self.fill(scenario, x=4, y=4).pod("more", queue="a", cpu=1)
        assert takes(scenario, "more").count() == {"x": 3}
        scenario.gone(*(f"x-{number}" for number in range(4)))
        scenario.queue("org")
        assert takes(scenario, "more").count() == {"y": 1}

    @pytest.mark.parametrize("plugins", [CAPACITY, PROPORTION])
    def test_pods_of_a_parent_queue_are_reclaimable_by_any_child(self, plugins: str) -> None:
        scenario = world(plugins).queue("org", deserved={"cpu": 10})
        self.fill(scenario, org=3).queue("x", parent="org", deserved={"cpu": 4}).pod("more", queue="x", cpu=1)
        assert takes(scenario, "more").count() == {"org": 3}

    def test_proportion_shares_every_level(self) -> None:
        scenario = world(PROPORTION, cpu=12).queue("org", weight=2).queue("ext", weight=1)
        scenario.queue("x", parent="org", weight=3).queue("y", parent="org", weight=1)
        self.fill(scenario, y=6, ext=6).pods("more", 6, queue="x", cpu=1)
        # org deserves 8 of 12, x 6 of those and y 2.
        assert takes(scenario, "more").word("ext-0") == "queue org would use more cpu than its deserved share"
        assert takes(scenario, "more").count() == {"y": 4}


class TestQueuesAndQuotas:
    """Both must allow it."""

    def world(self) -> Scenario:
        scenario = world(CAPACITY).elastic_quota("na", {"cpu": 4}, {}).elastic_quota("nb", {"cpu": 4}, {})
        return scenario.queue("qa", deserved={"cpu": 4}).queue("qb", deserved={"cpu": 4})

    def test_within_one_queue_quotas_override_priority(self) -> None:
        scenario = self.world()
        scenario.within("nb").pods("b", 6, queue="qa", node="n", cpu=1, priority=9)
        scenario.within("na").pod("more", queue="qa", cpu=1)
        trial = takes(scenario, "more")
        assert reclaimed(trial.word("b-0"))
        assert trial.count() == {"b": 2}
        scenario.gone("b-4", "b-5").becomes("more", priority=99)
        assert takes(scenario, "more").word("b-0") == "ElasticQuota nb/quota is within its min"

    def test_within_one_quota_and_two_queues_lower_priorities_of_the_larger_queue_are_evicted(self) -> None:
        scenario = self.world()
        scenario.within("na").pods("low", 6, queue="qb", node="n", cpu=1)
        scenario.pods("high", 2, queue="qb", node="n", cpu=1, priority=9)
        scenario.pod("more", queue="qa", cpu=1, priority=5)
        trial = takes(scenario, "more")
        word = trial.word("low-0")
        assert isinstance(word, ReclaimRule)
        assert (word.reason, word.lower_priority_only) == (EvictionReason.RECLAIMED, True)
        assert trial.count() == {"low": 4}

    @pytest.mark.parametrize(("held_by_quota", "held_by_queue"), [(True, False), (False, True)])
    def test_queue_and_quota_both_limit_the_amount(self, held_by_quota: bool, held_by_queue: bool) -> None:
        scenario = self.world()
        scenario.within("nb").pods("b", 6, queue="qb", node="n", cpu=1)
        scenario.elastic_quota("nb", {"cpu": 5 if held_by_quota else 0}, {})
        scenario.queue("qb", deserved={"cpu": 5 if held_by_queue else 0})
        scenario.within("na").pod("more", queue="qa", cpu=1)
        assert takes(scenario, "more").count() == {"b": 1}


class TestClaimedRoom:
    def test_claimed_room_does_not_count_twice(self) -> None:
        """Two of four pods are evicted for a pod, and hang: the other two are evicted at once."""
        quotas = {"a": (0, 4), "b": (2, 2), "c": (2, 2)}
        scenario = Scenario().nodes(2, cpu=2)
        for name, (least, most) in quotas.items():
            scenario.elastic_quota(name, {"cpu": least}, {"cpu": most})
        scenario.within("a").pods("a", 4, cpu=1).run().within("b").pod("b", cpu=2).work()
        first = scenario.evicted[:]
        for name in first:
            scenario.becomes(name, terminating=True, leaves=scenario.now + 30)
        scenario.now += 200
        scenario.scheduler.activate_due(scenario.now)
        again = [eviction.name for eviction in scenario.cycle().evictions]
        assert sorted(first + again) == ["a-0", "a-1", "a-2", "a-3"]
