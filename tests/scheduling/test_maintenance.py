"""Maintenance windows: before a window nodes accept pods that end in time by their limit; within it, none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import (
    DisruptionBudgetUpdated,
    MaintenanceWindowRemoved,
    MaintenanceWindowUpdated,
    NodeSignalled,
    NodeUpdated,
    PodRejected,
)
from phalanx.model.maintenance import AtStart, Before, MaintenanceSignal, MaintenanceWindow
from phalanx.model.node import CORDONED, Node
from phalanx.model.pod import PodClass
from phalanx.model.promise_records import SlipCause
from phalanx.model.recurrence import parse_recurrence
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import Requirement, Toleration
from tests.scheduling.features import starts

from ..extent import examples
from .scenario import Scenario, amounts

pytestmark = pytest.mark.feature("maintenance")

HOUR = 3600
POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
RESERVING = POLICY.replace("allocate,", "allocate, reserve,") + "configurations: [{name: reserve}]"
DELAY = 30  # seconds between the binding and the start of a pod


def window(world: Scenario, *nodes: str, start: int, end: int, name: str = "w", **fields: Any) -> Scenario:
    """Times are in seconds from the beginning of the scenario."""
    made = MaintenanceWindow(name, f"uid-{name}", nodes, start=1000 + start, end=1000 + end, **fields)
    return world.observe(f"window {name}", MaintenanceWindowUpdated(made))


def lasting(world: Scenario, name: str, seconds: int, **fields: Any) -> Scenario:
    """Return a pod that is killed after this number of seconds, 0 for never."""
    limit = {"run_time": RunTime(seconds), "grace": 0} if seconds else {}
    return world.pod(name, pod_class=PodClass(run_limit=seconds), more=limit, **{"cpu": 1, **fields})


def later(world: Scenario, seconds: int) -> Scenario:
    """Advance the time without a change of the pods."""
    world.now += seconds
    world.scheduler.activate_due(world.now)
    return world


def placed(world: Scenario) -> dict[str, str]:
    return {name: world.where(name) for name in world.placed() if name != "busy"}


def test_pod_that_ends_before_the_window_is_placed_and_one_that_does_not_waits() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "short", HOUR - DELAY)
    lasting(world, "long", HOUR - DELAY + 1)
    lasting(world, "endless", 0)
    world.run()
    assert placed(world) == {"short": "n1"}
    assert world.why_pod("endless").message == (
        "0/1 nodes are available: 1 node(s) close for maintenance before it would end, from 1970-01-01T01:16:40Z."
    )
    assert world.why_pod("endless").change == (
        "set activeDeadlineSeconds so that it ends before the maintenance, or wait until that is over "
        "(makes 1 node eligible)"
    )


def test_node_outside_the_window_accepts_pods_that_do_not_end_in_time() -> None:
    world = window(Scenario(POLICY).nodes(2), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "endless", 0).run()
    assert placed(world) == {"endless": "n2"}


def test_gang_that_does_not_fit_beside_the_window_waits_as_a_whole() -> None:
    world = window(Scenario(POLICY).node("n1", cpu=2).node("n2", cpu=2), "n1", start=HOUR, end=2 * HOUR)
    world.gang("train", 3)
    for number in range(3):
        lasting(world, f"train-{number}", 2 * HOUR, gang="train")
    world.run()
    assert placed(world) == {}
    later(world, 2 * HOUR).run()
    assert len(placed(world)) == 3


def test_passing_time_closes_nodes_to_pods_that_no_longer_end_in_time() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "early", 1800).run()
    later(world, 1700)
    lasting(world, "just", 1800).run()
    later(world, 200)
    lasting(world, "late", 1800).run()
    assert set(placed(world)) == {"early", "just"}


def test_pod_past_its_limit_at_the_start_of_a_window_counts_as_ended() -> None:
    """A soak test revealed this: no event happens between the pod's possible end and the start."""
    world = window(Scenario(POLICY).node("other", cpu=1).node("n1"), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "early", 1800).run()
    later(world, HOUR + 10)
    lasting(world, "late", 1800).run()
    assert placed(world) == {"early": "other"}


