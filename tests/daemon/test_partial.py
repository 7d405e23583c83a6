"""Gangs that stay below their quorum because bindings failed: kept or released, as the policy states."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.narrator import Narrator
from phalanx.daemon.partial import PartialGangs
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.config import ClusterConfig
from phalanx.kube.credentials import Identity
from phalanx.kube.events import EventRecorder
from phalanx.kube.retry import RetryPolicy
from phalanx.kube.transport import Answer, Call
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodPhase
from tests.daemon.nouns import MARK, REF, G, Recorded, pod, state_of
from tests.execution.podserver import status


class Deletions:
    """A transport that takes note of patches and deletions; `refuse` answers with an error."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.refuse = 0

    async def request(self, call: Call, identity: Identity) -> Answer:
        path = re.sub(r".*/pods/", "", call.target)
        self.requests.append((call.method, path, msgspec.json.decode(call.body or b"null")))
        return status(self.refuse, "no") if self.refuse else Answer(200, b"{}")

    def stream(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class World:
    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.api = Deletions()
        self.pool = WritePool(concurrency=1)
        self.recorded = Recorded()
        self.now = 1000.0
        client = KubeClient(ClusterConfig("http://pods.invalid"), transports=lambda *_, **__: self.api)
        narrator = Narrator(cast(EventRecorder, self.recorded), state)
        self.partial = PartialGangs(client, self.pool, state, narrator, lambda: self.now, RetryPolicy(base=0.001))

    async def check(self, policy: str, at: float) -> list[str]:
        """The requests made, as `METHOD path`."""
        self.now = at
        self.api.requests.clear()
        self.partial.check(policy)
        async with asyncio.timeout(5):
            await self.pool.drained()
        return [f"{method} {path}" for method, path, _ in self.api.requests]


def cut_off(timeout: int | None = 60, *more: Pod) -> ClusterState:
    """A plan for three of which one is running and one bound; the third could not be bound."""
    return state_of(
        pod("p0", node="n1", mark=MARK, phase=PodPhase.RUNNING),
        pod("p1", node="n1", mark=MARK),
        pod("p2"),
        *more,
        gang=Gang(G, source=REF, min_member=3, timeout=timeout),
    )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(cut_off())
    yield made
    await made.pool.close()


async def test_nothing_happens_before_the_timeout(world: World) -> None:
    assert await world.check("release", 1059) == []
    assert world.recorded.events == []


async def test_keep_leaves_the_members_and_says_so_once(world: World) -> None:
    for at in (1060, 1061, 2000):
        assert await world.check("keep", at) == []
    assert world.recorded.told == [("PodGroup/g", "ScheduleTimeout"), ("Pod/p2", "ScheduleTimeout")]
    assert "2 of the 3 members of its plan are bound; they are kept" in world.recorded.events[0][2]


async def test_release_evicts_the_members_so_that_jobs_do_not_count_it(world: World) -> None:
    assert await world.check("release", 1060) == ["PATCH p0/status", "DELETE p0", "PATCH p1/status", "DELETE p1"]
    (_, _, patch), (_, _, deletion) = world.api.requests[:2]
    assert patch["metadata"]["uid"] == "uid-p0"
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert deletion["preconditions"] == {"uid": "uid-p0"}
    assert await world.check("release", 1061) == []


async def test_the_timeout_is_ten_minutes_where_nobody_states_one() -> None:
    world = World(cut_off(timeout=None))
    await world.check("keep", 1599)
    assert world.recorded.events == []
    await world.check("keep", 1600)
    assert world.recorded.told[0] == ("PodGroup/g", "ScheduleTimeout")


async def test_a_gang_that_is_whole_is_left_alone() -> None:
    world = World(cut_off(60))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    assert await world.check("release", 5000) == []


async def test_surplus_that_waits_is_no_broken_gang() -> None:
    world = World(cut_off(60, pod("p3")))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    assert await world.check("release", 5000) == []


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_a_refused_eviction_harms_nobody(world: World, code: int) -> None:
    world.api.refuse = code
    assert await world.check("release", 1060) == ["PATCH p0/status", "PATCH p1/status"]


async def test_a_plan_that_was_complete_once_was_not_cut_off() -> None:
    """A member that is lost later, and its replacement from the same second, are the match policy's business."""
    world = World(cut_off(60))
    world.state.apply(PodUpdated(pod("p2", node="n1", mark=MARK)))
    world.state.apply(PodRemoved("uid-p1"))
    world.state.apply(PodUpdated(pod("p4", created=MARK.time)))
    assert await world.check("release", 5000) == []
