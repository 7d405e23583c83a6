"""Pods that exceed their run time get one event, and a warning before a kill."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from phalanx.daemon.controllers.run_time_exceeded import RunTimeExceeded
from phalanx.kube.events import EventRecorder
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod, PodPhase
from phalanx.model.run_time import RunTime
from phalanx.status.event_publisher import EventPublisher
from tests.cluster_content import REF, G, Recorded, pod, state_of


def runner(name: str, **fields: Any) -> Pod:
    run_time = RunTime(allowed=600, allowed_source="Queue lab: annotation phalanx.dev/max-run-time")
    made = pod(name, node="n1", phase=PodPhase.RUNNING)
    return msgspec.structs.replace(made, started=1000, run_time=run_time, **fields)


class World:
    def __init__(self, *pods: Pod) -> None:
        self.state = state_of(*pods, gang=Gang(G, source=REF, min_member=2))
        self.recorded = Recorded()
        self.counted: list[str] = []
        self.touched: list[GangKey] = []
        self.now = 0.0
        publisher = EventPublisher(cast(EventRecorder, self.recorded), self.state)
        self.exceeded = RunTimeExceeded(
            self.state, publisher, self.counted.append, self.touched.append, lambda: self.now
        )

    def check(self, at: float, policy: str = "report") -> list[tuple[str, str]]:
        """Return the recorded events."""
        self.now = at
        self.recorded.events.clear()
        self.exceeded.check(policy)
        return self.recorded.told


@pytest.fixture
def world() -> World:
    return World(runner("p0"), runner("p1"))


def test_one_event_a_gang_and_only_once(world: World) -> None:
    assert world.check(1599) == []
    assert world.check(1600) == [("PodGroup/g", "RunTimeExceeded"), ("Pod/p0", "RunTimeExceeded")]
    assert world.recorded.events[0][2] == (
        "it runs longer than the 10m of Queue lab: annotation phalanx.dev/max-run-time; it keeps running "
        "(policy phalanx.exceededRunTimes)"
    )
    assert world.check(1700) == []
    assert (world.counted, world.touched) == (["report"], [G])


def test_pod_to_be_killed_is_warned_five_minutes_before(world: World) -> None:
    assert world.check(1299, "kill") == []
    assert world.check(1300, "kill") == [("PodGroup/g", "RunTimeEnding"), ("Pod/p0", "RunTimeEnding")]
    assert "it is evicted at 1970-01-01T00:26:40Z, when the 10m of Queue lab" in world.recorded.events[0][2]
    assert world.check(1400, "kill") == []
    assert world.check(1600, "kill")[0] == ("PodGroup/g", "RunTimeExceeded")
    assert "it is evicted (policy" in world.recorded.events[0][2]


def test_pod_without_an_end_is_not_warned(world: World) -> None:
    assert world.check(1500, "evict-when-needed") == []
    world.check(1600, "evict-when-needed")
    assert "it is evicted as soon as another gang or pod needs its resources" in world.recorded.events[0][2]


def test_gang_whose_pods_were_deleted_is_checked_again(world: World) -> None:
    world.check(1600)
    world.state.apply(PodRemoved("uid-p0"))
    world.state.apply(PodRemoved("uid-p1"))
    assert world.check(1601) == []
    assert world.touched == [G, G]
    world.state.apply(PodUpdated(runner("p2")))
    assert world.check(1602)[0] == ("PodGroup/g", "RunTimeExceeded")


def test_foreign_pods_and_daemon_pods_are_ignored() -> None:
    assert World(runner("p0", scheduler="other"), runner("p1", fixture=True)).check(9999, "kill") == []