def test_node_in_maintenance_accepts_no_pod_and_accepts_pods_at_once_afterwards() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=-10, end=HOUR)
    lasting(world, "short", 60).run()
    assert placed(world) == {}
    assert "1 node(s) were in maintenance" in world.why_pod("short").message
    assert "wait until the maintenance is over" in world.why_pod("short").change
    assert world.scheduler.next_recheck == 1000 + HOUR
    later(world, HOUR).run()
    assert placed(world) == {"short": "n1"}


def test_deleted_or_changed_window_opens_its_nodes() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "a", 0).run()
    assert placed(world) == {}
    window(world, "n2", start=HOUR, end=2 * HOUR).run()
    assert placed(world) == {"a": "n1"}
    window(world, "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "b", 0).run()
    assert set(placed(world)) == {"a"}
    world.observe("window w", MaintenanceWindowRemoved("w")).run()
    assert set(placed(world)) == {"a", "b"}


def test_window_selects_nodes_by_their_present_labels() -> None:
    world = Scenario(POLICY).node("n1", labels={"rack": "a"})
    window(world, start=HOUR, end=2 * HOUR, selector=(Requirement("rack", "In", ("a",)),))
    lasting(world, "endless", 0).run()
    assert placed(world) == {}
    world.node("n1", labels={"rack": "b"}).run()
    assert placed(world) == {"endless": "n1"}


def test_window_with_an_empty_selector_selects_all_nodes_and_without_one_none() -> None:
    world = window(Scenario(POLICY).nodes(2), start=HOUR, end=2 * HOUR, selector=())
    lasting(world, "a", 0).run()
    assert placed(world) == {}
    window(world, start=HOUR, end=2 * HOUR).run()
    assert set(placed(world)) == {"a"}


def test_window_with_a_late_closing_time_accepts_pods_without_a_limit_until_then() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=10 * HOUR, end=11 * HOUR, close_before=HOUR)
    lasting(world, "before", 0).run()
    later(world, 9 * HOUR)
    lasting(world, "after", 0)
    lasting(world, "short", 600).run()
    assert set(placed(world)) == {"before", "short"}


def test_window_that_accepts_all_pods_before_it_closes_at_its_start() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR, before=Before.ALL)
    lasting(world, "before", 0).run()
    later(world, HOUR)
    lasting(world, "after", 0).run()
    assert set(placed(world)) == {"before"}


def test_surplus_that_ends_at_the_start_is_placed_where_the_quorum_is_not() -> None:
    world = Scenario(POLICY).node("n1", cpu=2).node("n2", cpu=2)
    window(world, "n2", start=HOUR, end=2 * HOUR, before=Before.SURPLUS)
    world.gang("elastic", 2)
    for number in range(4):
        lasting(world, f"e-{number}", 0, gang="elastic")
    world.run()
    assert placed(world) == {"e-0": "n1", "e-1": "n1", "e-2": "n2", "e-3": "n2"}
    world.gang("rigid", 2)
    world.node("n2", cpu=4)
    for number in range(2):
        lasting(world, f"r-{number}", 0, gang="rigid")
    world.run()
    assert not any(name.startswith("r-") for name in placed(world))


def marked(world: Scenario, name: str, mark: str, **offered: Any) -> Scenario:
    """Return a node after our cordon, as the node controller has seen it."""
    node = Node(name, "", amounts(**{"pods": 110, "cpu": 64, "memory": "256Gi"} | offered))
    cordoned = msgspec.structs.replace(node, unschedulable=True, taints=(CORDONED,), cordoned_by=mark)
    return world.observe(f"node {name}", NodeUpdated(cordoned if mark else node))


def test_node_that_we_cordoned_accepts_no_pod_even_for_an_unknown_window() -> None:
    world = marked(Scenario(POLICY).node("n1"), "n1", "uid-w.1")
    lasting(world, "a", 60).run()
    assert placed(world) == {}
    assert "1 node(s) were in maintenance" in world.why_pod("a").message
    marked(world, "n1", "").run()
    assert placed(world) == {"a": "n1"}


