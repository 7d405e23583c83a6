"""Nominations (status.nominatedNodeName) of waiting pods, written with their conditions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from phalanx.dialects.gangs.held_room import HELD_ROOM
from phalanx.execution.conditions import POD_SCHEDULED, NominationOutcome, PodConditions
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.conditions import PodCondition
from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.retry import RetryPolicy
from phalanx.model.verdict import Verdict
from tests.execution.podserver import PodServer

WRITTEN, LOST = NominationOutcome.WRITTEN, NominationOutcome.LOST
REFUSED, SUPERSEDED = NominationOutcome.REFUSED, NominationOutcome.SUPERSEDED
FULL = Verdict("NotEnoughResources", "0/3 nodes are available: 3 Insufficient cpu.")


class World:
    """One worker in the pool, so that its order is observable."""

    def __init__(self, concurrency: int = 1) -> None:
        self.server = PodServer()
        self.pool = WritePool(concurrency=concurrency)
        self.outcomes: list[NominationOutcome] = []
        self.conditions = PodConditions(
            self.server.client(), self.pool, lambda: 1_900_000_000.0, RetryPolicy(attempts=3, base=0.001)
        )

    def add(self, name: str = "p", *, nominated: str = "", **spec: Any) -> str:
        pod = self.server.add(name, **spec)
        if nominated:
            pod["status"]["nominatedNodeName"] = nominated
        self.see(name)
        return f"uid-{name}"

    def see(self, name: str = "p") -> None:
        """Deliver the pods to the cache, as the watch does."""
        pod = self.server.pods["ns", name]
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        self.conditions.observe(
            metadata["uid"],
            "ns",
            name,
            metadata["resourceVersion"],
            [
                PodCondition(entry["type"], entry["status"], entry.get("reason", ""), entry.get("message", ""))
                for entry in status["conditions"]
            ],
            nominated=status.get("nominatedNodeName", ""),
            room=metadata.get("annotations", {}).get(HELD_ROOM, ""),
            waits=not (spec.get("nodeName") or metadata.get("deletionTimestamp")),
        )

    def nominate(self, uid: str, node: str, room: str = "") -> None:
        self.conditions.nominate(uid, node, self.outcomes.append, room)

    async def settle(self) -> None:
        async with asyncio.timeout(5):
            await self.pool.drained()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_nomination_is_written(world: World) -> None:
    world.nominate(world.add(), "n1")
    await world.settle()
    assert world.server.nominated("p") == "n1"
    assert world.outcomes == [WRITTEN]
    (patch,) = world.server.patches
    assert patch["metadata"]["uid"] == "uid-p"
    assert patch["status"] == {"nominatedNodeName": "n1"}


async def test_withdrawn_nomination_leaves_nothing(world: World) -> None:
    uid = world.add()
    world.nominate(uid, "n1")
    await world.settle()
    world.nominate(uid, "")
    await world.settle()
    assert "nominatedNodeName" not in world.server.pods["ns", "p"]["status"]
    assert world.server.patches[-1]["status"] == {"nominatedNodeName": None}
    assert world.outcomes == [WRITTEN, WRITTEN]


async def test_existing_nomination_is_not_written_again(world: World) -> None:
    """After a restart the nomination of the former process is found."""
    world.nominate(world.add(nominated="n1"), "n1")
    world.nominate(world.add("q"), "")
    assert world.outcomes == [WRITTEN, WRITTEN]
    assert world.server.calls == []


async def test_held_room_is_written_with_the_nomination_only_if_it_differs(world: World) -> None:
    uid = world.add()
    world.nominate(uid, "n1", "sig/n1@n2:1")
    await world.settle()
    world.nominate(uid, "n1", "sig/n1@n2:1")
    await world.settle()
    assert world.server.patches[0]["metadata"]["annotations"] == {HELD_ROOM: "sig/n1@n2:1"}
    assert len(world.server.patches) == 1
    world.nominate(uid, "n1", "sig/n1@n3:1")
    await world.settle()
    assert world.server.patches[1]["metadata"]["annotations"] == {HELD_ROOM: "sig/n1@n3:1"}
    world.nominate(uid, "")
    await world.settle()
    assert world.server.patches[2]["metadata"]["annotations"] == {HELD_ROOM: None}
    assert world.outcomes == [WRITTEN] * 4


async def test_nomination_and_condition_share_one_write(world: World) -> None:
    uid = world.add()
    world.conditions.set_verdict(uid, FULL)
    world.nominate(uid, "n1")
    await world.settle()
    assert world.server.calls == ["PATCH p/status"]
    assert world.server.nominated("p") == "n1"
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL.message


async def test_nomination_is_written_before_waiting_conditions(world: World) -> None:
    """A thousand conditions must not delay the evictions that wait for a nomination."""
    for number in range(5):
        world.conditions.set_verdict(world.add(f"p{number}"), FULL)
    world.nominate("uid-p4", "n1")

    async def delete() -> None:
        world.server.calls.append("a deletion")

    world.pool.submit(Urgency.DELETE, delete)
    await world.settle()
    assert world.server.calls[:2] == ["PATCH p4/status", "a deletion"]
    assert sorted(world.server.calls[2:]) == [f"PATCH p{number}/status" for number in range(4)]


async def test_overtaken_write_is_not_sent_beside_the_other() -> None:
    """Two concurrent writes for one pod could arrive in the wrong order."""
    world = World(concurrency=2)
    uid = world.add()
    under_way, most = 0, 0
    inner = world.server.request

    async def slowly(call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        world.conditions.set_verdict(uid, FULL)
        await asyncio.sleep(0.01)
        under_way -= 1
        return await inner(call, identity)

    world.server.request = slowly  # type: ignore[method-assign]
    world.conditions.set_verdict(uid, FULL)
    world.nominate(uid, "n1")
    await world.settle()
    assert most == 1
    assert world.server.nominated("p") == "n1"
    await world.pool.close()


async def test_only_the_latest_nomination_is_written(world: World) -> None:
    uid = world.add()
    for node in ("n1", "n2", "n3"):
        world.nominate(uid, node)
    await world.settle()
    assert [patch["status"]["nominatedNodeName"] for patch in world.server.patches] == ["n3"]
    assert world.outcomes == [SUPERSEDED, SUPERSEDED, WRITTEN]


async def test_nomination_during_a_write_is_written_after_it(world: World) -> None:
    uid = world.add()

    def change_of_mind(call: HttpRequest) -> None:
        world.server.before = lambda call: None
        world.nominate(uid, "n2")

    world.server.before = change_of_mind
    world.nominate(uid, "n1")
    await world.settle()
    assert [patch["status"]["nominatedNodeName"] for patch in world.server.patches] == ["n1", "n2"]
    assert world.server.nominated("p") == "n2"
    assert world.outcomes == [SUPERSEDED, WRITTEN]


async def test_nomination_withdrawn_during_its_write_is_removed(world: World) -> None:
    uid = world.add()

    def change_of_mind(call: HttpRequest) -> None:
        world.server.before = lambda call: None
        world.nominate(uid, "")

    world.server.before = change_of_mind
    world.nominate(uid, "n1")
    await world.settle()
    assert world.server.nominated("p") == ""
    assert world.outcomes == [SUPERSEDED, WRITTEN]


async def test_deleted_pod_gets_no_nomination(world: World) -> None:
    uid = world.add()
    world.server.leave("p")
    world.nominate(uid, "n1")
    await world.settle()
    world.nominate("uid-of-nobody", "n1")
    assert world.outcomes == [LOST, LOST]


async def test_pod_deleted_while_its_nomination_waits_gets_none(world: World) -> None:
    uid = world.add()
    world.nominate(uid, "n1")
    world.conditions.forget(uid)
    await world.settle()
    assert world.outcomes == [LOST]
    assert world.server.calls == []


async def test_replacement_of_a_pod_gets_no_nomination(world: World) -> None:
    """Another pod has the name; the watch has not delivered it yet."""
    uid = world.add()
    world.server.replace("p")
    world.nominate(uid, "n1")
    await world.settle()
    assert world.outcomes == []
    assert world.server.nominated("p") == ""
    world.conditions.forget(uid)
    assert world.outcomes == [LOST]


async def test_pod_bound_by_another_scheduler_gets_no_nomination(world: World) -> None:
    uid = world.add()
    pod = world.server.pods["ns", "p"]
    pod["spec"]["nodeName"] = "n9"
    world.server.change(pod)
    world.nominate(uid, "n1")
    await world.settle()
    assert world.outcomes == []
    world.see()
    assert world.outcomes == [LOST]
    assert world.server.nominated("p") == ""


async def test_placed_pod_gets_no_nomination(world: World) -> None:
    uid = world.add()
    world.nominate(uid, "n1")
    world.conditions.binding_submitted(uid)
    await world.settle()
    assert world.outcomes == [LOST]
    assert world.server.calls == []


async def test_nomination_cleared_by_the_api_server_at_the_binding_stays_cleared(world: World) -> None:
    uid = world.add()
    world.nominate(uid, "n1")
    await world.settle()
    pod = world.server.pods["ns", "p"]
    pod["spec"]["nodeName"] = "n1"
    del pod["status"]["nominatedNodeName"]
    world.server.change(pod)
    world.see()
    await world.settle()
    assert len(world.server.patches) == 1


async def test_change_by_another_client_delays_a_nomination_until_it_is_observed(world: World) -> None:
    uid = world.add()
    world.server.change(world.server.pods["ns", "p"])
    world.nominate(uid, "n1")
    await world.settle()
    assert world.outcomes == []
    world.see()
    await world.settle()
    assert world.outcomes == [WRITTEN]
    assert world.server.nominated("p") == "n1"


@pytest.mark.parametrize("after_write", [False, True])
async def test_lost_answer_to_a_nomination_is_retried(world: World, after_write: bool) -> None:
    uid = world.add()
    world.server.fail("PATCH", "/status", error=ConnectionLost("cut"), after_write=after_write)
    world.nominate(uid, "n1")
    await world.settle()
    # Where the first attempt took effect the second has an old version; the watch resolves it.
    world.see()
    await world.settle()
    assert world.outcomes == [WRITTEN]
    assert world.server.nominated("p") == "n1"


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_definite_rejection_of_a_nomination_is_reported(world: World, code: int) -> None:
    uid = world.add()
    world.server.fail("PATCH", "/status", status=code, times=100)
    world.nominate(uid, "n1")
    await world.settle()
    assert world.outcomes == [REFUSED]
    assert world.server.calls == ["PATCH p/status"]


async def test_bug_in_a_nomination_is_a_rejection_and_not_a_hang(world: World) -> None:
    uid = world.add()
    world.server.fail("PATCH", "/status", error=ZeroDivisionError("a bug"), times=100)
    world.nominate(uid, "n1")
    await world.settle()
    assert world.outcomes == [REFUSED]
