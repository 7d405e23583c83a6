"""`shuffle`: plugins select pods to evict, and no gang is broken for it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.disruption import DisruptionBudget, Portion
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.gang import GangKey
from phalanx.model.topology import SubgroupRule
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.extension_points import Victim
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.policy import ConfiguredPlugin
from phalanx.scheduling.framework.view import View
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

from .scenario import NAMESPACE, Scenario

POLICY = """
actions: "enqueue, allocate, backfill, shuffle"
tiers: [{plugins: [{name: gang}, {name: conformance}, {name: predicates}, {name: nodeorder}]}]
"""


class Broom(Plugin):
    """Plugin that selects the given pods, all in one round, and records the result of each."""

    name = "broom"

    def __init__(self, names: list[str], whole: bool) -> None:
        super().__init__(Arguments("broom", {}))
        self.names = names
        self.whole = whole
        self.went: dict[str, bool] = {}

    def victims(self, session: View) -> Iterator[Victim]:
        if not session.timers.due(self.name, 60, session.now):
            return
        session.timers.begin(self.name, session.now)
        for name in self.names:
            record: PodRecord | None = session.state.pods.get(name)
            if record is not None:
                yield Victim(record, EvictionReason.REVOKED, "it is swept out", self.whole)
                self.went[name] = record.evicting


def sweep(scenario: Scenario, *names: str, whole: bool = False) -> list[str]:
    """Return the evicted pods for this selection."""
    broom = Broom(list(names), whole)
    policy = load_policy(POLICY)
    policy = msgspec.structs.replace(policy, plugins=(*policy.plugins, ConfiguredPlugin(broom, 1)))
    scenario.scheduler = Scheduler(scenario.state, policy)
    scenario.cycle()
    assert broom.went == {name: name in scenario.evicted for name in names if name in broom.went}
    return scenario.evicted


def world() -> Scenario:
    return Scenario(POLICY).nodes(2, cpu=8)


def test_pods_of_one_unit_are_one_decision_and_other_units_are_another() -> None:
    scenario = world().pods("p", 2, cpu=1).job("g", 2, cpu=1).run()
    assert sweep(scenario, "p-0", "p-1", "g-0", whole=True) == ["p-0", "p-1", "g-0", "g-1"]
    first, second, third, fourth = [eviction.cause for eviction in scenario.plans[-1].evictions]
    assert third == fourth
    assert len({first, second, third}) == 3


def test_selected_single_pod_is_evicted() -> None:
    scenario = world().pods("p", 2, cpu=1).run()
    assert sweep(scenario, "p-1") == ["p-1"]
    (eviction,) = scenario.plans[-1].evictions
    assert (eviction.reason, eviction.message, eviction.preemptor) == (
        EvictionReason.REVOKED,
        "it is swept out",
        "",
    )


def test_room_of_a_selected_pod_is_not_used_before_it_is_free() -> None:
    scenario = Scenario(POLICY).node("n1", cpu=1).pod("first", cpu=1).run()
    sweep(scenario, "first")
    scenario.pod("second", cpu=1).work()
    assert scenario.placed() == ["first"]
    assert scenario.run().placed() == ["second"]


def test_pending_and_assumed_pods_are_skipped() -> None:
    scenario = world().pod("waits", cpu=99).pod("bound", cpu=1).run().pod("placed", cpu=1)
    scenario.cycle()
    assert sweep(scenario, "waits", "placed", "bound", "bound") == ["bound"]


class TestGangs:
    def test_selected_members_above_the_minimum_are_evicted_and_no_more(self) -> None:
        scenario = world().job("gang", 5, minimum=3, cpu=1).run()
        assert sweep(scenario, *(f"gang-{n}" for n in range(5))) == ["gang-0", "gang-1"]

    def test_roles_keep_their_minima(self) -> None:
        scenario = world().gang("gang", 1, roles=(("ps", 1),))
        scenario.pods("ps", 2, gang="gang", role="ps", cpu=1).pods("worker", 2, gang="gang", role="worker", cpu=1)
        assert sweep(scenario.run(), "ps-0", "ps-1", "worker-0", "worker-1") == ["ps-0", "worker-0", "worker-1"]

    def test_subgroups_keep_their_minima(self) -> None:
        scenario = world().gang("gang", 2, subgroups=(SubgroupRule("parts", keys=("part",), size=2, least=1),))
        for part in "ab":
            scenario.pods(f"{part}", 2, gang="gang", cpu=1, more={"labels": (("part", part),)})
        assert sweep(scenario.run(), "a-0", "b-0", "a-1", "b-1") == ["a-0", "a-1"]

    def test_gang_without_surplus_loses_no_member(self) -> None:
        scenario = world().job("gang", 3, cpu=1).run()
        assert sweep(scenario, "gang-0", "gang-1", "gang-2") == []

    def test_gang_without_surplus_is_evicted_whole_if_the_plugin_allows_it(self) -> None:
        scenario = world().job("gang", 3, cpu=1).run()
        assert sweep(scenario, "gang-1", whole=True) == ["gang-0", "gang-1", "gang-2"]

    def test_one_protected_member_protects_the_whole_gang(self) -> None:
        scenario = world().job("gang", 3, cpu=1).run().becomes("gang-2", critical=True)
        assert sweep(scenario, "gang-1", whole=True) == []

    def test_gang_group_is_evicted_with_its_gang(self) -> None:
        scenario = world().job("ps", 2, cpu=1).job("worker", 2, cpu=1)
        scenario.gang("ps", 2, gang_group=["ps", "worker"]).gang("worker", 2, gang_group=["ps", "worker"]).run()
        assert sorted(sweep(scenario, "worker-0", whole=True)) == ["ps-0", "ps-1", "worker-0", "worker-1"]

    def test_gang_whose_members_are_disrupted_only_together_is_evicted_whole(self) -> None:
        scenario = world().job("gang", 3, minimum=1, cpu=1).gang("gang", 1, unit=True).run()
        assert sweep(scenario, "gang-0") == []
        assert len(sweep(scenario, "gang-0", whole=True)) == 3

    def test_gang_without_a_declaration_is_not_evicted(self) -> None:
        scenario = world().pods("p", 2, gang="ghost", node="n1", cpu=1)
        assert scenario.state.gangs[GangKey(NAMESPACE, "ghost")].spec is None
        assert sweep(scenario, "p-0") == []

    def test_assumed_member_protects_its_gang(self) -> None:
        scenario = world().job("gang", 2, cpu=1).work()
        scenario.confirm("gang-0")
        assert sweep(scenario, "gang-0", whole=True) == []

    @pytest.mark.parametrize(
        ("budget", "gone"),
        [({"max_unavailable": Portion(1)}, 1), ({"min_available": Portion(50, percent=True)}, 2)],
    )
    def test_disruption_budget_of_the_gangs_owner_applies(self, budget: dict[str, object], gone: int) -> None:
        scenario = world().job("gang", 4, minimum=1, cpu=1).gang("gang", 1, **budget).run()
        assert len(sweep(scenario, *(f"gang-{n}" for n in range(4)))) == gone


class TestDisruptionBudgets:
    def test_disruption_budgets_are_hard_limits_for_shuffle(self) -> None:
        scenario = world().pods("p", 3, cpu=1, more={"budgets": ("b",)}).run()
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "b", allowed=2)))
        assert sweep(scenario, "p-0", "p-1", "p-2") == ["p-0", "p-1"]

    def test_evicted_pod_counts_until_the_budget_status_includes_it(self) -> None:
        scenario = world().pods("p", 3, cpu=1, more={"budgets": ("b",)}).run()
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "b", allowed=1)))
        assert sweep(scenario, "p-0") == ["p-0"]
        assert sweep(scenario, "p-1") == ["p-0"]

    def test_eviction_of_a_whole_gang_breaks_no_budget(self) -> None:
        scenario = world().job("gang", 3, cpu=1, more={"budgets": ("b",)}).run()
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "b", allowed=2)))
        assert sweep(scenario, "gang-0", whole=True) == []


@st.composite
def gangs(draw: st.DrawFn) -> Scenario:
    """Up to three running gangs, some with roles, some partly covered by a disruption budget."""
    scenario = Scenario(POLICY).nodes(4, cpu=8)
    for number in range(draw(st.integers(1, 3))):
        members, roles = draw(st.integers(1, 5)), draw(st.sampled_from([(), (("ps", 1),)]))
        scenario.gang(f"g{number}", draw(st.integers(1, members)), roles=roles, unit=draw(st.integers(0, 4)) == 0)
        for member in range(members):
            scenario.pod(
                f"g{number}-{member}",
                gang=f"g{number}",
                role="ps" if member == 0 else "worker",
                node=f"n{draw(st.integers(1, 4))}",
                cpu=1,
                more={"budgets": ("b",) if draw(st.booleans()) else (), "critical": draw(st.integers(0, 9)) == 0},
            )
    scenario.observe(
        "budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "b", allowed=draw(st.integers(0, 4))))
    )
    return scenario


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gangs(), st.data(), st.booleans())
def test_no_selection_of_pods_breaks_a_gang(scenario: Scenario, data: st.DataObject, whole: bool) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(scenario.state.pods)), unique=True))
    gone = set(sweep(scenario, *names, whole=whole))
    pods = {uid: record.pod for uid, record in scenario.state.pods.items()}
    assert whole or gone <= set(names)
    assert sum("b" in pods[uid].budgets for uid in gone) <= scenario.state.budgets["ns"]["b"].allowed
    assert not any(pods[uid].critical for uid in gone)
    for gang in scenario.state.gangs.values():
        assert gang.spec is not None
        left = [uid for uid in gang.members if uid not in gone]
        if len(left) == len(gang.members) or not left:
            continue
        assert not gang.spec.unit
        assert len(left) >= gang.spec.min_member
        assert all(sum(pods[uid].role == role for uid in left) >= least for role, least in gang.spec.roles)
