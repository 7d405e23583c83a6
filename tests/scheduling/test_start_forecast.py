"""Forecast of every waiting unit: the promise of a conservative plan, or the reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.scheduling.reservations.forecast import NoStart, StartForecast
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.start_reservations.forecasts import UnitStart, forecast_starts
from phalanx.scheduling.start_reservations.plugin import plan_of as plan_of_session

from ..extent import examples
from .scenario import Scenario
from .test_reserve import busy, plan_of, policy, policy_with, waiting

pytestmark = pytest.mark.feature("start-reservations")

PLAIN = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
"""


def starts(world: Scenario, *, refused: bool = True, most: int = 10**9) -> dict[str, UnitStart]:
    """Return the forecasts by the name of the pod or gang."""
    left = [most]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    session = world.scheduler.new_session(world.now)
    units = world.scheduler.waiting_units(session)
    found = forecast_starts(
        session, plan_of_session(session), units, stop if most < 10**9 else never, refused=refused
    )
    return {each.unit.name.rpartition("/")[2]: each for each in found}


def forecast(world: Scenario, name: str) -> StartForecast:
    return starts(world)[name].forecast


def start(world: Scenario, name: str) -> int:
    found = forecast(world, name)
    assert found.no_start is None, found.message
    return found.start - 1000