def test_pod_that_tolerates_a_cordon_is_placed_on_a_cordoned_node() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=-1, end=HOUR)
    tolerant = PodClass(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"),))
    world.pod("agent", pod_class=tolerant, cpu=1).run()
    assert placed(world) == {"agent": "n1"}


def test_every_occurrence_of_a_recurring_window_counts() -> None:
    daily = parse_recurrence("FREQ=DAILY;COUNT=2", "UTC", (), 1000 + HOUR, HOUR)
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR, recurrence=daily)
    lasting(world, "a", 4 * HOUR).run()
    assert placed(world) == {}
    later(world, 2 * HOUR).run()
    assert set(placed(world)) == {"a"}
    later(world, 20 * HOUR)
    lasting(world, "b", 4 * HOUR)
    lasting(world, "c", HOUR).run()
    assert set(placed(world)) == {"a", "c"}
    # After the last occurrence no window blocks the pod.
    later(world, 4 * HOUR)
    lasting(world, "d", 0).run()
    assert set(placed(world)) == {"a", "b", "c", "d"}


def test_unreadable_window_closes_no_node() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR, problem="spec.start is bad")
    lasting(world, "a", 0).run()
    assert set(placed(world)) == {"a"}


def test_list_of_open_nodes_respects_the_window() -> None:
    world = window(Scenario(POLICY).nodes(2), "n1", start=HOUR, end=2 * HOUR)
    lasting(world, "a", 0).run()
    endless, short = world.state.pods["a"].pod_class, world.state.classes.record(PodClass(run_limit=60))
    row = world.state.nodes.row("n1")
    placer = world.scheduler.placer
    assert (placer.class_view(endless).mask[row], placer.class_view(short).mask[row]) == (False, True)
    assert not placer.may_stay_nominated(endless, row)
    assert placer.may_stay_nominated(short, row)


class TestSignals:
    def test_pod_that_would_outlive_its_node_is_not_placed_on_it(self) -> None:
        world = Scenario(POLICY).node("n1")
        said = (MaintenanceSignal("label of node n1", 1000 + 48 * HOUR),)
        world.observe("signal", NodeSignalled("n1", "Node", said))
        lasting(world, "long", 49 * HOUR)
        lasting(world, "short", HOUR)
        # A day before the time is early enough for a pod without a limit.
        lasting(world, "endless", 0).run()
        assert set(placed(world)) == {"short", "endless"}
        later(world, 24 * HOUR)
        lasting(world, "later", 0).run()
        assert set(placed(world)) == {"short", "endless"}
        world.observe("signal", NodeSignalled("n1", "Node")).run()
        assert set(placed(world)) == {"short", "endless", "later", "long"}

    def test_signal_long_in_the_past_is_forgotten(self) -> None:
        world = Scenario(POLICY).node("n1")
        world.observe("signal", NodeSignalled("n1", "Node", (MaintenanceSignal("label", 1000 + HOUR),)))
        lasting(world, "a", 0).run()
        later(world, 2 * HOUR).run()
        assert placed(world) == {}
        later(world, 24 * HOUR).run()
        assert set(placed(world)) == {"a"}

    def test_policy_can_ignore_node_signals(self) -> None:
        world = Scenario(POLICY + "\nphalanx: {maintenanceSignals: ignore}").node("n1")
        world.observe("signal", NodeSignalled("n1", "Node", (MaintenanceSignal("label", 1),)))
        lasting(world, "a", 0).run()
        assert set(placed(world)) == {"a"}


