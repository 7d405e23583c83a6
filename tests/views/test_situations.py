"""Twelve situations of a gang, and that every view which can show one shows the same state of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.accounting.runs import RUN_STATES, RunTotals, open_state
from phalanx.jobs.suspended import QUEUE_LABEL
from phalanx.model.pod import PodClass, PodPhase
from phalanx.model.run_time import RunTime
from phalanx.model.text.duration import format_moment
from phalanx.views.gang_state import GangState, PlacementForecast
from tests.scheduling.scenario import NAMESPACE, Scenario, amounts
from tests.views.situations import Situation

Json = dict[str, Any]

RESERVE = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
configurations: [{name: reserve, arguments: {startDelaySeconds: 0}}]
"""
METADATA: Json = {"name": "g", "namespace": NAMESPACE, "uid": "uid-j"}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no"}]}


def native(status: Json | None = None, *, members: int = 3, suspend: bool = False, **metadata: Any) -> Json:
    """Return an indexed Job whose pods are a gang."""
    spec = {"parallelism": members, "completions": members, "completionMode": "Indexed", "suspend": suspend}
    return {"metadata": METADATA | metadata, "spec": spec, "status": status or {}}


def volcano(phase: str, *, minimum: int = 3, members: int = 3, **counts: int) -> Json:
    """Return a Volcano Job."""
    tasks = [{"name": "worker", "replicas": members, "template": {}}]
    return {
        "metadata": METADATA,
        "spec": {"minAvailable": minimum, "tasks": tasks},
        "status": {"state": {"phase": phase}, **counts},
    }


def awaiting_admission() -> Situation:
    world = Scenario().node("n", cpu=1).queue("q")
    need = amounts(cpu=4)
    world.gang("g", 3, queue="q", admission=True, admitted=False, min_resources=need, created=900).settle()
    return Situation(world, "job", native(suspend=True, labels={QUEUE_LABEL: "q"}))


def blocked_by_quota() -> Situation:
    world = Scenario().node("n", cpu=8).queue("q", capability={"cpu": 2}).job("g", 3, queue="q", cpu=1).settle()
    return Situation(world, "vcjob", volcano("Pending", pending=3))


def no_room() -> Situation:
    return Situation(Scenario().node("n", cpu=2).job("g", 3, cpu=1).settle(), "job", native())


def promised_start() -> Situation:
    world = Scenario(RESERVE).node("n", cpu=4)
    limited = {"run_time": RunTime(100), "started": 1000, "bound": 1000}
    world.pod("busy", node="n", cpu=3, pod_class=PodClass(run_limit=100), more=limited)
    world.job("g", 3, cpu=1, pod_class=PodClass(run_limit=50), more={"run_time": RunTime(50)}).settle()
    return Situation(world, "job", native())


def starting() -> Situation:
    world = Scenario().node("n", cpu=4).gang("g", 3)
    world.pods("g", 3, gang="g", node="n", phase=PodPhase.PENDING, cpu=1)
    return Situation(world, "job", native())


def running() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle()
    return Situation(world, "vcjob", volcano("Running", running=3))


def some_succeeded_of_a_job() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle().finishes("g-0", "g-1")
    return Situation(world, "job", native({"succeeded": 2}))


def task_of_volcano_finished() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle().finishes("g-0")
    return Situation(world, "vcjob", volcano("Running", running=2, succeeded=1))


def surplus_waiting() -> Situation:
    world = Scenario().node("n", cpu=2).job("g", 3, minimum=2, cpu=1).settle()
    return Situation(world, "vcjob", volcano("Running", minimum=2, running=2, pending=1))


def evicting() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle()
    world.becomes_all("g-", terminating=True, condemned="phalanx", leaves=world.now + 30)
    return Situation(world, "job", native(), evicted=["g-0", "g-1", "g-2"])


def suspended() -> Situation:
    return Situation(Scenario(), "vcjob", volcano("Aborted"))


def failed() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle()
    world.finishes("g-0", "g-1", "g-2", phase=PodPhase.FAILED)
    return Situation(world, "job", native(FAILED))


