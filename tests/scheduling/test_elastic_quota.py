"""Elastic quotas (scheduler-plugins, KEP-9): min, max, borrowing up to the sum of all min, whole gangs."""

from __future__ import annotations

from phalanx.model.account import AccountKey, Tree

from .scenario import Scenario


def quota(namespace: str) -> AccountKey:
    return AccountKey(Tree.ELASTIC_QUOTA, namespace)


def story(quotas: dict[str, tuple[int, int]], gpus: int = 10) -> Scenario:
    """A cluster of one-GPU nodes, and (min, max) GPUs per namespace."""
    scenario = Scenario().nodes(gpus, gpu=1)
    for namespace, (least, most) in quotas.items():
        scenario.elastic_quota(namespace, {"gpu": least}, {"gpu": most})
    return scenario


def gpus(scenario: Scenario, *namespaces: str) -> tuple[int, ...]:
    return tuple(scenario.used(quota(namespace), "gpu") for namespace in namespaces)


def test_story_1_namespace_borrows_up_to_its_max() -> None:
    """Seed story 1: A (min 4, max 6), B (min 6, max 8), 10 GPUs."""
    cluster = story({"a": (4, 6), "b": (6, 8)})
    cluster.within("a").pods("a1", 2, gpu=1).within("b").pods("b1", 3, gpu=1).run()
    assert gpus(cluster, "a", "b") == (2, 3)
    cluster.within("a").pods("a2", 2, gpu=1).run()
    assert gpus(cluster, "a", "b") == (4, 3)
    cluster.within("a").pods("a3", 3, gpu=1).run()
    assert gpus(cluster, "a", "b") == (6, 3)
    verdict = cluster.why_pod(cluster.waiting("a3")[0])
    assert verdict.code == "QuotaExceeded"
    assert not verdict.unschedulable
    assert verdict.message == "ElasticQuota a/quota: 6 nvidia.com/gpu in use, max 6; 1 more would exceed it"
    assert verdict.change == "free 1 nvidia.com/gpu charged to ElasticQuota a/quota, or raise its max to 7"


def test_story_2_quota_within_its_min_reclaims_from_one_above_its_min() -> None:
    """Seed story 2: A (3, 4), B (4, 6), C (3, 4), 10 GPUs."""
    cluster = story({"a": (3, 4), "b": (4, 6), "c": (3, 4)})
    cluster.within("a").pods("a1", 2, gpu=1).within("b").pods("b1", 2, gpu=1).within("c").pods("c1", 3, gpu=1).run()
    assert gpus(cluster, "a", "b", "c") == (2, 2, 3)
    cluster.within("a").pods("a2", 2, gpu=1).within("b").pods("b2", 1, gpu=1).run()
    assert gpus(cluster, "a", "b", "c") == (4, 3, 3)
    cluster.within("b").pod("b3", gpu=1).run()
    assert gpus(cluster, "a", "b", "c") == (3, 4, 3)
    assert [name[:2] for name in cluster.evicted] == ["a2"]


def test_worked_example_1_borrowing_ends_at_the_sum_of_all_min() -> None:
    """quota1 and quota2 (min 0, max 2 CPU), quota3 (min 1): one CPU can be borrowed, whatever the priority."""
    cluster = Scenario().node("n", cpu=8)
    cluster.elastic_quota("quota1", {"cpu": 0}, {"cpu": 2}).elastic_quota("quota2", {"cpu": 0}, {"cpu": 2})
    cluster.elastic_quota("quota3", {"cpu": 1}, {"cpu": 2})
    cluster.within("quota1").pod("nginx-1", cpu=1).run()
    assert cluster.placed() == ["nginx-1"]
    cluster.within("quota2").pod("nginx-2", cpu=1, priority=1_000_000).run()
    assert cluster.waiting() == ["nginx-2"]
    assert cluster.why_pod("nginx-2").message == (
        "all ElasticQuotas together: 1 cpu in use, sum of all min 1; 1 more would exceed it"
    )
    cluster.gone("nginx-1").run()
    assert cluster.placed() == ["nginx-2"]


def test_resource_without_min_is_limited_by_max_only() -> None:
    cluster = Scenario().node("n", cpu=8, memory="8Gi")
    cluster.elastic_quota("a", {"cpu": 4}, {"cpu": 4}).within("a")
    cluster.pod("p", cpu=1, memory="4Gi").run()
    assert cluster.placed() == ["p"]


def test_pod_of_a_namespace_without_quota_is_not_limited() -> None:
    cluster = story({"a": (1, 1)}, gpus=4)
    cluster.within("free").pods("p", 4, gpu=1).run()
    assert len(cluster.placed()) == 4


