"""`defragment`: within its windows and its budget, pods are moved so that a waiting gang or pod gets room."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.decisions import EvictionReason
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.run_time import RunTime
from phalanx.scheduling.defragmentation.runs import DefragmentationRuns
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy
from tests.scheduling.features import defragmentation

from ..extent import examples
from .scenario import NAMESPACE, Scenario

pytestmark = pytest.mark.feature("defragmentation")

# Scenarios begin on this day: 2024-01-01, 02:00 UTC.
TWO = 1_704_074_400
HOUR = 3600
LONG_AGO = {"controller": "owner", "started": TWO - 10 * HOUR, "bound": TWO - 10 * HOUR}


ACTIONS = "enqueue, allocate, backfill, defragment"


def policy(**arguments: object) -> str:
    actions = arguments.pop("actions", ACTIONS)
    stated = {"schedule": "FREQ=DAILY;BYHOUR=2", "duration": "2h"} | arguments
    return f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}, {{name: predicates}}, {{name: binpack}}]
configurations: [{{name: defragment, arguments: {json.dumps(stated)}}}]
"""


def halves(at: int = TWO, more: Mapping[str, object] | None = None, **arguments: object) -> Scenario:
    """Two nodes of 4 CPUs, half of each used by two pods; moved pods are created again."""
    made = Scenario(policy(**arguments)).nodes(2, cpu=4)
    made.now, made.recreates = at, True
    for node in ("n1", "n2"):
        for number in range(2):
            made.pod(f"{node}-{number}", node=node, cpu=1, more={**LONG_AGO, **(more or {})})
    return made


def world(at: int = TWO, more: Mapping[str, object] | None = None, **arguments: object) -> Scenario:
    """Add a gang of one pod that requests a whole node."""
    return halves(at, more, **arguments).job("whole", 1, cpu=4)


def awake(made: Scenario, at: int) -> Scenario:
    """Advance the time and run the scheduler at the times for which it asks."""
    made.now = at
    made.scheduler.activate_due(at)
    return made.settle()


class TestOneWhoWaitsGetsItsRoom:
    def test_pods_are_moved_for_a_waiting_gang_and_placed_again(self) -> None:
        made = world().settle()
        assert made.evicted in (["n1-0", "n1-1"], ["n2-0", "n2-1"])
        assert made.placed("whole") == ["whole-0"]
        assert made.waiting() == []

    def test_verdict_and_eviction_message_name_the_reason_of_a_move(self) -> None:
        made = world()
        made.work()
        (first, second) = [eviction for plan in made.plans for eviction in plan.evictions]
        target = {"n1": "n2", "n2": "n1"}[first.node]
        assert first.reason is EvictionReason.RESCHEDULED
        assert first.preemptor == "gang ns/whole"
        assert first.message == f"there is room for it on {target}, and a waiting unit needs its present room"
        assert first.cause == second.cause
        assert "to terminate" in made.why("whole").message

    def test_pods_are_moved_for_a_single_pod_too(self) -> None:
        made = halves().pod("alone", cpu=3)
        assert len(made.settle().evicted) == 1
        assert made.where("alone")

    def test_no_pod_is_moved_where_only_a_part_of_the_gang_would_fit(self) -> None:
        # Two nodes cannot be freed: the pods of one of them fit nowhere else.
        assert halves().job("pair", 2, cpu=4).settle().evicted == []

    def test_no_pod_is_moved_for_a_unit_that_a_quota_blocks(self) -> None:
        made = halves().queue("small", capability={"cpu": 3}).job("whole", 1, cpu=4, queue="small")
        assert made.settle().evicted == []

    def test_waiting_gang_with_reserved_start_starts_earlier(self) -> None:
        limit = {"run_time": RunTime(limit=20 * HOUR, limit_source="activeDeadlineSeconds")}
        made = halves(more=limit, actions="enqueue, allocate, reserve, backfill, defragment")
        made.job("whole", 1, cpu=4).settle()
        assert len(made.evicted) == 2
        assert made.placed("whole") == ["whole-0"]
        assert made.waiting() == []


