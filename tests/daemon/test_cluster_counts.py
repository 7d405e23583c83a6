"""Metrics that are counted from the state of the cluster when Prometheus asks."""

from __future__ import annotations

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from phalanx.cluster import gangs
from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics import cluster_counts
from phalanx.daemon.metrics.accounts import AccountSeries
from phalanx.daemon.metrics.cluster_counts import OTHER, ClusterCounts, CountedCluster
from phalanx.daemon.metrics.deserved import DeservedShares, nothing
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.daemon.telemetry import Telemetry
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import Plan
from phalanx.model.events import NodeUpdated
from phalanx.model.gang import GangKey
from phalanx.model.node import Node
from phalanx.model.verdict import GangVerdict, Verdict
from phalanx.status.verdict_publisher import PublishingPace
from phalanx.views.gang_state import GangFacts
from phalanx.views.record_facts import gang_facts
from tests.scheduling.scenario import Scenario, amounts, key


def counted(world: Scenario) -> CountedCluster:
    def told(key: GangKey) -> Verdict | None:
        known = world.state.gangs[key].last_verdict
        return known[0] if known is not None else None

    return CountedCluster(world.state, lambda: world.scheduler, told)


def numbers(counts: ClusterCounts) -> dict[str, int]:
    """Return the numbers of gangs by state, without the states of no gang."""
    return {state: number for state, number in counts.gangs.items() if number}


class TestWhatWaits:
    def test_pods_are_in_the_queues_of_kube_scheduler(self) -> None:
        world = Scenario().node("n", cpu=2)
        world.job("runs", 2, cpu=1).job("large", 3, cpu=1).gang("half", minimum=2).pod("half-0", gang="half", cpu=1)
        world.pod("gated", cpu=1, gated=True).settle()
        assert counted(world).count(world.now).pods == {"active": 0, "backoff": 0, "unschedulable": 3, "gated": 2}
        world.pod("new", cpu=1)
        assert counted(world).count(world.now).pods["active"] == 1

    def test_gangs_are_counted_by_state_and_by_published_reason(self) -> None:
        world = Scenario().node("n", cpu=2).job("runs", 2, cpu=1).job("large", 3, cpu=1).settle()
        counts = counted(world).count(world.now + 50)
        assert numbers(counts) == {"pending": 1, "running": 1}
        ((queue, code), number) = next(iter(counts.waiting.items()))
        assert (queue, number) == ("default", 1)
        assert code == world.why("large").code
        assert counts.nodes == {"schedulable": 1, "unschedulable": 0}

    def test_gang_that_awaits_admission_is_pending_with_its_reason(self) -> None:
        """Its controller makes no pods before."""
        world = Scenario().node("n", cpu=1).queue("q", capability={"cpu": 1})
        need = amounts(cpu=4)
        world.gang("large", 4, queue="q", admission=True, admitted=False, min_resources=need, created=900).settle()
        counts = counted(world).count(world.now)
        assert numbers(counts) == {"pending": 1}
        assert counts.waiting == {("q", world.why("large").code): 1}
        assert counts.oldest == {"q": world.now - 900}

    def test_gang_with_finished_members_is_running(self) -> None:
        world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle().finishes("g-0", "g-1")
        assert numbers(counted(world).count(world.now)) == {"running": 1}

    def test_labels_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cluster_counts, "MOST_SERIES", most := 20)
        world = Scenario().node("n", cpu=1)
        for number in range(most + 5):
            world.queue(f"q{number}").job(f"g{number}", 2, queue=f"q{number}", cpu=4)
        world.settle()
        counts = counted(world).count(world.now)
        assert len(counts.waiting) == most + 1
        assert counts.waiting[OTHER, OTHER] == 5
        assert len(counts.oldest) <= most