def test_quota_allows_a_gang_as_a_whole_or_not_at_all() -> None:
    cluster = story({"a": (2, 3), "b": (8, 8)})
    cluster.within("a").job("four", 4, gpu=1).run()
    assert cluster.placed() == []
    verdict = cluster.why("four")
    assert verdict.code == "QuotaExceeded"
    assert (verdict.needed, verdict.placeable, verdict.members) == (4, 3, 4)
    assert verdict.message == (
        "only 3 of the 4 required pods of gang a/four are within quota; "
        "ElasticQuota a/quota: 0 nvidia.com/gpu in use, max 3; 4 more would exceed it"
    )
    cluster.job("three", 3, gpu=1).run()
    assert cluster.placed() == ["three-0", "three-1", "three-2"]


def test_cheapest_members_start_where_the_quota_allows_no_more() -> None:
    cluster = Scenario().node("n", gpu=10).elastic_quota("a", {"gpu": 4}, {"gpu": 4}).within("a").gang("g", 2)
    cluster.pod("big", gang="g", gpu=3).pod("small-1", gang="g", gpu=2).pod("small-2", gang="g", gpu=2).run()
    assert cluster.placed() == ["small-1", "small-2"]


def test_members_above_the_minimum_stop_at_the_quota() -> None:
    cluster = story({"a": (3, 3)})
    cluster.within("a").job("elastic", 5, minimum=2, gpu=1).run()
    assert len(cluster.placed("elastic")) == 3
    assert cluster.why_pod(cluster.waiting("elastic")[0]).code == "QuotaExceeded"


def test_a_pod_of_another_scheduler_counts_towards_the_quota() -> None:
    cluster = story({"a": (2, 2)})
    cluster.within("a").pod("theirs", scheduler="default-scheduler", node="n1", gpu=1).pods("ours", 2, gpu=1).run()
    assert len(cluster.placed("ours")) == 1


def test_finished_pod_releases_its_quota_and_a_terminating_one_does_not() -> None:
    cluster = story({"a": (1, 1)})
    cluster.within("a").pod("first", gpu=1).run().pod("second", gpu=1).run()
    assert cluster.waiting() == ["second"]
    cluster.becomes("first", terminating=True).run()
    assert cluster.waiting() == ["second"]
    cluster.becomes("first", terminating=False).finishes("first").run()
    assert cluster.placed() == ["first", "second"]


def test_raised_or_deleted_quota_wakes_waiting_pods() -> None:
    cluster = story({"a": (1, 1), "b": (5, 5)})
    cluster.within("a").pods("p", 3, gpu=1).run()
    assert len(cluster.placed()) == 1
    cluster.elastic_quota("a", {"gpu": 1}, {"gpu": 2}).run()
    assert len(cluster.placed()) == 2
    cluster.no_account(quota("a")).run()
    assert len(cluster.placed()) == 3


def test_raised_quota_wakes_waiting_pods_after_an_unplaceable_pod_of_another_queue_is_gone() -> None:
    cluster = Scenario().node("n1", cpu=8).elastic_quota("a", {"cpu": 2}, {"cpu": 8}).queue("other").within("a")
    cluster.pod("large", cpu=3, queue="other").run().pod("waiting", cpu=4).run()
    assert cluster.gone("large").run().placed() == []
    assert cluster.elastic_quota("a", {"cpu": 6}, {"cpu": 8}).run().placed() == ["waiting"]


def test_lowered_max_evicts_no_pod_and_blocks_the_next() -> None:
    cluster = story({"a": (4, 4)})
    cluster.within("a").pods("p", 3, gpu=1).run()
    cluster.elastic_quota("a", {"gpu": 1}, {"gpu": 1}).pod("late", gpu=1).run()
    assert len(cluster.placed("p-")) == 3
    assert cluster.waiting() == ["late"]


def test_restart_recovers_the_usage_of_quotas() -> None:
    cluster = story({"a": (4, 6), "b": (6, 8)})
    cluster.within("a").job("j", 5, gpu=1).within("b").pods("b", 3, gpu=1).run()
    before = gpus(cluster, "a", "b")
    cluster.restart().run()
    assert gpus(cluster, "a", "b") == before == (5, 3)


def test_half_bound_gang_is_completed_although_its_quota_was_lowered() -> None:
    cluster = story({"a": (4, 4)})
    cluster.within("a").job("j", 4, gpu=1).work().confirm("j-0", "j-1")
    cluster.restart().elastic_quota("a", {"gpu": 1}, {"gpu": 1}).run()
    assert len(cluster.placed("j")) == 4