class TestExcludedPods:
    @pytest.mark.parametrize(
        "more",
        [
            pytest.param({"controller": ""}, id="nobody would make it again"),
            pytest.param({"preemptable": False}, id="its owner forbids it"),
            pytest.param({"started": TWO - 60, "bound": TWO - 60}, id="it has just begun, or was just moved"),
            pytest.param({"run_time": RunTime(limit=10 * HOUR + 1800)}, id="its limit ends it soon"),
            pytest.param({"priority": 2_000_000_000}, id="it is critical"),
            pytest.param({"priority": 1}, id="it is worth more than the one who waits"),
        ],
    )
    def test_excluded_pods_are_not_moved(self, more: dict[str, object]) -> None:
        made = halves()
        for name in list(made.state.pods):
            made.becomes(name, **more)
        made.job("whole", 1, cpu=4)
        assert made.settle().evicted == []

    def test_pod_that_would_lose_too_much_work_is_not_moved_unless_it_has_a_checkpoint(self) -> None:
        assert world(maxLostSeconds=HOUR).settle().evicted == []
        assert len(world(more={"checkpoint": TWO - HOUR}, maxLostSeconds=HOUR).settle().evicted) == 2

    def test_no_disruption_budget_is_broken_by_a_move(self) -> None:
        made = halves(more={"budgets": ("keep",)})
        made.observe("budget", DisruptionBudgetUpdated(DisruptionBudget(NAMESPACE, "keep", 1)))
        assert made.job("whole", 1, cpu=4).settle().evicted == []

    def test_gang_is_moved_as_a_whole_or_not_at_all(self) -> None:
        def gangs(**arguments: object) -> Scenario:
            made = Scenario(policy(**arguments)).nodes(2, cpu=4)
            made.now, made.recreates = TWO, True
            made.gang("there", 2).pod("a", gang="there", node="n1", cpu=1, more=LONG_AGO)
            made.pod("b", gang="there", node="n2", cpu=1, more=LONG_AGO)
            return made.job("whole", 1, cpu=4)

        assert gangs().settle().evicted == []
        made = gangs(wholeGangs=True).settle()
        assert sorted(made.evicted) == ["a", "b"]
        assert made.placed("whole") == ["whole-0"]
        assert made.waiting() == []
        assert gangs(wholeGangs=True, maxEvictionsPerGang=1).settle().evicted == []

    def test_members_of_a_gang_below_its_minimum_are_not_moved(self) -> None:
        made = Scenario(policy(wholeGangs=True)).nodes(2, cpu=4).gang("there", 2)
        made.now, made.recreates = TWO, True
        made.pod("left", gang="there", node="n1", cpu=1, more=LONG_AGO).pod("b", node="n2", cpu=1)
        assert made.job("whole", 1, cpu=4).settle().evicted == []

    def test_no_pod_is_moved_where_another_waiting_unit_would_get_the_room(self) -> None:
        made = halves().queue("full", capability={"cpu": 2})
        made.becomes("n1-0", queue="full").becomes("n2-0", queue="full")
        # When one of the two is evicted, its queue has room for this pod.
        made.pod("next", cpu=1, queue="full")
        assert made.job("whole", 1, cpu=4).settle().evicted == []

    def test_run_moves_at_most_its_limit_of_pods(self) -> None:
        assert world(maxEvictionsPerRun=1).settle().evicted == []