class TestUpkeep:
    """Only changed gangs are counted again."""

    @pytest.mark.parametrize("seed", range(10))
    def test_incremental_counts_equal_a_full_count(self, seed: int) -> None:
        choice, world = random.Random(seed), Scenario().nodes(2, cpu=4).queue("a")
        told: dict[GangKey, Verdict] = {}
        kept = CountedCluster(world.state, lambda: world.scheduler, told.get)
        for step in range(40):
            names = sorted({gang.key.name for gang in world.state.gangs.values()})
            some = choice.choice(names or ["none"])
            match choice.randrange(8):
                case 0 | 1:
                    world.job(
                        f"g{step}", choice.randint(1, 5), cpu=1, queue=choice.choice(["a", "default", "late"])
                    )
                case 2 if names:
                    world.gang(some, choice.randint(1, 4), created=choice.randint(0, 900))
                case 3 if names:
                    gone = [uid for uid, pod in world.state.pods.items() if pod.gang and pod.gang.key.name == some]
                    world.gone(*gone[: choice.randint(1, 5)])
                    if choice.random() < 0.5:
                        world.no_gang(some)
                case 4:
                    world.queue(choice.choice(["a", "late"]), weight=step)
                case 5:
                    world.no_account(AccountKey(Tree.QUEUE, "late"))
                case 6 if names:
                    told[key(some)] = Verdict(choice.choice(["NotEnoughResources", "QueueNotFound"]), "words")
                    kept.touch(key(some))
                case _:
                    world.work() if choice.random() < 0.5 else world.settle()
            if choice.random() < 0.7:
                anew = CountedCluster(world.state, lambda: world.scheduler, told.get)
                touched = world.state.gangs.take_touched()
                expected = anew.count(world.now)
                world.state.gangs._touched = touched
                assert kept.count(world.now) == expected

    def test_only_changed_gangs_are_counted_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, looks = Scenario().node("n", cpu=1), list[GangKey]()
        for number in range(50):
            world.job(f"g{number}", 2, cpu=1)

        def facts_of(gang: GangRecord) -> GangFacts:
            looks.append(gang.key)
            return gang_facts(gang)

        monkeypatch.setattr(cluster_counts, "gang_facts", facts_of)
        counts = counted(world)
        counts.count(world.now)
        assert len(looks) == 50
        counts.count(world.now)
        assert len(looks) == 50
        world.pod("g7-more", gang="g7", cpu=1)
        counts.touch(key("g9"))
        counts.touch(key("unknown"))
        counts.count(world.now)
        assert sorted(looks[50:]) == [key("g7"), key("g9")]

    def test_deleted_gangs_are_forgotten_when_no_scrape_reads_the_counts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gangs, "_MOST_GONE", 5)
        world = Scenario()
        counts = counted(world)
        counts.count(world.now)
        for number in range(9):
            world.gang(f"g{number}").no_gang(f"g{number}")
        assert world.state.gangs.take_touched() is None
        world.job("new", 1, cpu=1)
        assert counts.count(world.now).gangs["pending"] == 1

    async def test_published_reason_of_a_gang_is_counted_at_once_without_another_change(self) -> None:
        """The reason is published just after the cycle; in a quiet cluster no other change may follow for long."""
        pace = PublishingPace(settle=0, settle_members=0)
        client = KubeClient(ClusterConfig("http://127.0.0.1:1"))
        service = SchedulerService(client, SchedulerOptions(leader_elect=False, pace=pace))
        for event in Scenario().node("n", cpu=1).job("large", 2, cpu=1).events:
            service.state.apply(event)

        def waiting() -> list[str]:
            lines = service.assembly.observation.inspection.counted()
            return [line.partition(" ")[0] for line in lines if line.startswith("phalanx_pending_gangs{")]

        series = 'phalanx_pending_gangs{{queue="default",reason="{}"}}'
        assert waiting() == [series.format("")]
        plan = service.scheduler.cycle(1000)
        service.assembly.status.plan_publisher.plan_decided(plan)
        service.assembly.status.verdict_publisher.publish_due()
        assert waiting() == [series.format("NotEnoughResources")]
        service.state.apply(NodeUpdated(Node("more", allocatable=(("cpu", 9000), ("pods", 9)))))
        service.assembly.status.plan_publisher.plan_decided(service.scheduler.cycle(1001))
        assert waiting() == []


