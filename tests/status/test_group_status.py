"""Status of groups whose pods are being bound: one write for all members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from phalanx.status import group_status
from tests.dialects.objects import VOLCANO
from tests.status.conftest import GATHER
from tests.status.test_group_disruption import World

PLACED = ("Scheduled", "True")


@pytest.fixture
async def volcano() -> AsyncIterator[World]:
    """Group of three with two running members and a pending one."""
    world = World(VOLCANO, minMember=3)
    world.member("c", node="")
    await world.look()
    yield world
    await world.pool.close()


def assume(world: World, name: str) -> None:
    world.state.pods.assume(world.state.pods[f"uid-{name}"], 0, None)


def conditions(status: dict[str, object]) -> set[tuple[str, str]]:
    entries = status.get("conditions", [])
    assert isinstance(entries, list)
    return {(entry["type"], entry["status"]) for entry in entries}


async def patched(world: World, count: int) -> None:
    """Return once the API has more than `count` patches."""
    for _ in range(1000):
        if len(world.api.patches) > count:
            return
        await asyncio.sleep(GATHER)
    raise AssertionError("no patch came")


async def test_status_waits_for_the_answers_to_bindings(volcano: World) -> None:
    before = len(volcano.api.patches)
    assume(volcano, "c")
    assert PLACED not in conditions(await volcano.look())
    volcano.member("c", phase="Running")
    status = await volcano.look()
    assert (status["running"], PLACED in conditions(status)) == (3, True)
    assert len(volcano.api.patches) == before + 1


async def test_status_is_written_after_a_second_of_slow_bindings(
    volcano: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_status, "_BINDING_GRACE", GATHER)
    before = len(volcano.api.patches)
    assume(volcano, "c")
    await volcano.look()
    await patched(volcano, before)
    assert PLACED in conditions(volcano.api.document["status"])


async def test_status_after_failed_bindings_is_that_of_pending_members(
    volcano: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_status, "_BINDING_GRACE", 0.3)
    assume(volcano, "c")
    before = len(volcano.api.patches)
    assert PLACED not in conditions(await volcano.look())
    volcano.state.pods.binding_failed("uid-c")
    volcano.member("b", phase="Succeeded")
    await patched(volcano, before)
    assert [patch.get("succeeded") for patch in volcano.api.patches[before:]] == [1]
