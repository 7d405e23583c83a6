"""`phalanx top` over a cluster, without a terminal: keys are pressed, and lines are read as they are drawn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from unittest import mock

from textual import events
from textual.app import App
from textual.message import Message
from textual.pilot import Pilot
from textual.strip import Strip

from phalanx.cli.top import app as top_module
from phalanx.cli.top.app import Top
from phalanx.cli.top.feed import Feed
from tests.dashboard.cluster import until

# Seconds between two ticks of an app under test, and between two looks of a test at its screen.
_TICK, _LOOK = 0.1, 0.01
_ROUNDS = 10


class Settling:
    """Waits until the widgets of an app have handled all messages.

    The pilot of Textual waits until the process computes nothing, up to a second: any other task delays it."""

    def __init__(self) -> None:
        self._handled = 0

    def count(self, message: Message) -> None:
        """Count a message that a widget is about to handle. Messages of timers never end."""
        self._handled += not isinstance(message, events.Timer)

    async def settle(self, app: App[None]) -> None:
        """Return after a round in which each widget handled nothing but the callback of this round.

        A key reaches the next widget in each round at least: ten rounds are more than it needs."""
        for _ in range(_ROUNDS):
            if _ended(app):
                return
            before = self._handled
            asked = await self._round(app)
            if self._handled - before == asked:
                return

    async def _round(self, app: App[None]) -> int:
        """Wait until each widget has handled a callback that is queued behind its messages; return their number."""
        called = asyncio.Semaphore(0)
        widgets = (app, *app.screen.walk_children(with_self=True))
        asked = sum(widget.call_later(called.release) for widget in widgets)
        for _ in range(asked):
            while not _ended(app):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(called.acquire(), _LOOK)
                    break
        return asked


def _ended(app: App[None]) -> bool:
    return app._exit or app._exception is not None


class Screen:
    """The visible text of the terminal."""

    def __init__(self, app: Top, pilot: Pilot[None], settling: Settling) -> None:
        self.app = app
        self.pilot = pilot
        self._settling = settling

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
        await self.press(*((each == " " and "space") or each for each in text))

    async def settle(self) -> None:
        """Return when all keys and changes are drawn."""
        await self._settling.settle(self.app)
        if not _ended(self.app):
            self.app.screen._on_timer_update()

    async def until(self, holds: Callable[[], object], what: str) -> None:
        async def held() -> bool:
            await self.settle()
            return bool(holds())

        try:
            await until(held, what, period=_LOOK)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from error

    async def shows(self, *words: str) -> None:
        """Waits for a line that has all of them."""
        await self.until(lambda: self.line(*words), f"a line with {words}")


@contextlib.asynccontextmanager
async def opened(
    feed: Feed, start: str = "gangs", words: str = "", size: tuple[int, int] = (150, 30)
) -> AsyncIterator[Screen]:
    """Run an app over `feed` as if on a terminal of `size`."""
    app = Top(feed, start=start, words=words)
    settling = Settling()
    with mock.patch.object(top_module, "_TICK", _TICK):
        async with app.run_test(size=size, message_hook=settling.count) as pilot:

            async def settled(*_: object) -> None:
                await settling.settle(app)

            # The pilot waits so after each key and each change of the size.
            with (
                mock.patch("textual.app.wait_for_idle", settled),
                mock.patch("textual.pilot.wait_for_idle", settled),
            ):
                yield Screen(app, pilot, settling)
