"""Questions to clusters: one at a time for each, and the result for a late cluster."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from phalanx.hub.choice import questions
from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.choice.estimates import AskedCluster, AskedGang, Estimates
from phalanx.hub.choice.questions import Questions, run_rounds

GANG = AskedGang("uid-1", "ml/train", ())


class Clusters:
    """Clusters that answer when they are let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked: list[str] = []

    async def ask(self, cluster: AskedCluster, gangs: list[AskedGang]) -> dict[str, Candidate]:
        name = cast("str", cluster)
        self.asked.append(name)
        await self.open.wait()
        return {gang.uid: Candidate(name, start=0) for gang in gangs}

    def questions(self, *, late_is_never: bool) -> Questions:
        connect: Any = str
        return Questions(cast("Estimates", self), connect, late_is_never=late_is_never)


@pytest.mark.parametrize("late_is_never", [True, False])
async def test_late_cluster_is_not_asked_again_until_it_has_answered(
    late_is_never: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_ANSWERS", 0.01)
    clusters = Clusters()
    asking = clusters.questions(late_is_never=late_is_never)
    late = {"a": {GANG.uid: Candidate("a", never=late_is_never, message="is still processing the last question")}}
    assert await asking.ask({"a": [GANG]}) == late
    assert await asking.ask({"a": [GANG]}) == late
    assert clusters.asked == ["a"]
    clusters.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await asking.ask({"a": [GANG]}) == {"a": {GANG.uid: Candidate("a", start=0)}}
    await asking.close()


async def test_rounds_are_played_when_woken_and_when_their_pause_is_over() -> None:
    wake, played = asyncio.Event(), asyncio.Queue[None]()
    pauses = iter([60.0, 0.0, 60.0])

    async def play() -> float:
        played.put_nowait(None)
        return next(pauses)

    async with asyncio.timeout(10):
        running = asyncio.create_task(run_rounds(wake, play, 0.0))
        await played.get()
        wake.set()
        await played.get()
        await played.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert played.empty()
