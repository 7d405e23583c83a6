"""`phalanx why` about an evicted gang: preemptor, time, reason, and next step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cli.explanation.why import render
from phalanx.model.decisions import EvictionReason
from phalanx.model.events import GangUpdated, PodRemoved
from phalanx.model.eviction_condition import ToldEviction
from phalanx.model.gang import Gang, GangKey, GroupRef
from phalanx.reports.past_evictions import add_past_gang_eviction
from phalanx.reports.snapshot import DisruptionTarget
from phalanx.reports.why_answer import WhyAnswer
from tests.reports.test_why_evictions import NOW, Cluster, Events

OLD = GangKey("ns", "old")
REF = GroupRef("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "ns", "old", "uid-old")
WHOM = "priority 0 is below priority 10"
WHY = f"preempted by gang ns/hi ({WHOM})"
TOLD = "1970-01-12T13:46:30Z"
NOTE = "3 pods evicted for gang ns/hi: priority 0 is below priority 10"


def cluster(minimum: int = 3) -> Cluster:
    made = Cluster()
    made.state.apply(GangUpdated(Gang(OLD, source=REF, min_member=minimum)))
    return made


def leave(made: Cluster, *names: str, reason: str = "PreemptionByScheduler", message: str = WHOM) -> None:
    """Mark the pods for eviction ten seconds ago, with thirty seconds of grace."""
    for name in names:
        made.becomes(name, terminating=True, leaves=int(NOW) + 20, condemned="phalanx")
        ours = reason == "PreemptionByScheduler"
        told = ToldEviction("phalanx", EvictionReason.PREEMPTED, "gang ns/hi", message) if ours else None
        made.snapshot.disruption_targets[name] = DisruptionTarget(reason, message, told)


def gone(made: Cluster, *names: str) -> None:
    for name in names:
        made.state.apply(PodRemoved(name))


def event(time: str, note: str, uid: str = "uid-old", kind: str = "PodGroup") -> dict[str, Any]:
    about = {"kind": kind, "uid": uid}
    return {"reason": "Preempted", "message": note, "eventTime": time, "involvedObject": about}


async def recall(answer: WhyAnswer | None, *events: dict[str, Any], status: int = 0) -> WhyAnswer | None:
    client = Events(*events, status=status)
    return await add_past_gang_eviction(client, "ns", "old", answer)  # type: ignore[arg-type]


def test_terminating_gang_shows_preemptor_time_and_next_step() -> None:
    made = cluster()
    leave(made, "old-0", "old-1", "old-2")
    answer = made.ask("old")
    assert (answer.state, answer.reason) == ("Evicting", "PreemptionByScheduler")
    assert answer.message == (
        f"3 pods were evicted at {TOLD} (the last grace period ends at 1970-01-12T13:47:00Z): {WHY}"
    )
    assert answer.change == (
        "wait until its controller recreates its pods, or recreate them; the gang then waits at its old place "
        "in the queue"
    )
    assert answer.loss is not None
    assert answer.loss.pods == ["ns/old-0", "ns/old-1", "ns/old-2"]


def test_gang_that_lost_surplus_members_is_satisfied_and_shows_the_eviction() -> None:
    made = cluster(minimum=2)
    leave(made, "old-2")
    answer = made.ask("old")
    assert answer.state == "Running"
    told = f"  1 pod was evicted at {TOLD} (the last grace period ends at 1970-01-12T13:47:00Z): {WHY}"
    assert told in render(answer)


def test_gang_with_terminating_and_new_waiting_pods_shows_both() -> None:
    made = cluster()
    leave(made, "old-0", "old-1", "old-2")
    for number in range(3):
        made.pod(f"new-{number}", gang="old", cpu=4)
    answer = made.ask("old")
    assert (answer.state, answer.reason) == ("Pending", "NotEnoughResources")
    assert f"3 pods were evicted at {TOLD}" in render(answer)


def test_reason_of_most_members_is_shown_first() -> None:
    made = cluster()
    leave(made, "old-0", "old-1")
    leave(made, "old-2", reason="DeletionByTaintManager", message="its node is tainted")
    loss = made.ask("old").loss
    assert loss is not None
    assert loss.message == f"{WHY}; 1 of them for other reasons"


def test_gang_without_eviction_conditions_lacks_members() -> None:
    made = cluster()
    for name in ("old-0", "old-1", "old-2"):
        made.becomes(name, terminating=True, leaves=int(NOW) + 20)
    answer = made.ask("old")
    assert (answer.state, answer.reason, answer.loss) == ("Completing", "NotEnoughMembers", None)
    assert answer.change == "create 3 more pods of the gang"


async def test_gang_without_pods_shows_its_eviction_event() -> None:
    made = cluster()
    gone(made, "old-0", "old-1", "old-2")
    answer = await recall(
        made.ask("old"), event("2026-01-01T09:00:00Z", "before"), event("2026-01-01T10:00:00.000001Z", NOTE)
    )
    assert answer is not None
    assert (answer.state, answer.reason) == ("Pending", "Preempted")
    assert answer.message == f"its pods were evicted at 2026-01-01T10:00:00Z and no longer exist: {NOTE}"
    assert "old place in the queue" in answer.change


async def test_gang_with_new_waiting_pods_shows_its_eviction_event_too() -> None:
    made = cluster()
    gone(made, "old-0", "old-1", "old-2")
    for number in range(3):
        made.pod(f"new-{number}", gang="old", cpu=4)
    answer = await recall(made.ask("old"), event("2026-01-01T10:00:00Z", NOTE))
    assert answer is not None
    assert answer.state == "Pending"
    assert f"  Lost members at 2026-01-01T10:00:00Z: {NOTE}" in render(answer)


async def test_event_names_the_preemptor_of_an_eviction_through_the_api() -> None:
    made = cluster()
    leave(made, "old-0", "old-1", "old-2", reason="EvictionByEvictionAPI", message="evicted")
    answer = await recall(made.ask("old"), event("2026-01-01T10:00:00Z", NOTE))
    assert answer is not None
    assert answer.message.endswith(f"evicted; {NOTE}")


async def test_deleted_group_shows_its_eviction_event() -> None:
    answer = await recall(None, event("2026-01-01T10:00:00Z", NOTE))
    assert answer is not None
    assert (answer.kind, answer.state) == ("Gang", "Deleted")
    assert await recall(None, event("2026-01-01T10:00:00Z", NOTE, kind="Pod")) is None


@pytest.mark.parametrize("found", [event("2026-01-01T10:00:00Z", NOTE, uid="another"), None])
async def test_where_no_event_is_its_own_nothing_is_added(found: dict[str, Any] | None) -> None:
    made = cluster()
    gone(made, "old-0", "old-1", "old-2")
    answer = made.ask("old")
    before = msgspec.to_builtins(answer)
    assert msgspec.to_builtins(await recall(answer, *([found] if found else []))) == before
    assert msgspec.to_builtins(await recall(answer, status=403)) == before


async def test_gang_that_runs_again_shows_no_eviction() -> None:
    answer = await recall(cluster().ask("old"), event("2026-01-01T10:00:00Z", NOTE))
    assert answer is not None
    assert (answer.state, answer.loss) == ("Running", None)