class TestWhen:
    def test_units_without_a_promise_have_a_forecast_behind_it(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for number in range(3):
            world.now += 1
            waiting(world, f"w{number}", 50, cpu=3)
        world.settle()
        assert [start(world, f"w{number}") for number in range(3)] == [100, 150, 200]
        assert [each.reservation is not None for each in starts(world).values()] == [True, False, False]

    def test_forecast_reserves_nothing_and_changes_no_decision(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "w0", 50, cpu=3)
        world.now += 1
        waiting(world, "w1", 50, cpu=3)
        world.settle()
        before, version = plan_of(world).all(), world.state.capacity_version
        assert starts(world)
        assert (plan_of(world).all(), world.state.capacity_version) == (before, version)
        assert world.scheduler.idle

    def test_policy_without_reserved_starts_has_forecasts_too(self) -> None:
        world = Scenario(PLAIN).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=3)
        world.settle()
        assert start(world, "head") == 100

    def test_forecast_names_its_assumptions(self) -> None:
        world = Scenario(policy()).nodes(3, cpu=4).pod("service", node="n3", cpu=4)
        busy(world, "one", "n1", 100, cpu=4)
        busy(world, "two", "n2", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.now += 1
        waiting(world, "next", 50, cpu=4)
        world.settle()
        found = forecast(world, "next")
        assert (found.gangs, found.endless) == (1, 1)

    def test_unit_of_a_strict_fifo_queue_is_forecast_after_its_head(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4).queue("q", fifo=True)
        busy(world, "runs", "a", 100, cpu=3)
        for name, cpus in (("head", 4), ("small", 1)):
            world.now += 1
            waiting(world, name, 50, cpu=cpus, queue="q")
        world.settle()
        assert world.why_pod("small").code == "BehindInQueue"
        assert (start(world, "head"), start(world, "small")) == (100, 150)

    def test_unit_beyond_the_time_limit_of_the_forecast_is_not_planned_yet(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for number in range(3):
            world.now += 1
            waiting(world, f"w{number}", 50, cpu=3)
        world.settle()
        found = starts(world, most=2)
        assert [found[f"w{number}"].forecast.no_start for number in range(3)] == [None, None, NoStart.NOT_PLANNED]


class TestWhyNot:
    def why(self, world: Scenario, name: str = "head") -> tuple[NoStart | None, str]:
        world.settle()
        found = forecast(world, name)
        assert not found.start
        return found.no_start, found.message

    def test_reason_is_that_no_end_is_known(self) -> None:
        world = Scenario(policy()).nodes(2, cpu=4).pod("s1", node="n1", cpu=4).pod("s2", node="n2", cpu=4)
        waiting(world, "head", 50, cpu=3)
        assert self.why(world) == (NoStart.NO_END_KNOWN, "no end known: 2 pods on the nodes it could use")

    def test_reason_is_that_earlier_units_have_no_end(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        world.pod("endless", cpu=4)
        world.now += 1
        waiting(world, "head", 50, cpu=3)
        assert self.why(world) == (
            NoStart.NO_END_KNOWN,
            "no end known: 0 pods on the nodes it could use, and 1 before it without a limit",
        )

    def test_reason_is_a_start_beyond_the_horizon(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 8 * 86_400, cpu=4)
        waiting(world, "head", 50, cpu=3)
        assert self.why(world) == (NoStart.BEYOND_HORIZON, "beyond the horizon (7 days)")

    def test_reason_is_that_the_unit_can_never_run(self) -> None:
        world = Scenario(policy()).nodes(2, cpu=4)
        waiting(world, "head", 50, cpu=5)
        reason, message = self.why(world)
        assert reason is NoStart.CANNOT_RUN
        assert "2 nodes" in message

    def test_reason_is_that_the_quota_never_allows_the_unit(self) -> None:
        world = Scenario(policy_with("capacity")).node("a", cpu=8).queue("q", capability={"cpu": 4})
        waiting(world, "head", 50, queue="q", cpu=5)
        assert self.why(world) == (
            NoStart.CANNOT_RUN,
            "cannot ever run: capability of queue q (cpu) never allows so much",
        )

    def test_reason_is_a_start_after_the_deadline(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "first", 50, cpu=4)
        world.now += 1
        world.pod(
            "head",
            cpu=4,
            pod_class=PodClass(run_limit=50),
            more={"run_time": RunTime(50, deadline=1140), "grace": 0},
        )
        assert self.why(world) == (
            NoStart.DEADLINE,
            "cannot finish before its deadline 1970-01-01T00:19:00Z: the earliest start is 1970-01-01T00:19:10Z",
        )

    def test_reason_is_a_constraint_other_than_room(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        world.gang("g", 2, created=world.now)
        waiting(world, "g-0", 50, gang="g", cpu=1)
        assert self.why(world, "g") == (NoStart.HELD, "it waits for something else first (NotEnoughMembers)")


# (cpus, limit in seconds, pods); 0 for no limit. No pod ends during the test.
WAITING = st.lists(
    st.tuples(st.integers(1, 6), st.integers(30, 90) | st.just(0), st.integers(1, 3)), min_size=1, max_size=8
)


@pytest.mark.thorough
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(30, 90)), max_size=6),
    WAITING,
    st.integers(1, 3),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_forecast_equals_the_promise_of_a_conservative_policy(
    running: list[tuple[int, int]], asking: list[tuple[int, int, int]], nodes: int
) -> None:
    """From an empty plan, and again for new units while promises stand."""
    world = Scenario(policy(depth=0)).nodes(nodes, cpu=6)
    free = dict.fromkeys((f"n{number}" for number in range(1, nodes + 1)), 6)
    for number, (cpus, seconds) in enumerate(running):
        node = max(free, key=lambda name: (free[name], name))
        if free[node] >= cpus:
            free[node] -= cpus
            busy(world, f"r{number}", node, seconds, cpu=cpus)
    half = len(asking) // 2
    for part in (asking[:half], asking[half:]):
        world.now += 1
        world.cycle()  # so that existing promises are as early as they can be
        for number, (cpus, seconds, pods) in enumerate(part):
            name = f"w{world.now}{number}"
            if pods > 1:
                world.gang(name, pods, created=world.now)
            more: dict[str, Any] = {"gang": name} if pods > 1 else {}
            for member in range(pods):
                if seconds:
                    waiting(world, f"{name}-{member}" if more else name, seconds, cpu=cpus, **more)
                else:
                    world.pod(f"{name}-{member}" if more else name, cpu=cpus, **more)
        told = starts(world, refused=False)
        known = {each.name for each in plan_of(world).all()}
        world.cycle()
        plan = plan_of(world)
        for name, each in told.items():
            kept = plan.get(each.unit.key)
            if each.unit.name in known:
                continue
            if each.forecast.no_start is not None:
                assert kept is None, (name, each.forecast)
            elif each.forecast.start <= world.now:
                assert kept is None or kept.start <= world.now, name
                if nodes > 1:
                    break  # the scores choose the node
            else:
                assert kept is not None, (name, each.forecast)
                assert kept.promised == each.forecast.start, name
        world.settle()
        for record in [each for each in world.state.pods.values() if each.pod.node and not each.pod.started]:
            world.becomes(record.pod.name, bound=world.now, started=world.now)