class TestWhen:
    def test_pods_are_moved_only_within_a_window(self) -> None:
        made = world(at=TWO - 60).settle()
        assert made.evicted == []
        assert made.scheduler.next_recheck == TWO
        assert len(awake(made, TWO).evicted) == 2

    def test_window_follows_the_clock_of_its_time_zone(self) -> None:
        made = world(timeZone="Europe/Berlin").settle()  # 03:00 in that zone
        assert len(made.evicted) == 2
        made = world(timeZone="America/New_York").settle()
        assert (made.evicted, made.scheduler.next_recheck) == ([], TWO + 5 * HOUR)

    def test_after_a_window_has_closed_the_next_one_is_tomorrow(self) -> None:
        made = world(at=TWO + 2 * HOUR).settle()
        assert (made.evicted, made.scheduler.next_recheck) == ([], TWO + 24 * HOUR)

    def test_runs_repeat_each_interval_and_publish_nothing_while_nothing_changes(self) -> None:
        made = world(maxEvictionsPerRun=1, interval="10m").run()
        assert made.scheduler.next_recheck == TWO + 600
        said = len(made.plans)
        awake(made, TWO + 600)
        assert all(not (plan.evictions or plan.gangs or plan.nominations) for plan in made.plans[said:])
        assert defragmentation(made.scheduler).runs.outcomes == {"NothingToMove": 2}

    def test_unit_that_arrives_between_two_runs_waits_for_the_next_run(self) -> None:
        made = halves().settle()
        made.now += 60
        assert made.job("whole", 1, cpu=4).settle().evicted == []
        assert len(awake(made, TWO + 300).evicted) == 2


class TestBudget:
    def test_move_beyond_the_budget_is_reported_and_waits(self) -> None:
        made = world(maxEvictionsPerHour=1).settle()
        assert made.evicted == []
        text = "Moving 2 pods would make room; defragmentation can move 1 more this hour"
        assert text in made.why("whole").message

    def test_report_about_the_budget_ends_when_the_window_closes(self) -> None:
        made = world(maxEvictionsPerHour=1).settle()
        awake(made, TWO + 2 * HOUR)
        assert "defragmentation" not in made.why("whole").message

    def test_spent_budget_is_renewed_after_an_hour(self) -> None:
        made = world(maxEvictionsPerHour=2).settle()
        assert len(made.evicted) == 2
        made.now += 300
        made.nodes(2, prefix="m", cpu=4)
        for node in ("m1", "m2"):
            for number in range(2):
                made.pod(f"{node}-{number}", node=node, cpu=1, more=LONG_AGO)
        made.job("other", 1, cpu=4)
        assert len(awake(made, TWO + 300).evicted) == 2
        assert len(awake(made, TWO + HOUR + 1).evicted) == 4
        assert made.placed("other") == ["other-0"]

    def test_no_pod_is_evicted_before_the_budget_record_is_written(self) -> None:
        made = world()
        runs = defragmentation(made.scheduler).runs
        runs.load([], made.now)
        made.settle()
        assert made.evicted == []
        assert [entry.pods for entry in runs.entries] == [2]
        defragmentation(made.scheduler).confirm(runs.version)
        assert len(made.settle().evicted) == 2
        assert [(entry.until, entry.pods) for entry in runs.entries] == [(TWO + HOUR, 2)]

    def test_budget_record_that_was_not_written_in_time_is_booked_again(self) -> None:
        made = world()
        runs = defragmentation(made.scheduler).runs
        runs.load([], made.now)
        made.settle()
        late = runs.version
        awake(made, TWO + 300)
        defragmentation(made.scheduler).confirm(late)
        assert made.settle().evicted == []
        defragmentation(made.scheduler).confirm(runs.version)
        assert len(made.settle().evicted) == 2

    @pytest.mark.parametrize("evicted", [False, True])
    def test_restart_preserves_the_spent_budget(self, evicted: bool) -> None:
        made = world(maxEvictionsPerHour=2)
        runs = defragmentation(made.scheduler).runs
        runs.load([], made.now)
        made.work()
        kept = list(runs.entries)
        if evicted:
            defragmentation(made.scheduler).confirm(runs.version)
            made.settle()
        made.restart()
        defragmentation(made.scheduler).runs.load(kept, made.now)
        before = len(made.evicted)
        made.job("other", 1, cpu=4)
        awake(made, made.now + 300)
        assert len(made.evicted) == before

    def test_clock_set_back_blocks_no_budget_forever(self) -> None:
        made = world(maxEvictionsPerHour=2).settle()
        found = made.policy.defragmentation
        assert found is not None
        runs = defragmentation(made.scheduler).runs
        assert runs.left(found, TWO - 1000 * HOUR) == 0
        assert runs.left(found, TWO - 998 * HOUR) == 2


