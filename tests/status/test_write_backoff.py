"""Back-off against another controller that writes different values into a group's status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.dialects.objects import X_K8S
from tests.status.test_group_disruption import G, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(X_K8S, minMember=2)
    await made.look()
    yield made
    await made.pool.close()


async def corrected(world: World, **words: Any) -> int:
    """Return the number of our writes when another writer puts its values there after each, six times."""
    before = len(world.api.patches)
    for _ in range(6):
        world.api.document["status"] = {**world.api.document["status"], **words}
        await world.look()
        await world.look()  # the watch delivers our write
    return len(world.api.patches) - before


async def test_value_that_another_writer_replaces_is_not_repeated_at_once(world: World) -> None:
    assert world.api.document["status"]["phase"] == "Running"
    assert await corrected(world, phase="Scheduled") < 4


@pytest.mark.slow
async def test_changed_value_is_written_at_once(world: World) -> None:
    await corrected(world, phase="Scheduled")
    world.member("a", phase="Failed")
    assert (await world.look())["failed"] == 1
    world.member("b", phase="Failed")
    assert (await world.look())["failed"] == 2


async def test_replaced_value_is_written_again_after_a_pause(world: World) -> None:
    await corrected(world, phase="Scheduled")
    entry = world.statuses._writer._entries[G]
    assert entry.later is not None
    entry.quiet_until = 0.0
    assert (await world.look())["phase"] == "Running"
