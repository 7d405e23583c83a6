"""The wall clock steps: leases and pauses do not follow it, and nothing is bound or evicted because of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from .conftest import Ends, Site
from .scenario import Scenario
from .test_story import settle

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
    pytest.mark.slow,
]


@pytest.mark.parametrize("steps", [(3600,), (-3600,), (86400, -86400, 600)], ids=["forward", "back", "to and fro"])
async def test_steps(site: Site, ends: Ends, steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    await ends.known(site.world)
    true, offset = time.time, 0
    monkeypatch.setattr(time, "time", lambda: true() + offset)
    await site.world.scheduler()

    async def step() -> None:
        nonlocal offset
        for seconds in steps:
            await asyncio.sleep(1.0)
            offset += seconds

    async with Scenario(site.world) as story:
        # A gang whose wait the clock makes ten minutes long collects room, so the last one waits after all steps.
        await story.play(before_the_end=asyncio.create_task(step()))
        await settle(site, story, ends)