class TestSettings:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"schedule": ""}, "action defragment: argument schedule is missing"),
            ({"schedule": "DAILY"}, "argument schedule: 'DAILY' is not KEY=VALUE"),
            ({"schedule": "FREQ=DAILY;COUNT=3"}, "COUNT is not supported"),
            ({"duration": ""}, "argument duration"),
            ({"duration": "200h"}, "at most 7 days"),
            ({"timeZone": "Mars"}, "argument timeZone: 'Mars' is not an IANA time zone"),
            ({"interval": "5s"}, "argument interval: expected at least 1m"),
            ({"maxEvictionsPerHour": -1}, "argument maxEvictionsPerHour"),
            ({"maxEvictionPerHour": 1}, "unknown argument 'maxEvictionPerHour'"),
        ],
    )
    def test_wrong_settings_are_named(self, arguments: dict[str, object], said: str) -> None:
        with pytest.raises(PolicyError, match="(?s)" + said.replace("(", r"\(")):
            load_policy(policy(**arguments))

    def test_arguments_of_an_action_outside_of_the_policy_have_no_effect(self) -> None:
        found = load_policy(policy(actions="enqueue, allocate"))
        assert found.defragmentation is None
        assert any("action defragment" in remark for remark in found.inactive)


@st.composite
def clusters(draw: st.DrawFn) -> Scenario:
    """Nodes with pods, some of them in gangs, and waiting gangs."""
    budget = draw(st.integers(0, 6))
    made = Scenario(policy(maxEvictionsPerHour=budget, wholeGangs=draw(st.booleans()))).nodes(3, cpu=4)
    made.now, made.recreates = TWO, True
    made.gang("there", draw(st.integers(1, 3)))
    for row in (1, 2, 3):
        for number in range(draw(st.integers(0, 3))):
            gang = "there" if draw(st.integers(0, 3)) == 0 else ""
            made.pod(f"p{row}-{number}", node=f"n{row}", gang=gang, cpu=1, more=LONG_AGO)
    for number in range(draw(st.integers(1, 3))):
        made.job(f"w{number}", draw(st.integers(1, 2)), cpu=draw(st.integers(2, 4)))
    return made


def said(made: Scenario) -> list[tuple[str, str]]:
    return [(eviction.name, eviction.preemptor) for plan in made.plans for eviction in plan.evictions]


@pytest.mark.thorough
@given(clusters())
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_moved_pod_helps_a_unit_that_starts_and_is_placed_again(made: Scenario) -> None:
    found = made.policy.defragmentation
    assert found is not None
    for step in range(4):
        before, served = len(made.evicted), set(made.placed("w"))
        awake(made, TWO + step * 300)
        if len(made.evicted) > before:
            assert set(made.placed("w")) > served
        assert [name for name in made.waiting() if not name.startswith("w")] == []
    assert len(made.evicted) <= found.per_hour


@given(st.integers(0, 10), st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5), st.booleans()), max_size=30))
@settings(max_examples=50, deadline=None)
def test_evictions_of_any_hour_stay_within_the_budget(most: int, tries: list[tuple[int, int, bool]]) -> None:
    """Bookings, late evictions, and crashes of a process that recovers only the written record."""
    found = load_policy(policy(maxEvictionsPerHour=most)).defragmentation
    assert found is not None
    now, runs = TWO, DefragmentationRuns()
    runs.load([], now)
    gone: list[tuple[int, int]] = []
    for pause, pods, dies in tries:
        now += pause
        runs.begin(found, now)
        if runs.left(found, now) >= pods:
            runs.book(now, pods)
            written = list(runs.entries)
            gone.append((now + 59, pods))
            if not dies:
                runs.finish_run(now + 59, pods)
            else:
                runs = DefragmentationRuns()
                runs.load(written, now + 59)
            now += 59
        assert sum(number for when, number in gone if when > now - HOUR) <= most


def test_equal_clusters_get_equal_moves() -> None:
    assert said(world().settle()) == said(world().settle())