def test_standby_counts_the_cluster_and_no_turns_or_reasons() -> None:
    world = Scenario().node("n", cpu=2).job("runs", 2, cpu=1).job("large", 3, cpu=1).pod("new", cpu=1)
    lines = list(counted(world).lines(world.now, leads=False))
    told = {line.partition("{")[0] for line in lines if not line.startswith("#")}
    assert told == {
        "phalanx_gangs",
        "phalanx_nodes",
        "phalanx_oldest_waiting_gang_seconds",
        "scheduler_cache_size",
    }


def test_exposition_can_be_parsed_for_any_object_names() -> None:
    world = Scenario().node("n", cpu=2).queue('odd"\\name', capability={"cpu": 2})
    world.job("runs", 1, cpu=1, queue='odd"\\name').settle()
    accounts = AccountSeries(world.state)
    text = "\n".join([*counted(world).lines(world.now), *accounts.lines(accounts.snapshot()), ""])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    used = [
        sample.value
        for sample in families["phalanx_account_resource"].samples
        if sample.labels.items() >= {"account": 'odd"\\name', "kind": "used", "resource": "cpu"}.items()
    ]
    assert used == [1000]
    assert {sample.labels["queue"] for sample in families["scheduler_pending_pods"].samples} == {
        "active",
        "backoff",
        "unschedulable",
        "gated",
    }


def test_pods_and_gangs_are_counted_apart_and_waits_by_queue() -> None:
    world, telemetry = Scenario().node("n", cpu=4), Telemetry()
    world.job("g", 3, cpu=1).pod("alone", cpu=1).job("large", 9, cpu=1)
    world.now += 90
    plan = world.cycle()
    telemetry.cycle(plan, 0.01, world.state, world.now)
    value = telemetry.registry.get_sample_value
    profile = {"profile": "phalanx"}
    assert value("scheduler_schedule_attempts_total", {"result": "scheduled"} | profile) == 4
    assert value("scheduler_schedule_attempts_total", {"result": "unschedulable"} | profile) == 9
    assert value("scheduler_podgroup_schedule_attempts_total", {"result": "scheduled"} | profile) == 1
    assert value("scheduler_podgroup_schedule_attempts_total", {"result": "unschedulable"} | profile) == 1
    # A gang that waits for members is no attempt: no placement is tried before they arrive.
    coming = Verdict("NotEnoughMembers", "only 1 of the 9 required pods of gang default/large exist")
    news = GangVerdict(GangKey("default", "large"), coming)
    telemetry.cycle(Plan(9, gangs=[news]), 0.01, world.state, world.now)
    assert value("scheduler_schedule_attempts_total", {"result": "unschedulable"} | profile) == 9
    assert value("phalanx_gang_wait_time_seconds_count", {"queue": "default", "priority_class": ""}) == 1
    assert value("phalanx_gang_wait_time_seconds_sum", {"queue": "default", "priority_class": ""}) == 90


def test_waits_are_by_the_class_of_the_gangs_priority_of_which_there_are_few() -> None:
    world, telemetry = Scenario().node("n", cpu=100), Telemetry()
    telemetry.priority_class_of = lambda priority: f"class-{priority}"
    for number in range(40):
        world.job(f"g{number}", 1, cpu=1, priority=number)
    telemetry.cycle(world.cycle(), 0.01, world.state, world.now)
    [family] = [each for each in telemetry.registry.collect() if each.name == "phalanx_gang_wait_time_seconds"]
    counts = {
        sample.labels["priority_class"]: sample.value for sample in family.samples if sample.name.endswith("_count")
    }
    assert len(counts) == 21
    assert counts[OTHER] == 20
    assert all(name == OTHER or name.startswith("class-") for name in counts)


