"""Forecast requests to member clusters, one at a time per cluster, and the loop of the rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.choice.estimates import AskedCluster, AskedGang, Estimates

#: Seconds to wait for the answers of all clusters to one question.
_ANSWERS = 10.0
_LATE = "is still processing the last question"


class Questions:
    """Forecast requests with at most one open request per member cluster.

    A late cluster delays one round and is skipped until it has answered. `late_is_never` decides whether it counts
    as refusing until then, or as a candidate without an answer.
    """

    def __init__(
        self, estimates: Estimates, connect: Callable[[str], AskedCluster], *, late_is_never: bool
    ) -> None:
        self._estimates = estimates
        self._connect = connect
        self._late_is_never = late_is_never
        self._asking: dict[str, asyncio.Task[dict[str, Candidate]]] = {}

    async def ask(self, gangs: Mapping[str, Sequence[AskedGang]]) -> dict[str, dict[str, Candidate]]:
        """Request forecasts from each member cluster about its gangs. Return the forecasts by cluster and gang."""
        answers: dict[str, dict[str, Candidate]] = {}
        tasks: dict[str, asyncio.Task[dict[str, Candidate]]] = {}
        for name, asked in gangs.items():
            late = Candidate(name, never=self._late_is_never, message=_LATE)
            answers[name] = {gang.uid: late for gang in asked}
            open_question = self._asking.get(name)
            if open_question is None or open_question.done():
                task = asyncio.create_task(self._estimates.ask(self._connect(name), list(asked)))
                tasks[name] = self._asking[name] = task
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_ANSWERS)
        for name, task in tasks.items():
            if task.done() and not task.cancelled():
                answers[name] = task.result()
        return answers

    async def close(self) -> None:
        """Cancel the open forecast requests."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)


async def run_rounds(wake: asyncio.Event, play: Callable[[], Awaitable[float]], gather: float) -> None:
    """Call `play` for each round until cancelled: when `wake` is set, or after the seconds that the last call
    returned.

    Changes within `gather` seconds after the wake belong to the same round.
    """
    while True:
        wake.clear()
        pause = await play()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wake.wait()
        await asyncio.sleep(gather)
