"""Event on the object of a gang that falls below its minimum while members run; no member is evicted (KEP 34)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from phalanx.kube.events import EventRecorder
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang, MatchPolicy
from phalanx.model.pod import PodPhase
from phalanx.status.warnings import lost_members
from phalanx.status.warnings.lost_members import LostMembers
from tests.cluster_content import REF, G, Recorded, pod, state_of


class World:
    def __init__(self, min_member: int = 3, **gang: object) -> None:
        running = (pod(f"p{number}", node="n1", phase=PodPhase.RUNNING) for number in range(3))
        spec = Gang(G, source=REF, min_member=min_member, **gang)  # type: ignore[arg-type]
        self.state = state_of(*running, gang=spec)
        self.recorded = Recorded()
        self.lost = LostMembers(self.state, cast(EventRecorder, self.recorded))

    async def notes(self) -> list[str]:
        self.lost.touch(G)
        await asyncio.sleep(0.01)
        notes = [
            note
            for about, reason, note in self.recorded.events
            if (about, reason) == ("PodGroup/g", "Unschedulable")
        ]
        self.recorded.events.clear()
        return notes

    def becomes(self, name: str, phase: PodPhase) -> None:
        self.state.apply(PodUpdated(pod(name, node="n1", phase=phase)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_members, "_SETTLE", 0.0)


async def test_lost_member_causes_one_event_per_change_and_no_eviction() -> None:
    world = World()
    assert await world.notes() == []
    world.becomes("p0", PodPhase.FAILED)
    assert await world.notes() == ["only 2 of the 3 required pods of gang ns/g exist (not counted: 1 failed)"]
    assert await world.notes() == []
    world.state.apply(PodRemoved("uid-p1"))
    assert await world.notes() == ["only 1 of the 3 required pods of gang ns/g exist (not counted: 1 failed)"]


async def test_waiting_replacement_is_counted_and_a_later_loss_causes_an_event_again() -> None:
    world = World()
    world.becomes("p0", PodPhase.FAILED)
    assert len(await world.notes()) == 1
    world.state.apply(PodUpdated(pod("p9")))
    assert await world.notes() == []
    world.state.apply(PodRemoved("uid-p9"))
    assert len(await world.notes()) == 1


async def test_gang_with_a_waiting_member_reports_the_loss_in_its_verdict_only() -> None:
    world = World()
    world.becomes("p0", PodPhase.FAILED)
    world.becomes("p1", PodPhase.FAILED)
    world.state.apply(PodUpdated(pod("p9")))
    assert await world.notes() == []
    world.state.apply(PodRemoved("uid-p9"))
    assert await world.notes() == ["only 1 of the 3 required pods of gang ns/g exist (not counted: 2 failed)"]


@pytest.mark.parametrize(("policy", "told"), [(MatchPolicy.ONCE_SATISFIED, 0), (MatchPolicy.ONLY_WAITING, 1)])
async def test_minimum_of_a_once_satisfied_gang_is_not_missed_later(policy: MatchPolicy, told: int) -> None:
    world = World(match_policy=policy)
    world.becomes("p0", PodPhase.FAILED)
    assert len(await world.notes()) == told


async def test_run_that_never_had_its_quorum_lacks_members_under_any_policy() -> None:
    world = World(match_policy=MatchPolicy.ONCE_SATISFIED, min_member=4)
    assert await world.notes() == ["only 3 of the 4 required pods of gang ns/g exist"]


async def test_succeeded_members_are_not_lost() -> None:
    world = World()
    world.becomes("p0", PodPhase.SUCCEEDED)
    assert await world.notes() == []


async def test_gang_without_running_members_or_without_an_object_causes_no_event() -> None:
    world = World()
    for number in range(3):
        world.becomes(f"p{number}", PodPhase.FAILED)
    assert await world.notes() == []
    bare = World()
    bare.state.gangs[G].spec = Gang(G, min_member=3)
    bare.becomes("p0", PodPhase.FAILED)
    assert await bare.notes() == []


async def test_role_below_its_minimum_is_named() -> None:
    world = World(roles=(("ps", 1),))
    assert await world.notes() == ["gang ns/g has too few pods of role ps"]
