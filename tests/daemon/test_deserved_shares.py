"""Deserved shares of queues as metrics: computed beside planning, and only after a relevant change."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.accounts import AccountRecord
from phalanx.daemon.metrics.accounts import AccountSeries
from phalanx.daemon.metrics.deserved import DeservedShares
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.framework.view import AccountView, View
from phalanx.scheduling.ordering.entitlements import ToldShares
from phalanx.scheduling.plugins.queues import proportion
from phalanx.scheduling.scheduler import Scheduler
from tests.scheduling.desk import policy, queue
from tests.scheduling.scenario import Scenario

PROPORTION = policy("name: proportion")
SHIFTED = policy(
    "name: proportion",
    'name: fairshare, arguments: {fairshare.half-life: "1h", fairshare.shift: 0.5}',
)
CAPACITY = policy("name: capacity")


@dataclass
class Asked:
    """By which threads shares were worked out."""

    threads: list[int] = field(default_factory=list)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    counted, real = Asked(), proportion.deserved_shares

    def deserved_shares(session: AccountView, *, by_priority: bool = False) -> dict[AccountKey, Mapping[str, int]]:
        counted.threads.append(threading.get_ident())
        return real(session)

    monkeypatch.setattr(proportion, "deserved_shares", deserved_shares)
    return counted


def two_queues() -> Scenario:
    world = Scenario(PROPORTION).node("n", gpu=12).queue("a").queue("b", weight=3)
    return world.pods("a", 12, queue="a", gpu=1).pods("b", 12, queue="b", gpu=1)


def gpus(world: Scenario, shares: DeservedShares, copies: AccountCopies) -> list[int]:
    copies.refresh()
    share = shares.as_of(copies)
    assert share is not None
    return [share(copies.accounts[queue(name)])["nvidia.com/gpu"] for name in "ab"]


def copies_of(world: Scenario) -> AccountCopies:
    return AccountCopies(world.state.ledger, (Tree.QUEUE, Tree.ELASTIC_QUOTA))


class TestWork:
    def test_taking_the_copy_works_nothing_out(self, asked: Asked) -> None:
        """Planning waits only for the copy."""
        world = two_queues()
        series = AccountSeries(world.state, deserved=DeservedShares(lambda: world.scheduler).as_of)
        snapshot = series.snapshot()
        assert asked.threads == []
        list(series.lines(snapshot))
        assert len(asked.threads) == 1

    def test_shares_are_computed_again_only_after_a_change_of_requests(self, asked: Asked) -> None:
        world = two_queues()
        shares, copies = DeservedShares(lambda: world.scheduler), copies_of(world)
        assert gpus(world, shares, copies) == gpus(world, shares, copies) == [3, 9]
        assert len(asked.threads) == 1
        world.gone(*(f"b-{number}" for number in range(1, 12)))
        assert gpus(world, shares, copies) == [11, 1]
        assert len(asked.threads) == 2

    def test_another_policy_counts_at_once(self) -> None:
        world = two_queues()
        shares, copies = DeservedShares(lambda: world.scheduler), copies_of(world)
        assert gpus(world, shares, copies) == [3, 9]
        world.queue("a", deserved={"gpu": 5}).queue("b", deserved={"gpu": 7})
        world.scheduler = Scheduler(world.state, Scenario(CAPACITY).policy)
        assert gpus(world, shares, copies) == [5, 7]

    def test_no_share_is_exported_without_a_plugin_for_shares(self) -> None:
        world = Scenario(policy()).queue("a")
        copies = copies_of(world)
        copies.refresh()
        assert DeservedShares(lambda: world.scheduler).as_of(copies) is None


@pytest.mark.slow_but_first(3)
@pytest.mark.parametrize("text", [PROPORTION, SHIFTED, CAPACITY], ids=["proportion", "shifted", "capacity"])
@pytest.mark.parametrize("seed", range(3))
def test_shares_of_a_copy_equal_shares_of_the_cluster(text: str, seed: int) -> None:
    """Also while the cluster has gone on: then as of the moment of the copy."""
    choice = random.Random(seed)
    world = Scenario(text).node("n", gpu=choice.randint(5, 60))
    shares, copies = DeservedShares(lambda: world.scheduler, now=lambda: world.now), copies_of(world)
    names: list[str] = []
    for step in range(12):
        if choice.random() < 0.5:
            names.append(f"q{step}")
            amounts = {"gpu": choice.randint(3, 30)}
            declared = {"deserved": amounts} if text == CAPACITY else {}
            above = choice.choice(["", *names[:-1]])
            least = {"gpu": choice.randint(1, 2)} if choice.random() < 0.2 else {}
            world.queue(names[-1], parent=above, weight=choice.randint(1, 5), guarantee=least, **declared)
        world.pods(f"p{step}", choice.randint(1, 9), queue=choice.choice(["default", *names]), gpu=1)
        world.now += choice.choice([1, 1800])
        world.settle()
        session = world.scheduler.new_session(world.now)
        told = ToldShares(session, session.plugin_runtime)
        expected = {
            key: told.of("deserved", record)
            for key, record in session.ledger.accounts.items()
            if key.tree is Tree.QUEUE
        }
        copies.refresh()
        share = shares.as_of(copies)
        assert share is not None
        world.pods(f"later{step}", 3, gpu=1).node(f"n{step}", gpu=4)
        world.state.ledger.refresh_sums()
        found = {key: share(record) for key, record in copies.accounts.items() if key.tree is Tree.QUEUE}
        assert found == expected


class Foreign(Plugin):
    """One that may look at anything."""

    name = "foreign"

    def __init__(self) -> None:
        self.asked = 0

    def deserved(self, session: View, account: AccountRecord) -> Mapping[str, int] | None:
        self.asked += 1
        return {"cpu": session.state.version}


def foreign_world() -> tuple[Scenario, Foreign]:
    world, plugin = Scenario().node("n", cpu=4).queue("a"), Foreign()
    world.scheduler = Scheduler(world.state, Policy(("allocate",), (ConfiguredPlugin(plugin, 0),)))
    return world, plugin


class TestOthersPlugins:
    def test_are_asked_at_once_and_then_for_some_seconds_not_again(self) -> None:
        world, plugin = foreign_world()
        queues, clock = 3, 0.0  # root, default and a

        def tick() -> float:
            nonlocal clock
            clock += 0.125  # the duration of the computation: its results are valid for 20 times that
            return clock

        shares, copies = DeservedShares(lambda: world.scheduler, clock=tick), copies_of(world)
        copies.refresh()
        assert shares.as_of(copies) is not None
        assert plugin.asked == queues
        for number in range(15):
            world.pod(f"p{number}", cpu=1)
            copies.refresh()
            shares.as_of(copies)
        assert plugin.asked == queues
        clock += 2.5
        world.pod("last", cpu=1)
        copies.refresh()
        shares.as_of(copies)
        assert plugin.asked == 2 * queues


def leader() -> SchedulerService:
    client = KubeClient(ClusterConfig("http://127.0.0.1:1"))
    service = SchedulerService(client, SchedulerOptions(leader_elect=False))
    for event in two_queues().events:
        service.state.apply(event)
    service.ready.set()
    return service


class TestOfTheProcess:
    async def test_the_loop_is_free_while_it_is_worked_out(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = await leader().assembly.observation.inspection.counted_apart()
        assert 'account="b",family="queue",kind="deserved",resource="nvidia.com/gpu"} 9' in text
        assert asked.threads
        assert threading.get_ident() not in asked.threads

    async def test_failed_amount_loses_no_other_amounts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def raises(session: AccountView) -> dict[AccountKey, Mapping[str, int]]:
            raise LookupError("a bug of a plugin")

        monkeypatch.setattr(proportion, "deserved_shares", raises)
        service = leader()
        text = await service.assembly.observation.inspection.counted_apart()
        assert 'kind="pending"' in text
        assert 'kind="deserved"' not in text
        assert service.telemetry.registry.get_sample_value("phalanx_failures_total", {"part": "plugin"}) == 1