@pytest.mark.feature("start-reservations")
class TestPromisedStarts:
    def plan(self, world: Scenario) -> Any:
        plan = starts(world.scheduler).plan
        assert plan is not None
        return plan.all()

    def world(self) -> Scenario:
        world = Scenario(RESERVING).node("n1", cpu=4)
        running = {"run_time": RunTime(HOUR), "grace": 0, "started": 1000, "bound": 1000}
        world.pod("busy", node="n1", pod_class=PodClass(run_limit=HOUR), more=running, cpu=4)
        return world

    def test_promised_start_is_after_the_window_that_it_would_run_into(self) -> None:
        world = window(self.world(), "n1", start=2 * HOUR, end=3 * HOUR)
        lasting(world, "long", 2 * HOUR, cpu=4)
        world.run()
        assert [each.start for each in self.plan(world)] == [1000 + 3 * HOUR]
        world.gone("busy")
        later(world, 3 * HOUR).run()
        assert placed(world) == {"long": "n1"}

    def test_start_is_promised_on_a_node_that_we_cordoned(self) -> None:
        world = window(self.world(), "n1", start=-5, end=3 * HOUR)
        marked(world, "n1", "uid-w.995", cpu=4)
        lasting(world, "long", 2 * HOUR, cpu=4)
        world.run()
        assert [each.start for each in self.plan(world)] == [1000 + 3 * HOUR]

    def test_new_window_moves_a_promised_start_and_is_named(self) -> None:
        world = self.world()
        lasting(world, "long", 2 * HOUR, cpu=4)
        world.run()
        assert [each.start for each in self.plan(world)] == [1000 + HOUR]
        window(world, "n1", start=2 * HOUR, end=4 * HOUR).run()
        (reservation,) = self.plan(world)
        assert reservation.start == 1000 + 4 * HOUR
        assert [(slip.cause, slip.by) for slip in reservation.slips] == [
            (SlipCause.MAINTENANCE, "MaintenanceWindow w")
        ]
        # Without the window the start moves forward again.
        world.observe("window w", MaintenanceWindowRemoved("w")).run()
        assert [each.start for each in self.plan(world)] == [1000 + HOUR]

    def test_signal_moves_a_promised_start_and_is_named(self) -> None:
        world = self.world()
        lasting(world, "long", 2 * HOUR, cpu=4)
        world.run()
        said = (MaintenanceSignal("spec.expireAfter of NodeClaim c", 1000 + 2 * HOUR),)
        world.node("n2", cpu=2).observe("signal", NodeSignalled("n1", "NodeClaim", said)).cycle()
        # No other node has room, so no start is promised any more.
        assert self.plan(world) == []
        world.node("n2", cpu=4).run()
        assert placed(world) == {"long": "n2"}

    def test_unit_without_an_end_gets_no_promise_where_windows_recur_forever(self) -> None:
        weekly = parse_recurrence("FREQ=WEEKLY", "UTC", (), 1000 + 2 * HOUR, HOUR)
        world = window(self.world(), "n1", start=2 * HOUR, end=3 * HOUR, recurrence=weekly)
        lasting(world, "endless", 0, cpu=4)
        world.run()
        assert self.plan(world) == []


class TestEvictionAtTheStart:
    def world(self, **fields: Any) -> Scenario:
        world = Scenario(POLICY).nodes(3, cpu=2)
        return window(
            world, "n1", start=HOUR, end=2 * HOUR, at_start=AtStart.EVICT, **{"before": Before.ALL} | fields
        )

    def test_gang_is_evicted_as_a_whole_when_the_window_begins(self) -> None:
        world = self.world().gang("train", 4)
        for number in range(4):
            world.pod(f"t{number}", gang="train", node=f"n{1 + number % 2}", cpu=1)
        world.pod("apart", node="n3", cpu=1).run()
        assert world.evicted == []
        later(world, HOUR)
        assert world.scheduler.next_recheck == 1000 + HOUR
        world.run()
        assert sorted(world.evicted) == ["t0", "t1", "t2", "t3"]
        reasons = {(each.reason, each.message) for plan in world.plans for each in plan.evictions}
        assert reasons == {("Revoked", "node n1 is in maintenance (MaintenanceWindow w)")}

    def test_surplus_member_is_evicted_alone_when_the_window_begins(self) -> None:
        world = self.world().gang("elastic", 2)
        for number, node in enumerate(("n1", "n2", "n3")):
            world.pod(f"e{number}", gang="elastic", node=node, cpu=1)
        later(world.run(), HOUR).run()
        assert world.evicted == ["e0"]

    def test_pods_of_other_schedulers_and_daemon_sets_are_not_evicted_by_a_window(self) -> None:
        world = self.world()
        world.pod("theirs", node="n1", scheduler="default-scheduler", cpu=1)
        world.pod("agent", node="n1", cpu=1, more={"fixture": True})
        later(world.run(), HOUR).run()
        assert world.evicted == []

    def test_eviction_for_a_window_respects_disruption_budgets_and_is_retried(self) -> None:
        world = self.world()
        world.pod("p", node="n1", cpu=1, more={"budgets": ("db",)})
        budget = DisruptionBudget(world.namespace, "db", 0)
        world.observe("budget", DisruptionBudgetUpdated(budget))
        later(world.run(), HOUR).settle()
        assert world.evicted == []
        assert world.scheduler.next_recheck == world.now + 10
        world.observe("budget", DisruptionBudgetUpdated(msgspec.structs.replace(budget, allowed=1)))
        later(world, 10).settle()
        assert world.evicted == ["p"]

    def test_window_that_only_cordons_evicts_no_pod(self) -> None:
        world = Scenario(POLICY).nodes(1)
        window(world, "n1", start=HOUR, end=2 * HOUR, before=Before.ALL)
        world.pod("p", node="n1", cpu=1)
        later(world.run(), HOUR).run()
        assert world.evicted == []


