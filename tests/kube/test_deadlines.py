"""Deadlines of many requests under one timer: each expires in time, and an ended one never."""

from __future__ import annotations

import asyncio

from phalanx.kube.http.deadlines import Deadlines


class Watched:
    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.expired: list[str] = []

    def begin(self, name: str, seconds: float) -> None:
        at = asyncio.get_running_loop().time() + seconds
        self.deadlines.begin(name, at, lambda: self.expired.append(name))


async def test_deadlines_expire_in_their_order() -> None:
    watched = Watched()
    watched.begin("late", 0.03)
    watched.begin("early", 0.01)
    await asyncio.sleep(0.02)
    assert watched.expired == ["early"]
    await asyncio.sleep(0.03)
    assert watched.expired == ["early", "late"]


async def test_ended_deadline_does_not_expire() -> None:
    watched = Watched()
    watched.begin("ended", 0.005)
    watched.begin("open", 0.01)
    watched.deadlines.end("ended")
    await asyncio.sleep(0.03)
    assert watched.expired == ["open"]


async def test_request_may_begin_while_another_expires() -> None:
    watched = Watched()
    now = asyncio.get_running_loop().time()
    watched.deadlines.begin("first", now, lambda: watched.begin("second", 0.005))
    await asyncio.sleep(0.03)
    assert watched.expired == ["second"]


async def test_requests_with_one_limit_share_a_timer() -> None:
    watched, loop = Watched(), asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **more: (timers.append(when), call_at(when, *rest, **more))[1]  # type: ignore
    try:
        for number in range(100):
            watched.begin(str(number), 30.0)
            watched.deadlines.end(str(number))
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]
    assert len(timers) == 1
    watched.deadlines.close()


async def test_closed_deadlines_expire_nothing() -> None:
    watched = Watched()
    watched.begin("open", 0.001)
    watched.deadlines.close()
    await asyncio.sleep(0.01)
    assert watched.expired == []
