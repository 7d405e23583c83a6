"""Guarantees of queues: reserved for the queue while it is idle, whatever other queues request."""

from __future__ import annotations

import pytest

from .scenario import Scenario

CAPACITY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""
PROPORTION = CAPACITY.replace("capacity", "proportion")
NEITHER = CAPACITY.replace("{name: capacity}, ", "")


@pytest.mark.parametrize("policy", [CAPACITY, PROPORTION, NEITHER], ids=["capacity", "proportion", "neither"])
def test_several_queues_together_leave_the_guarantee_of_another(policy: str) -> None:
    cluster = Scenario(policy).node("n", cpu=10)
    cluster.queue("safe", guarantee={"cpu": 4}).queue("b").queue("c")
    cluster.pods("b", 5, queue="b", cpu=1).pods("c", 5, queue="c", cpu=1).run()
    assert len(cluster.placed()) == 6
    cluster.pods("safe", 5, queue="safe", cpu=1).run()
    assert len(cluster.placed("safe")) == 4


def test_verdict_of_a_unit_blocked_by_a_guarantee_names_it() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10).queue("safe", guarantee={"cpu": 4}).queue("b").queue("c")
    cluster.pods("b", 3, queue="b", cpu=1).pods("c", 4, queue="c", cpu=1).run()
    (waiting,) = cluster.waiting()
    verdict = cluster.why_pod(waiting)
    assert (verdict.code, verdict.unschedulable) == ("QuotaExceeded", False)
    assert verdict.message == (
        "queue root: 6 cpu in use, capacity without the guarantees of other queues 6; 1 more would exceed it"
    )


def test_used_guarantee_is_not_reserved_again() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10).queue("safe", guarantee={"cpu": 4}).queue("b")
    cluster.pods("safe", 3, queue="safe", cpu=1).pods("b", 9, queue="b", cpu=1).run()
    assert len(cluster.placed("b")) == 6
    cluster.gone("safe-0").run()
    assert len(cluster.placed("b")) == 6
    cluster.queue("safe").run()
    assert len(cluster.placed("b")) == 8


def test_guarantees_of_every_level_are_reserved() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10)
    cluster.queue("team", capability={"cpu": 6}).queue("other")
    cluster.queue("prod", parent="team", guarantee={"cpu": 2})
    cluster.queue("dev", parent="team").queue("test", parent="team")
    cluster.pods("dev", 4, queue="dev", cpu=1).pods("test", 4, queue="test", cpu=1).run()
    assert len(cluster.placed()) == 4
    cluster.pods("prod", 3, queue="prod", cpu=1).run()
    assert len(cluster.placed("prod")) == 2
    cluster.pods("other", 9, queue="other", cpu=1).run()
    assert len(cluster.placed("other")) == 4


def test_gang_fits_whole_within_the_guarantee_of_its_queue() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10).queue("safe", guarantee={"cpu": 4}).queue("b")
    cluster.pods("b", 9, queue="b", cpu=1).run()
    assert len(cluster.placed("b")) == 6
    cluster.job("four", 4, queue="safe", cpu=1).run()
    assert len(cluster.placed("four")) == 4


def test_guarantee_of_a_closed_or_broken_queue_is_not_reserved() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10).queue("lost", parent="nowhere", guarantee={"cpu": 4}).queue("b")
    cluster.pods("b", 10, queue="b", cpu=1).run()
    assert len(cluster.placed("b")) == 10


def test_guarantee_deep_in_the_tree_is_reserved_on_every_level() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=28)
    cluster.queue("org", capability={"cpu": 20}, deserved={"cpu": 18})
    cluster.queue("t1", parent="org", deserved={"cpu": 10}, guarantee={"cpu": 4})
    cluster.queue("t2", parent="org", deserved={"cpu": 8}, capability={"cpu": 17})
    cluster.queue("ext", deserved={"cpu": 5}, guarantee={"cpu": 3})
    cluster.pods("t2", 25, queue="t2", cpu=1).run()
    assert len(cluster.placed("t2")) == 16
    cluster.pods("default", 20, cpu=1).run()
    assert len(cluster.placed("default")) == 5
    cluster.pods("t1", 20, queue="t1", cpu=1).pods("ext", 20, queue="ext", cpu=1).run()
    assert (len(cluster.placed("t1")), len(cluster.placed("ext"))) == (4, 3)