def test_invalid_maintenance_setting_of_the_policy_is_named() -> None:
    with pytest.raises(Exception, match=r"maintenanceSignals: 'maybe' is unknown; expected honour or ignore"):
        Scenario(POLICY + "\nphalanx: {maintenanceSignals: maybe}")


def test_windows_with_equal_content_are_equal() -> None:
    world = window(Scenario(POLICY).node("n1"), "n1", start=HOUR, end=2 * HOUR).run()
    version = world.state.capacity_version
    window(world, "n1", start=HOUR, end=2 * HOUR)
    assert world.state.capacity_version == version


# -- against windows one by one ---------------------------------------------------------------------------------

moments = st.integers(-4, 40).map(lambda quarters: quarters * 900)
windows = st.fixed_dictionaries(
    {
        "node": st.sampled_from(("n1", "n2", "n3")),
        "start": moments,
        "lasts": st.sampled_from((900, 3600, 7200)),
        "daily": st.booleans(),
        "before": st.sampled_from((Before.LIMIT, Before.ALL)),
        "close_before": st.sampled_from((0, 1800, 3600)),
    }
)


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(windows, max_size=4),
    st.lists(
        st.tuples(st.sampled_from((0, 600, 900, 3600)), st.sampled_from((0, 300, 870, 1770, 7170))), max_size=12
    ),
)
def test_placed_pods_end_before_every_window_and_waiting_pods_would_not(
    stated: list[dict[str, Any]], arrivals: list[tuple[int, int]]
) -> None:
    world = Scenario(POLICY).nodes(3)
    made = []
    for number, each in enumerate(stated):
        start, end = each["start"], each["start"] + each["lasts"]
        daily = parse_recurrence("FREQ=DAILY", "UTC", (), 1000 + max(-900, start), each["lasts"])
        fields = {"recurrence": daily} if each["daily"] else {}
        fields |= {"before": each["before"], "close_before": each["close_before"]}
        window(world, each["node"], start=max(-900, start), end=end + 900, name=f"w{number}", **fields)
        made.append(world.state.nodes.maintenance.windows[f"w{number}"])
    world.work()
    for number, (pause, limit) in enumerate(arrivals):
        later(world, pause)
        now = world.now
        lasting(world, f"p{number}", limit, cpu="10m")
        world.work()

        def is_open(node: str, now: int = now, limit: int = limit) -> bool:
            ends = now + DELAY + limit if limit else 2**40
            for each in made:
                if node not in each.names:
                    continue
                for span in each.spans(now, now + 2 * 86_400):
                    begun = span.start <= now
                    applies = each.before is Before.LIMIT and now >= span.start - (each.close_before or 2**40)
                    if begun or (applies and ends > span.start):
                        return False
            return True

        where = placed(world).get(f"p{number}")
        if where is None:
            assert not any(is_open(node) for node in ("n1", "n2", "n3"))
        else:
            assert is_open(where)


def _close_by_window(world: Scenario, node: str) -> None:
    window(world, node, start=60, end=HOUR)


def _close_by_backoff(world: Scenario, node: str) -> None:
    pod = world.state.pods["high"].pod
    world.state.apply(PodRejected(node, "OutOfpods", pod.namespace, pod.pod_class, world.now))


@pytest.mark.parametrize(
    "close", [_close_by_window, pytest.param(_close_by_backoff, marks=pytest.mark.feature("rejecting-nodes"))]
)
def test_nominated_pod_waits_for_another_node_as_soon_as_its_node_closes(
    close: Callable[[Scenario, str], None],
) -> None:
    world = Scenario(POLICY.replace("allocate,", "allocate, preempt,"))
    for node in ("n1", "n2"):
        world.node(node, cpu=4).pod(f"low-{node}", node=node, cpu=4, priority=-10)
    world.pod("high", cpu=4).work()
    (former,) = world.held().values()
    close(world, former)
    world.work()
    other = "n2" if former == "n1" else "n1"
    assert world.held() == {"high": other}
    world.depart()
    world.work()
    assert world.where("high") == other
