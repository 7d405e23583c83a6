"""`phalanx top` over a cluster, without a terminal: keys are pressed, and lines are read as they are drawn."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from textual.pilot import Pilot
from textual.strip import Strip

from phalanx.cli.top.app import Top
from phalanx.cli.top.feed import Feed
from tests.dashboard.cluster import until


class Screen:
    """What somebody sees."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    def strips(self) -> list[Strip]:
        return self.app.screen._compositor.render_strips()

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, *words: str) -> str:
        """The first that has all of them; "" for none."""
        return next((line for line in self.lines if all(word in line for word in words)), "")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*((each == " " and "space") or each for each in text))

    async def until(self, holds: Callable[[], object], what: str) -> None:
        async def held() -> bool:
            await self.pilot.pause()
            return bool(holds())

        try:
            await until(held, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from error

    async def shows(self, *words: str) -> None:
        """Waits for a line that has all of them."""
        await self.until(lambda: self.line(*words), f"a line with {words}")


@contextlib.asynccontextmanager
async def opened(
    feed: Feed, start: str = "gangs", words: str = "", size: tuple[int, int] = (150, 30)
) -> AsyncIterator[Screen]:
    app = Top(feed, start=start, words=words)
    async with app.run_test(size=size) as pilot:
        yield Screen(app, pilot)