def test_queue_below_a_guaranteed_parent_does_not_use_its_siblings_guarantee() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10)
    cluster.queue("org", guarantee={"cpu": 6}).queue("a", parent="org", guarantee={"cpu": 4})
    cluster.queue("b", parent="org").pods("default", 9, cpu=1).run()
    assert len(cluster.placed("default")) == 4
    cluster.pods("b", 9, queue="b", cpu=1).run()
    assert len(cluster.placed("b")) == 2
    cluster.pods("a", 9, queue="a", cpu=1).run()
    assert len(cluster.placed("a")) == 4


def test_verdict_in_a_full_cluster_names_the_nodes_not_the_guarantee() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=4).queue("safe", guarantee={"cpu": 2})
    cluster.pods("safe", 3, queue="safe", cpu=1).pods("default", 2, cpu=1).run()
    assert len(cluster.placed()) == 4
    (waiting,) = cluster.waiting()
    verdict = cluster.why_pod(waiting)
    assert (verdict.code, verdict.unschedulable) == ("NotEnoughResources", True)


def test_guarantee_above_the_cluster_blocks_no_other_queue() -> None:
    cluster = Scenario().node("n", cpu=28)
    cluster.queue("typo", guarantee={"cpu": 1000}).queue("safe", guarantee={"cpu": 4})
    cluster.pods("p", 30, cpu=1).run()
    assert len(cluster.placed("p")) == 24
    cluster.pods("typo", 2, queue="typo", cpu=1).pods("safe", 4, queue="safe", cpu=1).run()
    assert len(cluster.placed("safe")) == 4


def test_oldest_of_conflicting_guarantees_are_reserved() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10)
    cluster.queue("young", guarantee={"cpu": 6}, created=2).queue("old", guarantee={"cpu": 6}, created=1)
    cluster.pods("p", 10, cpu=1).run()
    assert len(cluster.placed("p")) == 4
    cluster.node("more", cpu=2).run()  # now both fit
    cluster.pods("q", 10, cpu=1).run()
    assert len(cluster.placed()) == 4


class TestGuaranteesBeyondTheCapabilityAboveThem:
    """org has a capability of 10 of 30 CPUs, and its two children are guaranteed 8 each."""

    def cluster(self) -> Scenario:
        cluster = Scenario(CAPACITY).node("n", cpu=30).queue("org", capability={"cpu": 10}).queue("other")
        cluster.queue("a", parent="org", guarantee={"cpu": 8}, created=1)
        cluster.queue("b", parent="org", guarantee={"cpu": 8}, created=2)
        return cluster.queue("c", parent="org")

    def test_queues_outside_lose_at_most_the_capability_to_guarantees(self) -> None:
        cluster = self.cluster().pods("other", 30, queue="other", cpu=1).run()
        assert len(cluster.placed("other")) == 22

    def test_oldest_guarantee_is_reserved_and_the_remainder_is_free(self) -> None:
        cluster = self.cluster().pods("c", 9, queue="c", cpu=1).run()
        assert len(cluster.placed("c")) == 2
        cluster.pods("a", 9, queue="a", cpu=1).run()
        assert len(cluster.placed("a")) == 8

    def test_hint_names_the_queue_whose_guarantee_blocks(self) -> None:
        cluster = self.cluster().pods("c", 3, queue="c", cpu=1).run()
        (waiting,) = cluster.waiting()
        assert "lower the guarantee of queue a" in (cluster.why_pod(waiting).change or "")

    def test_raised_capability_reserves_both_guarantees(self) -> None:
        cluster = self.cluster().queue("org", capability={"cpu": 17}).pods("c", 9, queue="c", cpu=1).run()
        assert len(cluster.placed("c")) == 1


def test_hint_names_the_queue_deep_in_the_tree_that_has_the_guarantee() -> None:
    cluster = Scenario(CAPACITY).node("n", cpu=10).queue("org").queue("other")
    cluster.queue("deep", parent="org", guarantee={"cpu": 6}).queue("small", guarantee={"cpu": 1})
    cluster.pods("other", 4, queue="other", cpu=1).run()
    (waiting,) = cluster.waiting()
    assert (cluster.why_pod(waiting).change or "").endswith("or lower the guarantee of queue deep")
