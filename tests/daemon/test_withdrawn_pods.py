"""Pods of a request for nodes that ended: deleted after a grace period, unless they are older than the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from phalanx.daemon.controllers.withdrawn_pods import WithdrawnPods
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.model.gang import Gang
from phalanx.model.node_request import NodeRequest
from tests.cluster_content import REF, G, pod, state_of

Write = Callable[[], Coroutine[Any, Any, float | None]]


class Recorder:
    """Pool and client in one: it carries out writes when asked, and records the deleted paths."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.deleted: list[tuple[str, str]] = []

    def submit(self, urgency: Urgency, write: Write) -> None:
        self.writes.append(write)

    async def delete(self, path: str, *, uid: str) -> None:
        self.deleted.append((path.rpartition("/")[2], uid))

    def carry_out(self) -> list[str]:
        writes, self.writes = self.writes, []
        for write in writes:
            assert asyncio.run(write()) is None
        return [name for name, _ in self.deleted]


class World:
    def __init__(self, *, admitted: bool = False, **fields: Any) -> None:
        self.now = 1000.0
        gang = Gang(G, source=REF, uid="uid-g", min_member=2, admission=True, admitted=admitted)
        self.state = state_of(pod("old", created=50), pod("new", created=150), gang=gang)
        request = NodeRequest("uid-g", G.namespace, G.name, G.path, since=100, until=2000, ended=1000, open=False)
        self.state.gangs.node_requests.restore([request])
        self.recorder = Recorder()
        client, pool = cast(KubeClient, self.recorder), cast(WritePool, self.recorder)
        self.part = WithdrawnPods(client, pool, self.state, lambda: self.now)

    def deleted(self, at: float) -> list[str]:
        self.now = at
        self.part.check()
        return self.recorder.carry_out()


def test_pod_of_the_request_is_deleted_once_after_the_grace_period_and_an_older_one_stays() -> None:
    world = World()
    assert world.deleted(1009) == []
    assert world.deleted(1010) == ["new"]
    assert world.deleted(1011) == ["new"]


@pytest.mark.parametrize("seconds", [1010, 5000])
def test_pods_of_a_gang_that_is_admitted_again_stay(seconds: float) -> None:
    assert World(admitted=True).deleted(seconds) == []


def test_admission_between_the_decision_and_the_deletion_keeps_the_pod() -> None:
    world = World()
    world.now = 1010
    world.part.check()
    world.state.gangs.admit(G)
    assert world.recorder.carry_out() == []
