"""The action `reserve`: waiting units get a reserved start, and pods that end in time are placed before it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.promise_records import SlipCause, decode, decode_losses, encode
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import HostPort
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.window import Window
from phalanx.scheduling.scheduler import Scheduler
from tests.scheduling.features import starts

from ..extent import examples
from .reference_easy import RigidJob, easy_starts
from .scenario import Scenario, amounts

pytestmark = pytest.mark.feature("start-reservations")


def policy(**arguments: object) -> str:
    stated = ", ".join(f"{key}: {value}" for key, value in ({"startDelaySeconds": 0} | arguments).items())
    return f"""
actions: "enqueue, allocate, reserve, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}]}}]
configurations: [{{name: reserve, arguments: {{{stated}}}}}]
"""


def lasting(seconds: int, grace: int = 0) -> dict[str, Any]:
    """Return fields of a pod that is killed after this number of seconds."""
    return {"run_time": RunTime(seconds), "grace": grace}


def runs_for(seconds: int) -> PodClass:
    return PodClass(run_limit=seconds)


def plan_of(world: Scenario) -> ReservationPlan:
    plan = starts(world.scheduler).plan
    assert plan is not None
    return plan


def start_of(world: Scenario, name: str) -> int | None:
    """Return the latest start of a pod or gang, in seconds from the beginning of the scenario."""
    found = [each for each in plan_of(world).all() if each.name.endswith(f"/{name}")]
    return found[0].start - 1000 if found else None


def node_of(world: Scenario, name: str) -> str:
    record = world.state.pods[name]
    return record.assumed_node or record.pod.node


def busy(world: Scenario, name: str, node: str, seconds: int, **amounts: Any) -> Scenario:
    """Return a pod that runs since the beginning and is killed after this number of seconds."""
    return world.pod(
        name,
        node=node,
        pod_class=runs_for(seconds),
        more={**lasting(seconds), "started": 1000, "bound": 1000},
        **amounts,
    )


def test_gang_that_loses_a_required_member_loses_its_reserved_start() -> None:
    world = busy(Scenario(policy(depth=0)).node("n1", cpu=4), "short", "n1", 100, cpu=2)
    world.job("gang", 2, cpu=2).pod("later", cpu=1).work()
    assert (start_of(world, "gang"), world.waiting()) == (100, ["gang-0", "gang-1", "later"])
    world.gone("gang-1").work()
    assert (start_of(world, "gang"), world.waiting()) == (None, ["gang-0"])
    world.gone("later").pod("gang-2", gang="gang", cpu=2).work()
    assert start_of(world, "gang") == 100


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
def test_unit_of_higher_priority_takes_the_start_of_a_lower_one_and_starts_when_room_frees(refreshes: bool) -> None:
    world = Scenario(policy(depth=0)).node("n1", cpu=4).node("n2", cpu=4)
    world.scheduler = Scheduler(world.state, world.policy, refresh_verdicts=refreshes)
    busy(world, "long", "n1", 1000, cpu=4)
    busy(busy(world, "short-1", "n2", 100, cpu=2), "short-2", "n2", 100, cpu=1)
    world.pod("low", cpu=4).work()
    world.pod("high", cpu=3, priority=10).work()
    assert (start_of(world, "low"), start_of(world, "high")) == (1000, 100)
    world.gone("short-1").work()
    assert node_of(world, "high") == "n2"
    assert start_of(world, "low") == 1000


def waiting(world: Scenario, name: str, seconds: int, **fields: Any) -> Scenario:
    more = {**lasting(seconds), **fields.pop("more", {})}
    return world.pod(name, pod_class=runs_for(seconds), more=more, **fields)


class TestReservedUnits:
    def test_first_waiting_unit_starts_when_enough_pods_have_ended(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "short", "a", 100, cpu=2)
        busy(world, "long", "a", 300, cpu=2)
        waiting(world, "head", 50, cpu=3)
        world.settle()
        assert start_of(world, "head") == 300
        assert world.why_pod("head").message.endswith(
            "cpu. It starts no later than 1970-01-01T00:21:40Z, by the run-time limits of 2 running gangs; "
            "planned 1970-01-01T00:16:40Z."
        )

    def test_depth_limits_the_number_of_reserved_starts(self) -> None:
        for depth, kept in ((1, 1), (2, 2), (0, 3)):
            world = Scenario(policy(depth=depth)).node("a", cpu=4)
            busy(world, "runs", "a", 100, cpu=4)
            for number in range(3):
                world.now += 1
                waiting(world, f"w{number}", 50, cpu=4)
            world.settle()
            assert len(plan_of(world)) == kept

    def test_unit_behind_the_reserved_ones_has_no_turn_at_the_arrival_of_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "first", 50, cpu=4).work()
        waiting(world, "second", 60, cpu=4).work()
        limits: list[int] = []
        place = world.scheduler.placer.place

        def noted(pod_class: ClassRecord, count: int) -> list[int]:
            limits.append(pod_class.spec.run_limit)
            return place(pod_class, count)

        monkeypatch.setattr(world.scheduler.placer, "place", noted)
        waiting(world, "third", 70, cpu=4).work()
        assert limits == [70]

    def test_arrival_without_idle_room_recomputes_no_future(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = Scenario(policy(depth=1, forecastSeconds=0)).node("a", cpu=4).node("b", cpu=4)
        busy(busy(world, "short", "a", 100, cpu=4), "long", "b", 200, cpu=4)
        waiting(world, "first", 50, cpu=4).work()
        times: list[int] = []
        advance = FutureMatrix.advance

        def noted(matrix: FutureMatrix, now: int, windows: Iterable[Window]) -> None:
            times.append(now)
            advance(matrix, now, windows)

        monkeypatch.setattr(FutureMatrix, "advance", noted)
        world.now += 10
        waiting(world, "second", 60, cpu=4).work()
        assert times == []
        world.gone("long").work()
        assert set(times) == {1010}
        assert (node_of(world, "first"), world.waiting()) == ("b", ["second"])

    def test_next_unit_is_reserved_in_the_cycle_in_which_the_reserved_one_starts(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "first", 50, cpu=3).work()
        world.now += 1
        waiting(world, "second", 60, cpu=4).work()
        world.now += 1
        world.pod("third", cpu=1).work()
        world.gone("runs").cycle()
        assert (node_of(world, "first"), start_of(world, "second")) == ("a", 52)
        assert world.waiting() == ["second", "third"]

    def test_start_in_the_whole_window_and_the_next_reservation_need_no_further_cycle(self) -> None:
        world = Scenario(policy(depth=1, forecastSeconds=0)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "first", 50, cpu=4)
        waiting(world, "second", 60, cpu=4).settle()
        world.now = 1100
        opened = world.state.capacity_version
        world.gone("runs")
        freed = world.state.capacity_version
        world.cycle()
        assert (node_of(world, "first"), start_of(world, "second")) == ("a", 150)
        assert freed > opened
        assert world.state.capacity_version == freed
        assert not world.scheduler.features.outdated

    def test_units_that_do_not_fit_side_by_side_get_successive_starts(self) -> None:
        world = Scenario(policy(depth=0)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for number in range(3):
            world.now += 1
            waiting(world, f"w{number}", 50, cpu=3)
        world.settle()
        assert [start_of(world, f"w{number}") for number in range(3)] == [100, 150, 200]

    def test_no_start_is_reserved_where_no_pod_has_an_end(self) -> None:
        world = Scenario(policy()).node("a", cpu=4).pod("service", node="a", cpu=4)
        waiting(world, "head", 50, cpu=3)
        world.settle()
        assert start_of(world, "head") is None
        assert world.why_pod("head").message.endswith("No start is known: a pod in its way has no known end.")
        # So units that fit are not held back for its sake.
        world.node("b", cpu=1).pod("endless", cpu=1).settle()
        assert node_of(world, "endless") == "b"

    def test_unit_that_has_not_waited_long_enough_gets_no_reserved_start(self) -> None:
        world = Scenario(policy(minAgeSeconds=60)).node("a", cpu=4)
        busy(world, "runs", "a", 1000, cpu=4)
        waiting(world, "head", 50, cpu=3)
        world.settle()
        assert start_of(world, "head") is None
        world.now += 60
        world.scheduler.activate_due(world.now)
        world.settle()
        assert start_of(world, "head") == 1000

    def test_members_of_a_gang_get_one_common_start(self) -> None:
        world = Scenario(policy()).nodes(3, cpu=2)
        for number, end in enumerate((100, 200, 300), start=1):
            busy(world, f"runs{number}", f"n{number}", end, cpu=2)
        world.gang("g", 2, created=world.now)
        for number in range(2):
            waiting(world, f"g-{number}", 50, gang="g", cpu=2)
        world.settle()
        assert start_of(world, "g") == 200

    def test_unit_of_a_queue_at_its_limit_waits_for_the_queues_own_pods(self) -> None:
        world = Scenario(policy_with("capacity")).node("a", cpu=8).queue("q", capability={"cpu": 4})
        world.pod(
            "runs",
            node="a",
            queue="q",
            cpu=3,
            pod_class=runs_for(100),
            more={**lasting(100), "started": 1000, "bound": 1000},
        )
        waiting(world, "head", 50, queue="q", cpu=2)
        world.settle()
        assert start_of(world, "head") == 100

    def test_surplus_uses_no_reserved_quota_like_a_single_pod(self) -> None:
        for gang in ("", "elastic"):
            world = Scenario(policy_with("capacity")).node("a", cpu=64).queue("q", capability={"cpu": 6})
            if gang:
                world.gang(gang, 1, queue="q", created=900)
            world.pod("member", node="a", queue="q", cpu=1, gang=gang)
            ends = {**lasting(100), "started": 1000, "bound": 1000}
            world.pod("runs", node="a", queue="q", cpu=3, pod_class=runs_for(100), more=ends)
            waiting(world, "head", 50, queue="q", cpu=5)
            world.settle()
            assert start_of(world, "head") == 100
            world.pod("further", queue="q", cpu=1, gang=gang).settle()
            assert not node_of(world, "further")
            assert start_of(world, "head") == 100


def policy_with(plugin: str) -> str:
    return policy().replace("{name: predicates}", f"{{name: predicates}}, {{name: {plugin}}}")


class TestBackfilledUnits:
    def world(self) -> Scenario:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=2)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        assert start_of(world, "head") == 100
        world.now += 10
        return world

    def test_pod_that_ends_in_time_starts_before_the_reserved_start(self) -> None:
        world = self.world()
        waiting(world, "quick", 90, cpu=2).settle()
        assert node_of(world, "quick") == "a"
        assert start_of(world, "head") == 100

    @pytest.mark.parametrize("seconds", [91, 0])
    def test_pod_that_ends_too_late_or_has_no_end_waits(self, seconds: int) -> None:
        world = self.world()
        if seconds:
            waiting(world, "slow", seconds, cpu=2)
        else:
            world.pod("slow", cpu=2)
        world.settle()
        assert node_of(world, "slow") == ""
        assert "reserved for units that start before the pod would end" in world.why_pod("slow").message

    def test_pod_that_fits_beside_the_reserved_unit_starts(self) -> None:
        world = Scenario(policy()).node("a", cpu=5)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.pod("endless", cpu=1).settle()
        assert node_of(world, "endless") == "a"

    def test_pod_of_higher_priority_starts_and_moves_the_reserved_start(self) -> None:
        world = self.world()
        world.pod("urgent", cpu=2, priority=10).settle()
        assert node_of(world, "urgent") == "a"
        # The head's start has moved, and the reason names the pod.
        plan = plan_of(world)
        world.now += 1
        world.node("b", cpu=1).settle()
        slips = [slip for each in plan.all() for slip in each.slips]
        assert not plan.all() or [(slip.cause, slip.by) for slip in slips] == [
            (SlipCause.DISPLACED, "pod ns/urgent")
        ]


class TestChangesOfStarts:
    def test_early_end_moves_a_reserved_start_forward(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.now += 20
        world.gone("runs").settle()
        assert node_of(world, "head") == "a"
        assert dict(plan_of(world).starts.outcomes.counts) == {"Kept": 1}

    def test_lost_node_moves_a_reserved_start_and_is_named(self) -> None:
        world = Scenario(policy()).nodes(2, cpu=4)
        busy(world, "one", "n1", 100, cpu=4)
        busy(world, "two", "n2", 200, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        assert start_of(world, "head") == 100
        world.now += 10
        world.gone("one").no_node("n1").settle()
        assert start_of(world, "head") == 200
        assert [slip.cause for each in plan_of(world).all() for slip in each.slips] == [SlipCause.NODE_LOST]

    def test_overrun_moves_a_reserved_start_and_is_named(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.now = 1101
        world.scheduler.activate_due(world.now)
        world.settle()
        assert (start_of(world, "head") or 0) > 101
        (slip,) = (slip for each in plan_of(world).all() for slip in each.slips)
        assert (slip.cause, slip.by) == (SlipCause.OVERRUN, "pod ns/runs")

    def test_late_start_of_a_pod_moves_a_reserved_start_and_is_named(self) -> None:
        world = Scenario(policy(startDelaySeconds=30)).node("a", cpu=4)
        world.pod("runs", node="a", pod_class=runs_for(100), cpu=4, more={**lasting(100), "bound": 1000})
        waiting(world, "head", 50, cpu=4)
        world.settle()
        assert start_of(world, "head") == 130
        world.now = 1060
        world.becomes("runs", started=1050).settle()
        assert start_of(world, "head") == 150
        (slip,) = (slip for each in plan_of(world).all() for slip in each.slips)
        assert (slip.cause, slip.by) == (SlipCause.STARTED_LATE, "pod ns/runs")

    @pytest.mark.parametrize(("cpu", "start"), [(4, 300), (1, 100)])
    def test_changed_request_gets_another_reserved_start(self, cpu: int, start: int) -> None:
        """A waiting pod can be resized."""
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "short", "a", 200, cpu=1)
        busy(world, "shortest", "a", 100, cpu=1)
        busy(world, "long", "a", 300, cpu=2)
        waiting(world, "head", 50, cpu=2)
        world.settle()
        assert start_of(world, "head") == 200
        waiting(world, "head", 50, cpu=cpu).settle()
        assert start_of(world, "head") == start
        slips = [(slip.former, slip.start, slip.cause) for each in plan_of(world).all() for slip in each.slips]
        assert slips == ([(1200, 1300, SlipCause.DEMAND_CHANGED)] if start > 200 else [])

    def test_unit_without_a_node_at_its_promised_start_is_counted_as_such(self) -> None:
        """Constraints that are no amounts are checked only at the start: here a port."""
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=2)
        ports = PodClass(run_limit=50, host_ports=(HostPort(80),))
        world.becomes("head", pod_class=msgspec.structs.replace(ports, requests=amounts(cpu=2))).settle()
        world.pod("other", node="a", pod_class=PodClass(host_ports=(HostPort(80),)))
        world.now = 1100
        world.gone("runs")
        world.scheduler.activate_due(world.now)
        world.settle()
        assert node_of(world, "head") == ""
        world.now = 1110
        world.gone("other").settle()
        assert node_of(world, "head") == "a"
        assert dict(plan_of(world).starts.outcomes.counts) == {"NotPlaceable": 1}

    def test_unit_that_cannot_start_at_its_promised_time_is_not_retried_endlessly(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        world.gang("g", 1, created=world.now)
        waiting(world, "g-0", 50, gang="g", cpu=4).settle()
        assert start_of(world, "g") == 100
        # Its group requests more than the cluster has by then: it is held before any node is checked.
        world.gang("g", 2)
        world.now = 1100
        world.gone("runs")
        world.scheduler.activate_due(world.now)
        world.settle()
        assert not plan_of(world).active or (world.scheduler.next_recheck or 0) > world.now

    def test_deleted_unit_leaves_no_reserved_start_behind(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=2)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.pod("endless", cpu=2).settle()
        assert node_of(world, "endless") == ""
        world.gone("head").settle()
        assert not plan_of(world).active
        assert node_of(world, "endless") == "a"


class TestRestart:
    def test_restart_preserves_every_promised_start(self) -> None:
        world = Scenario(policy(depth=0)).nodes(2, cpu=4)
        busy(world, "one", "n1", 100, cpu=4)
        busy(world, "two", "n2", 200, cpu=4)
        world.gang("g", 2, created=1001, uid="u")
        for number in range(2):
            waiting(world, f"g-{number}", 50, gang="g", cpu=4)
        waiting(world, "small", 30, cpu=3, created=1002)
        world.settle()
        told = encode(starts(world.scheduler).promised()[1])
        before = [(each.name, each.start, each.window.rows.tolist()) for each in plan_of(world).all()]
        assert len(before) == 2

        again = restarted(world, told)
        assert [(each.name, each.start, each.window.rows.tolist()) for each in plan_of(again).all()] == before
        assert encode(starts(again.scheduler).promised()[1]) == told

    def test_restart_names_the_cause_of_lost_room_and_no_change_of_demand(self) -> None:
        slow = policy(startDelaySeconds=30)
        world = Scenario(slow).node("a", cpu=4)
        busy(world, "one", "a", 100, cpu=2)
        waiting(world, "head", 50, cpu=4).settle()
        told = encode(starts(world.scheduler).promised()[1])
        world.now += 10
        waiting(world, "urgent", 500, cpu=2, priority=9)
        again = restarted(world, told, slow)
        (reservation,) = plan_of(again).all()
        assert [slip.cause for slip in reservation.slips] == [SlipCause.DISPLACED]

    def test_restart_gives_no_start_to_another_group_of_the_same_name(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "one", "a", 100, cpu=4)
        world.gang("g", 1, created=1001, uid="u")
        waiting(world, "g-0", 50, gang="g", cpu=4).settle()
        told = encode(starts(world.scheduler).promised()[1])
        world.gang("g", 1, created=1001, uid="another")
        world.now += 10
        again = restarted(world, told)
        assert [each.made for each in plan_of(again).all()] == [1010]

    @pytest.mark.parametrize("uid", ["u", "another"])
    def test_restart_preserves_the_loss_of_a_start_and_its_cause(self, uid: str) -> None:
        world = Scenario(policy()).node("a", cpu=4).node("b", cpu=4)
        busy(world, "one", "a", 100, cpu=4)
        world.pod("endless", cpu=4, created=900).settle()
        assert node_of(world, "endless") == "b"
        world.gang("g", 1, created=1001, uid="u")
        waiting(world, "g-0", 50, gang="g", cpu=4).settle()
        world.gang("g", 2, created=1001, uid="u")
        waiting(world, "g-1", 50, gang="g", cpu=4).settle()
        lost = (
            "Its start at 1970-01-01T00:18:20Z was lost at 1970-01-01T00:16:40Z: DemandChanged; no start is known"
        )
        assert lost in world.why("g").message
        told = encode(*starts(world.scheduler).promised()[1:])
        world.gang("g", 2, created=1001, uid=uid)
        world.now += 10
        again = restarted(world, told, policy())
        assert (lost in again.why("g").message) == (uid == "u")
        assert (encode(*starts(again.scheduler).promised()[1:]) == told) == (uid == "u")

    def test_unreadable_loss_of_a_start_is_reported_and_forgotten(self) -> None:
        assert decode_losses('{"version":1,"losses":[{"slips":3}]}')[1][0].startswith("losses[0] is forgotten")
        assert decode_losses('{"version":1,"losses":3}') == ([], ["losses is no list and all are forgotten"])

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"version":1,"reservations":3}', '{"version":1,"reservations":[{"start":"x"}]}']
    )
    def test_unreadable_record_of_a_start_is_reported_and_forgotten(self, text: str) -> None:
        found, faults = decode(text)
        assert not found
        assert len(faults) == 1
        assert "forgotten" in faults[0]


def restarted(world: Scenario, told: str, under: str = policy(depth=0)) -> Scenario:
    """Start another process over the same cluster."""
    again = Scenario(under)
    again.now = world.now
    for event in world.events:
        again.state.apply(event)
    found, faults = decode(told)
    assert not faults
    losses, faults = decode_losses(told)
    assert not faults
    starts(again.scheduler).load(found, lost=losses)
    return again.settle()


def rigid_jobs(rows: list[tuple[int, int, int, int]]) -> list[RigidJob]:
    """Number jobs by kind within a second: pods of one second are ordered by kind, whatever their names."""
    kinds = dict.fromkeys((submit, width, run + late) for submit, run, width, late in rows)
    places = {kind: place for place, kind in enumerate(kinds)}
    ordered = sorted(rows, key=lambda row: places[row[0], row[2], row[1] + row[3]])
    return [
        RigidJob(submit, number, run, width, run + late)
        for number, (submit, run, width, late) in enumerate(ordered)
    ]


JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 10), st.integers(0, 30)),
    min_size=1,
    max_size=25,
).map(rigid_jobs)


@pytest.mark.thorough
@given(JOBS, st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.slow
def test_depth_of_one_equals_easy_backfilling(
    jobs: list[RigidJob], shortest_first: bool, refresh_verdicts: bool
) -> None:
    order = "shortest" if shortest_first else "queue"
    played = play(jobs, 10, policy(depth=1, backfillOrder=order), refresh_verdicts)
    assert played.starts == easy_starts(jobs, 10, shortest_first=shortest_first)


@pytest.mark.thorough
@given(JOBS, st.integers(0, 4))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.slow
def test_no_promise_is_broken_while_only_time_passes_and_jobs_arrive(jobs: list[RigidJob], depth: int) -> None:
    played = play(jobs, 10, policy(depth=depth))
    assert len(played.starts) == len(jobs)
    late = {number for number, promised in played.promised.items() if played.starts[number] > promised}
    assert not late


class Played:
    def __init__(self) -> None:
        self.starts: dict[int, int] = {}
        self.promised: dict[int, int] = {}


def play(jobs: list[RigidJob], processors: int, text: str, refresh_verdicts: bool = True) -> Played:
    """Run the scheduler in virtual time over one pool of processors."""
    base, played = 1_000_000, Played()
    state = ClusterState()
    scheduler = Scheduler(state, load_policy(text), refresh_verdicts)
    state.apply(NodeUpdated(Node("pool", allocatable=(("cpu", processors * 1000), ("pods", 10**6)))))
    plan = starts(scheduler).plan
    assert plan is not None
    coming = sorted(jobs, reverse=True)
    ends: list[tuple[int, str]] = []
    pods: dict[str, tuple[Pod, RigidJob]] = {}
    while coming or ends:
        now = min([job.submit for job in coming[-1:]] + [end for end, _ in ends[:1]])
        while ends and ends[0][0] == now:
            state.apply(PodRemoved(heapq.heappop(ends)[1]))
        while coming and coming[-1].submit == now:
            job = coming.pop()
            uid = f"j{job.number:03}"
            pod_class = PodClass(requests=(("cpu", job.width * 1000),), run_limit=job.limit)
            pod = Pod("ns", uid, uid, pod_class, pod_class.requests, "phalanx", created=base + job.submit, grace=0)
            pod = msgspec.structs.replace(pod, run_time=RunTime(job.limit))
            pods[uid] = (pod, job)
            state.apply(PodUpdated(pod))
        for _ in range(50):
            scheduler.activate_due(base + now)
            if scheduler.idle:
                break
            for bind in scheduler.cycle(base + now).binds:
                pod, job = pods[bind.uid]
                played.starts[job.number] = now
                change = {"node": "pool", "phase": PodPhase.RUNNING, "started": base + now, "bound": base + now}
                state.apply(PodUpdated(msgspec.structs.replace(pod, **change)))
                heapq.heappush(ends, (now + job.run, bind.uid))
            for each in plan.all():
                played.promised.setdefault(int(each.name[-3:]), each.promised - base)
        else:
            raise AssertionError("not idle after 50 cycles")
    return played


def test_confirmation_of_a_binding_with_an_unchanged_end_needs_no_further_cycle() -> None:
    state = ClusterState()
    state.apply(NodeUpdated(Node("n", allocatable=(("cpu", 4000), ("pods", 10)))))
    scheduler = Scheduler(state, load_policy(policy(depth=1)), refresh_verdicts=False)
    for uid, requests in (("runs", (("cpu", 3000),)), ("waits", (("cpu", 4000),))):
        pod_class = PodClass(requests=requests, run_limit=600)
        pod = Pod("ns", uid, uid, pod_class, requests, "phalanx", created=100, run_time=RunTime(600), grace=0)
        state.apply(PodUpdated(pod))
        plan = scheduler.cycle(100)
        if uid == "runs":
            (bind,) = plan.binds
            running = msgspec.structs.replace(pod, node=bind.node, bound=100, started=100, phase=PodPhase.RUNNING)
    while not scheduler.idle:
        scheduler.cycle(100)
    reservations = starts(scheduler).plan
    assert reservations is not None
    assert [reservation.key for reservation in reservations.all()] == ["waits"]
    state.apply(PodUpdated(running))
    assert scheduler.idle
    longer = msgspec.structs.replace(running, run_time=RunTime(900))
    state.apply(PodUpdated(longer))
    assert not scheduler.idle