class TestAccounts:
    def test_dominant_share_of_accounts_is_exported(self) -> None:
        world = Scenario().node("n", cpu=4, memory=2**30).job("runs", 1, cpu=1, memory=2**29).settle()
        assert shares(AccountSeries(world.state))["default"] == 0.5

    def test_accounts_with_the_largest_shares_have_series_and_the_remainder_is_summed(self) -> None:
        world = Scenario().node("n", cpu=100)
        for number in range(1, 6):
            world.queue(f"q{number}").job(f"g{number}", number, queue=f"q{number}", cpu=1)
        world.queue("other").job("g", 9, queue="other", cpu=1).settle()
        told = shares(AccountSeries(world.state, 3))
        # root holds the sum of all accounts.
        assert told == {"root": 0.24, "q5": 0.05, "q4": 0.04, OTHER: pytest.approx(0.15)}

    def test_shares_are_not_exported_where_the_limit_is_zero(self) -> None:
        world = Scenario().node("n", cpu=4).job("runs", 1, cpu=1).settle()
        series = AccountSeries(world.state, 0)
        assert list(series.lines(series.snapshot())) == []

    def test_deserved_amounts_equal_those_of_queue_list(self) -> None:
        """Amounts by weight of the cluster: no queue states its own. Pod slots are not exported."""
        world = Scenario().node("n", cpu=12, memory=2**34).queue("half", weight=1).queue("idle")
        world.job("runs", 4, cpu=2).job("large", 6, queue="half", cpu=2).settle()
        series = AccountSeries(
            world.state, deserved=DeservedShares(lambda: world.scheduler, lambda: world.now).as_of
        )
        told = deserved(series)
        assert told.pop(("root", "memory")) == 2**34
        assert told == {("root", "cpu"): 12000, ("default", "cpu"): 6000, ("half", "cpu"): 6000}

    def test_sums_are_up_to_date_without_a_planning_cycle(self) -> None:
        """A standby sees pods come and go, and no cycle adds them up."""
        state = ClusterState()
        for event in Scenario().node("n", cpu=4).pod("waits", cpu=1)._observed.values():
            state.apply(event)
        series = AccountSeries(state)
        line = 'phalanx_account_resource{account="default",family="queue",kind="pending",resource="cpu"} 1000'
        assert line in set(series.lines(series.snapshot()))

    def test_amounts_of_a_queue_count_where_the_policy_states_none(self) -> None:
        world = Scenario().node("n", cpu=12).queue("q", deserved={"cpu": 4})
        assert deserved(AccountSeries(world.state)) == {("q", "cpu"): 4000}
        assert deserved(AccountSeries(world.state, deserved=lambda copies: nothing)) == {}


def deserved(series: AccountSeries) -> dict[tuple[str, str], float]:
    text = "\n".join([*series.lines(series.snapshot()), ""])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {
        (sample.labels["account"], sample.labels["resource"]): sample.value
        for sample in families["phalanx_account_resource"].samples
        if sample.labels["kind"] == "deserved"
    }


def shares(series: AccountSeries) -> dict[str, float]:
    text = "\n".join([*series.lines(series.snapshot()), ""])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["phalanx_account_share"].samples
    assert len({frozenset(sample.labels.items()) for sample in samples}) == len(samples)
    return {sample.labels["account"]: sample.value for sample in samples}


def test_a_gang_above_its_minimum_runs_though_more_of_it_wait() -> None:
    world = Scenario().node("n", cpu=2).gang("elastic", minimum=2)
    for number in range(4):
        world.pod(f"elastic-{number}", gang="elastic", cpu=1)
    world.settle()
    assert numbers(counted(world).count(world.now)) == {"running": 1}


def test_usage_at_the_time_of_the_question_is_exported() -> None:
    world = Scenario().node("n", cpu=4).job("first", 1, cpu=1).settle()
    series = AccountSeries(world.state)
    seen = series.snapshot()
    world.job("second", 3, cpu=1).settle()
    line = 'phalanx_account_resource{{account="default",family="queue",kind="used",resource="cpu"}} {}'
    assert line.format(1000) in set(series.lines(seen))
    assert line.format(4000) in set(series.lines(series.snapshot()))


def test_room_reserved_until_victims_terminate_is_charged_to_the_victims() -> None:
    world = Scenario().node("n", cpu=4).job("runs", 1, cpu=4).pod("waits", cpu=4).settle()
    record = world.state.pods["waits"]
    world.state.pods.nominate(record, world.state.nodes.row("n"), Nomination())
    series = AccountSeries(world.state)
    assert shares(series)["root"] == 1
    lines = [line for line in series.lines(series.snapshot()) if 'account="root"' in line and '"cpu"' in line]
    told = {kind: line.rpartition(" ")[2] for kind in ("used", "pending") for line in lines if f'"{kind}"' in line}
    assert told == {"used": "4000", "pending": "4000"}
