"""`phalanx queue` and `phalanx quota`: their answers about queues and quotas, from the cluster state alone."""

from __future__ import annotations

import pytest

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.dialects.warnings import ObjectRef
from phalanx.model.account import (
    Account,
    AccountKey,
    AccountState,
    Budget,
    EvictionRate,
    Limits,
    SelfProtection,
    Tree,
    limits_of,
)
from phalanx.model.events import AccountUpdated, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef, Problem
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.reports.account_entries import BudgetUse, Counts, QueueEntry, QueueReport, QuotaEntry
from phalanx.reports.queue_report import report
from phalanx.reports.snapshot import Snapshot
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy
from phalanx.scheduling.quota.usage_history import AccountUsage

CAPACITY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}]}]
"""
BARE = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
"""
REMEMBERING = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins: [{name: fairshare, arguments: {fairshare.half-life: 1h}}]
"""
ONE = PodClass(requests=requests_of({"cpu": 1000}))


def cpu(cores: int) -> Limits:
    return limits_of({"cpu": cores * 1000})


class World:
    """One node, queues and quotas, and pods of one CPU each."""

    def __init__(self, cpus: int) -> None:
        self.snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
        self.state = self.snapshot.state
        self.state.apply(NodeUpdated(Node("n", allocatable=requests_of({"cpu": cpus * 1000, "pods": 1000}))))
        self._pods = 0

    def queue(self, name: str, parent: str = "", **fields: object) -> World:
        above = AccountKey(Tree.QUEUE, parent) if parent else None
        return self.account(AccountKey(Tree.QUEUE, name), label=f"Queue {name}", parent=above, **fields)

    def quota(self, namespace: str, least: int, most: int) -> World:
        ref = GroupRef("scheduling.x-k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas", namespace, "quota", "u")
        key = AccountKey(Tree.ELASTIC_QUOTA, namespace)
        label = f"ElasticQuota {namespace}/quota"
        return self.account(key, label=label, source=ref, deserved=cpu(least), capability=cpu(most))

    def account(self, key: AccountKey, **fields: object) -> World:
        self.state.apply(AccountUpdated(Account(key, **fields)))  # type: ignore[arg-type]
        return self

    def pods(
        self, count: int, queue: str = "default", *, running: bool = False, namespace: str = "ns", gang: str = ""
    ) -> World:
        for _ in range(count):
            self._pods += 1
            self.state.apply(
                PodUpdated(
                    Pod(
                        namespace,
                        f"p{self._pods:03}",
                        f"u{self._pods}",
                        ONE,
                        ONE.requests,
                        "phalanx",
                        "n" if running else "",
                        PodPhase.RUNNING if running else PodPhase.PENDING,
                        queue=queue,
                        gang=gang,
                        created=self._pods,
                    )
                )
            )
        return self

    def gang(self, name: str, minimum: int, queue: str = "default") -> World:
        self.state.apply(GangUpdated(Gang(GangKey("ns", name), min_member=minimum, queue=queue)))
        return self

    def report(self, policy: str = DEFAULT_POLICY) -> QueueReport:
        return report(self.snapshot, load_policy(policy), 1e9)


def queue(answer: QueueReport, name: str) -> QueueEntry:
    return next(entry for entry in answer.queues if entry.name == name)


def quota(answer: QueueReport, name: str) -> QuotaEntry:
    return next(entry for entry in answer.quotas if entry.name == name)


class TestQueues:
    def test_tree_is_listed_from_the_root_down(self) -> None:
        world = World(8).queue("b").queue("a").queue("b2", parent="b").queue("b1", parent="b")
        answer = world.report()
        told = [(entry.name, entry.depth, entry.parent) for entry in answer.queues]
        assert told == [
            ("root", 0, ""),
            ("a", 1, "root"),
            ("b", 1, "root"),
            ("b1", 2, "b"),
            ("b2", 2, "b"),
            ("default", 1, "root"),
        ]

    def test_queue_shows_declared_and_used_amounts(self) -> None:
        world = World(8).queue("a", guarantee=cpu(1), capability=cpu(6), weight=3, priority=5, reclaimable=False)
        entry = queue(world.pods(2, "a", running=True).pods(1, "a").report(), "a")
        assert (entry.state, entry.weight, entry.priority, entry.reclaimable) == ("Open", 3, 5, False)
        assert (entry.guarantee, entry.capability) == ({"cpu": "1"}, {"cpu": "6"})
        assert (entry.used["cpu"], entry.running["cpu"], entry.pending["cpu"]) == ("2", "2", "1")
        assert (entry.share, entry.dominant) == (25.0, "cpu")
        assert entry.pods == Counts(2, 1)

    def test_share_of_an_idle_account_does_not_depend_on_the_usage_of_other_accounts(self) -> None:
        shown = []
        for busy in (False, True):
            world = World(10).queue("a", deserved=cpu(3)).queue("b").quota("ns", 3, 6)
            if busy:
                # Pods without requests: of all resources `pods` is used most.
                world.state.apply(PodUpdated(Pod("x", "p", "p", PodClass(), (), "phalanx", "n", PodPhase.RUNNING)))
            answer = world.report(CAPACITY)
            entries = (queue(answer, "a"), quota(answer, "ns/quota"))
            shown.append([(entry.dominant, entry.own_share) for entry in entries])
        assert shown == [[("cpu", 30.0), ("cpu", 30.0)]] * 2

    def test_room_reserved_until_victims_terminate_is_charged_to_the_victims(self) -> None:
        world = World(2).queue("default").queue("a").pods(2, running=True).pods(2, "a")
        for uid in ("u3", "u4"):
            world.state.pods.nominate(world.state.pods[uid], world.state.nodes.row("n"), Nomination())
        answer = world.report()
        assert (queue(answer, "default").share, queue(answer, "a").share) == (100.0, 0.0)
        assert (queue(answer, "a").used, queue(answer, "a").pending["cpu"]) == ({}, "2")

    def test_proportion_shows_the_current_deserved_share_and_the_share_at_full_demand(self) -> None:
        world = World(9).queue("a", weight=2).queue("b", weight=6).pods(9, "a")
        entry = queue(world.report(), "a")
        assert (entry.deserved, entry.entitled) == ({"cpu": "9"}, {"cpu": "2"})
        assert entry.own_share == pytest.approx(22.22)

    def test_capacity_shows_the_declared_share(self) -> None:
        world = World(9).queue("a", deserved=cpu(4), guarantee=cpu(1))
        entry = queue(world.report(CAPACITY), "a")
        assert entry.deserved == entry.entitled == {"cpu": "4"}

    def test_without_a_plugin_for_queues_nothing_is_deserved(self) -> None:
        answer = World(9).queue("a").pods(1, "a").report(BARE)
        assert answer.plugins == []
        assert (queue(answer, "a").deserved, queue(answer, "a").entitled) == ({}, {})

    def test_limit_is_shown_in_the_words_of_its_plugin(self) -> None:
        world = World(8).queue("a", capability=cpu(3)).queue("b").pods(8, "a").pods(8, "b")
        told = {each.word: each.limits["cpu"] for each in queue(world.report(), "a").ceilings}
        assert told == {"deserved share": "3", "capability": "3"}

    def test_running_gang_with_surplus_that_waits_counts_as_running(self) -> None:
        world = World(8).queue("a").gang("g", 1, "a").gang("h", 2, "a")
        world.pods(1, "a", gang="g", running=True).pods(1, "a", gang="g").pods(2, "a", gang="h")
        answer = world.report()
        assert queue(answer, "a").gangs == queue(answer, "root").gangs == Counts(1, 1)

    def test_demand_of_a_closed_queue_is_shown(self) -> None:
        entry = queue(World(8).queue("a", state=AccountState.CLOSED).pods(3, "a").report(), "a")
        assert (entry.state, entry.pending["cpu"]) == ("Closed", "3")
        assert entry.fault == "Queue a is closed and accepts no new pods"
        assert entry.first is not None
        assert entry.first.reason == "QueueClosed"

    def test_demand_for_a_missing_queue_is_a_warning_of_the_report(self) -> None:
        answer = World(8).pods(2, "nowhere").report()
        assert answer.warnings == ["queue nowhere does not exist: 2 pod(s) wait for this queue"]

    def test_faults_and_warnings_are_shown_at_their_queue(self) -> None:
        world = World(8).queue("a", problem=Problem("InvalidQueue", "weight is 0"))
        world.queue("b", parent="lost").queue("c", warnings=(Problem("Odd", "looks odd"),))
        answer = world.report()
        assert queue(answer, "a").fault == "weight is 0"
        assert queue(answer, "b").fault == "Queue b names the parent lost: not found"
        assert queue(answer, "c").warnings == ["Odd: looks odd"]

    def test_warning_shown_at_a_queue_is_not_repeated_for_the_report(self) -> None:
        world = World(8).queue("a", problem=Problem("InvalidQueue", "weight is 0"))
        world.queue("c", warnings=(Problem("Odd", "looks odd"),))
        for name, reason, message in (("a", "InvalidQueue", "weight is 0"), ("c", "Odd", "looks odd")):
            world.snapshot.intake.warn(ObjectRef("v1beta1", "Queue", "", name, ""), reason, message)
        second = ObjectRef("v1alpha1", "ElasticQuota", "ns", "second", "")
        world.snapshot.intake.warn(second, "Second", "one too many")
        assert world.report().warnings == ["Second: one too many"]


class TestBorrowing:
    def test_queue_above_its_share_borrows_from_queues_below_theirs(self) -> None:
        world = World(9).queue("busy").queue("idle").pods(9, "busy", running=True)
        answer = world.report()
        busy, idle = queue(answer, "busy"), queue(answer, "idle")
        assert (busy.borrowed, busy.partners) == ({"cpu": "6"}, ["default", "idle"])
        assert (idle.lent, idle.partners) == ({"cpu": "3"}, ["busy"])

    def test_room_that_is_still_free_is_not_lent(self) -> None:
        world = World(8).queue("a", deserved=cpu(2)).queue("b", deserved=cpu(2)).pods(5, "a", running=True)
        answer = world.report(CAPACITY)
        assert (queue(answer, "a").borrowed, queue(answer, "a").partners) == ({"cpu": "3"}, [])
        assert queue(answer, "b").lent == {}

    def test_guaranteed_amounts_are_not_lent(self) -> None:
        world = World(8).queue("a").queue("b", guarantee=cpu(4)).pods(4, "a", running=True)
        assert queue(world.report(), "b").lent == {}

    def test_child_borrows_from_the_lenders_of_its_parent(self) -> None:
        world = World(9).queue("p").queue("idle").queue("c", parent="p").pods(9, "c", running=True)
        assert queue(world.report(), "c").partners == ["default", "idle"]

    def test_elastic_quota_borrows_from_quotas_below_their_min(self) -> None:
        world = World(10).quota("a", 4, 6).quota("b", 6, 8)
        world.pods(6, namespace="a", running=True).pods(3, namespace="b", running=True)
        answer = world.report()
        a, b = quota(answer, "a/quota"), quota(answer, "b/quota")
        assert (a.min, a.max, a.used["cpu"]) == ({"cpu": "4"}, {"cpu": "6"}, "6")
        assert (a.borrowed, a.partners) == ({"cpu": "2"}, ["b/quota"])
        assert (b.lent, b.partners) == ({"cpu": "2"}, ["a/quota"])
        assert quota(answer, "(all)").min == {"cpu": "10"}


class TestThePast:
    def test_a_share_over_time_fades(self) -> None:
        world = World(10).queue("a").queue("b").pods(1, "b", namespace="x", running=True)
        world.snapshot.usages = [
            AccountUsage(AccountKey(Tree.QUEUE, "a"), 10**12 - 3600_000, {}, {"cpu": 8000.0}),
            AccountUsage(AccountKey(Tree.NAMESPACE, "x", "b"), 10**12, {}, {"cpu": 3000.0}),
        ]
        answer = world.report(REMEMBERING)
        assert (queue(answer, "a").past, queue(answer, "b").past) == (40.0, 0.0)
        assert [tenant.past for tenant in queue(answer, "b").tenants] == [30.0]

    def test_where_the_policy_does_not_look_back_there_is_none(self) -> None:
        assert queue(World(10).queue("a").report(), "a").past is None


class TestBudgets:
    def test_spent_part_of_a_budget_is_shown(self) -> None:
        budget = Budget(cpu(5), 3600)
        world = World(10).queue("a", budget=budget).pods(1, "a")
        spent = {"cpu": 2 * 1000 * 3600_000}
        world.snapshot.usages = [AccountUsage(AccountKey(Tree.QUEUE, "a"), 10**12, {}, {}, 999997200000, spent)]
        told = queue(world.report(), "a").budget
        assert told == BudgetUse("1h", "2001-09-09T02:00:00Z", {"cpu": "5"}, {"cpu": "2"})

    def test_queue_without_a_budget_shows_none(self) -> None:
        assert queue(World(10).queue("a").report(), "a").budget is None


class TestEvictionLimits:
    def test_amounts_of_an_account_are_shown_in_its_own_spelling(self) -> None:
        world = World(10).queue("a", min_run_time=5400, eviction_rate=EvictionRate(10, 60)).queue("b")
        answer = world.report()
        told = [(queue(answer, name).min_run_time, queue(answer, name).eviction_rate) for name in "ab"]
        assert told == [("1h30m", "10/1m"), ("", "")]

    def test_limits_of_eviction_protection_are_shown(self) -> None:
        world = World(10).queue("a", self_protection=SelfProtection.ALL, max_protection=7200).queue("b")
        answer = world.report()
        told = [(queue(answer, name).self_protection, queue(answer, name).max_protection_time) for name in "ab"]
        assert told == [("all", "2h"), ("", "")]


class TestFirstInLine:
    def test_first_waiting_gang_is_the_first_in_policy_order(self) -> None:
        world = World(2).queue("a").queue("b").pods(2, running=True)
        world.gang("young", 2, "b").pods(2, "a").pods(2, "b", gang="young")
        answer = world.report(BARE)
        a, b = queue(answer, "a").first, queue(answer, "b").first
        assert a is not None
        assert (a.name, a.reason) == ("pod ns/p003", "NotEnoughResources")
        assert b is not None
        assert (b.name, b.reason) == ("gang ns/young", "NotEnoughResources")
        assert "2 cpu" in b.change

    def test_gang_that_starts_now_has_no_waiting_reason(self) -> None:
        assert queue(World(2).queue("a").pods(2, "a").report(), "a").first is None

    def test_quota_lists_its_waiting_gangs(self) -> None:
        world = World(10).quota("a", 1, 1).pods(1, namespace="a", running=True).pods(1, namespace="a")
        first = quota(world.report(), "a/quota").first
        assert first is not None
        assert first.reason == "QuotaExceeded"
        assert first.change.startswith("free 1 cpu charged to ElasticQuota a/quota")

    def test_tenant_of_a_queue_sees_own_gangs_first(self) -> None:
        world = World(1).pods(1, running=True).pods(2, namespace="x").pods(1, namespace="y")
        tenants = {each.name: each for each in queue(world.report(), "default").tenants}
        assert {name: each.first.name for name, each in tenants.items() if each.first} == {
            "x": "pod x/p002", "y": "pod y/p004",
        }  # fmt: skip
        assert tenants["ns"].used["cpu"] == "1"


def test_koordinators_runtime_quota_is_shown() -> None:
    root = AccountKey(Tree.KOORDINATOR, "koordinator-root-quota")
    world = World(10).account(root, parental=True)
    world.account(
        AccountKey(Tree.KOORDINATOR, "a"), parent=root, deserved=cpu(4), capability=cpu(10), namespaces=("a",)
    )
    world.account(
        AccountKey(Tree.KOORDINATOR, "b"), parent=root, deserved=cpu(6), capability=cpu(10), namespaces=("b",)
    )
    world.pods(8, namespace="a", running=True).pods(1, namespace="b", running=True)
    answer = world.report()
    assert quota(answer, "a").runtime == {"cpu": "8"}
    assert (quota(answer, "a").borrowed, quota(answer, "b").lent) == ({"cpu": "4"}, {"cpu": "4"})