def finished() -> Situation:
    world = Scenario().node("n", cpu=4).job("g", 3, cpu=1).settle().finishes("g-0", "g-1", "g-2")
    return Situation(world, "job", native(COMPLETE))


PENDING, RUNNING = GangState.PENDING, GangState.RUNNING
# With the reason that every view gives which shows one.
SITUATIONS: tuple[tuple[Callable[[], Situation], GangState, str], ...] = (
    (awaiting_admission, PENDING, "AwaitingAdmission"),
    (blocked_by_quota, PENDING, "QuotaExceeded"),
    (no_room, PENDING, "NotEnoughResources"),
    (promised_start, PENDING, "NotEnoughResources"),
    (starting, GangState.STARTING, ""),
    (running, RUNNING, ""),
    (some_succeeded_of_a_job, RUNNING, ""),
    (task_of_volcano_finished, RUNNING, ""),
    (surplus_waiting, RUNNING, ""),
    (evicting, GangState.EVICTING, ""),
    (suspended, GangState.SUSPENDED, ""),
    (failed, GangState.FAILED, ""),
    (finished, GangState.COMPLETED, ""),
)
OF_DOCUMENTS_ALONE = {suspended}


@pytest.mark.parametrize(("play", "state", "reason"), SITUATIONS, ids=lambda each: getattr(each, "__name__", None))
async def test_every_view_shows_one_state(play: Callable[[], Situation], state: GangState, reason: str) -> None:
    situation = play()
    shown = await situation.document_states()
    if play not in OF_DOCUMENTS_ALONE:
        shown |= await situation.live_states()
    assert shown == dict.fromkeys(shown, state)


@pytest.mark.parametrize(
    ("play", "reason"), [(play, reason) for play, state, reason in SITUATIONS if state is PENDING]
)
async def test_every_view_shows_one_reason(play: Callable[[], Situation], reason: str) -> None:
    situation = play()
    ((_, counted), number) = next(iter(situation.counts().waiting.items()))
    shown = {
        "list of the scheduler": (await situation.listed()).reason,
        "phalanx_pending_gangs": counted,
        "page": situation.row().reason,
        "why": situation.why().reason,
        "jobs": situation.entry().reason,
    }
    assert number == 1
    assert shown == dict.fromkeys(shown, reason)


@pytest.mark.feature("start-reservations")
async def test_promised_start_is_shown_beside_the_state() -> None:
    situation = promised_start()
    start = situation.why().start
    promise = format_moment(situation.plan.promises[0].told)
    assert start is not None
    shown = {
        "list of the scheduler": (await situation.listed()).start,
        "page": situation.row().start,
        "why": start.no_later_than,
        "jobs": situation.entry().start,
    }
    assert shown == dict.fromkeys(shown, promise)


def test_gang_that_would_be_placed_is_pending_with_the_forecast_that_it_starts() -> None:
    situation = Situation(Scenario().node("n", cpu=4).job("g", 3, cpu=1), "job", native())
    answer, turn = situation.why(), situation.turn()
    assert (answer.state, answer.forecast, answer.reason) == (PENDING, PlacementForecast.STARTS_NOW, "")
    assert (turn.state, turn.forecast, turn.reason) == (PENDING, PlacementForecast.STARTS_NOW, "")
    assert situation.entry().state is PENDING


@pytest.mark.parametrize(
    ("play", "state"),
    [(play, state) for play, state, _ in SITUATIONS if not state.over and state is not GangState.SUSPENDED],
)
def test_run_that_is_accounted_follows_from_the_state(play: Callable[[], Situation], state: GangState) -> None:
    pods = [each.pod for each in play().world.state.pods.values() if each.gang is not None]
    unfinished = [pod for pod in pods if not pod.finished]
    totals = RunTotals(members=len(pods), open=len(unfinished), bound=sum(bool(pod.node) for pod in unfinished))
    assert open_state(totals) is RUN_STATES[state]


def test_every_state_has_a_word_of_the_accounts() -> None:
    assert set(RUN_STATES) == set(GangState)


def test_surplus_member_that_waits_is_counted_with_its_reason() -> None:
    situation = surplus_waiting()
    assert sum(situation.counts().waiting.values()) == 1
    assert situation.why().reason == "NotEnoughResources"
