"""A scheduler killed at every one of its requests and restarted: the story ends as without the kill."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable

import pytest

from tests.e2e.world import Running

from .conftest import Ends, Site
from .fault import seeds
from .scenario import Scenario
from .test_story import settle

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    # A killed scheduler closes no sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Each process sends its events anew, after all other writes: a process that dies there never reaches later
# requests.
NO_EVENT = r"^(?!.*/events)"


class Lives:
    """One scheduler after the other. `doom` maps the number of each to its death; those after `most` survive."""

    def __init__(self, site: Site, doom: Callable[[Running, int], None], most: int) -> None:
        self.count = 0
        self._site = site
        self._doom = doom
        self._most = most
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            life = await self._site.world.scheduler(wait=False, concurrency=1)
            if self.count < self._most:
                self._doom(life, self.count)
            self.count += 1
            await life.wire.dead.wait()
            await life.kill()

    async def let_live(self) -> None:
        """The last one lives on."""
        self._most = 0
        self._site.world.schedulers[-1].wire.rules.clear()
        await asyncio.sleep(0.5)
        assert not self._task.done()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def live_many_lives(site: Site, ends: Ends, doom: Callable[[Running, int], None], most: int) -> int:
    await ends.known(site.world)
    lives = Lives(site, doom, most)
    try:
        async with Scenario(site.world, patience=200.0) as story:
            await story.play()
            await lives.let_live()
            await settle(site, story, ends)
    finally:
        await lives.end()
        gc.collect()
    return lives.count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before each write", "after each write"])
async def test_killed_at_each_write(site: Site, ends: Ends, after: bool) -> None:
    """One write in each life."""

    def doom(life: Running, number: int) -> None:
        life.wire.die("*", NO_EVENT, nth=1 if after else 2, after=after)

    assert await live_many_lives(site, ends, doom, 10_000) > 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds(6))
async def test_killed_at_any_request(site: Site, ends: Ends, seed: int) -> None:
    """Reads as well, at the start and later."""
    draw = random.Random(seed)

    def doom(life: Running, number: int) -> None:
        nth, after = draw.randint(1, 25), draw.random() < 0.5
        for method in ("GET", "*"):
            life.wire.die(method, NO_EVENT, nth=nth, after=after)

    assert await live_many_lives(site, ends, doom, 40) > 3
