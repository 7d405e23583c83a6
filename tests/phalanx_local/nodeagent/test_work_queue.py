"""Work by key: in parallel, never twice at once, nothing lost."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from phalanx_local.nodeagent.work_queue import KeyedQueue


async def drain(queue: KeyedQueue) -> None:
    while len(queue):  # noqa: ASYNC110 - the queue has no event to wait for, and needs none
        await asyncio.sleep(0)


async def test_marks_of_a_waiting_key_are_one() -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        done.append(key)

    queue = KeyedQueue(work, 1)
    for key in "aabab":
        queue.mark(key)
    await drain(queue)
    assert done == ["a", "b"]


async def test_news_about_a_busy_key_is_worked_on_afterwards_and_never_at_once() -> None:
    calls, busy, go = Counter[str](), Counter[str](), asyncio.Event()

    async def work(key: str) -> None:
        busy[key] += 1
        assert busy[key] == 1
        calls[key] += 1
        await go.wait()
        busy[key] -= 1

    queue = KeyedQueue(work, 4)
    queue.mark("a")
    await asyncio.sleep(0)
    queue.mark("a")
    queue.mark("a")
    queue.mark("b")
    await asyncio.sleep(0)
    go.set()
    await drain(queue)
    assert calls == {"a": 2, "b": 1}


async def test_running_tasks_never_exceed_the_limit() -> None:
    now, most = 0, 0

    async def work(key: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    queue = KeyedQueue(work, 3)
    for number in range(20):
        queue.mark(str(number))
    await drain(queue)
    assert most == 3


async def test_a_key_is_called_again_after_the_pause_that_it_asks_for() -> None:
    pauses: list[float | None] = [0.001, 0.001, None]
    calls = 0

    async def work(key: str) -> float | None:
        nonlocal calls
        calls += 1
        return pauses.pop(0)

    queue = KeyedQueue(work, 1)
    queue.mark("a")
    while pauses:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await drain(queue)
    assert calls == 3


async def test_a_failure_harms_its_own_key_only(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        if key == "bad":
            raise RuntimeError("unforeseen")
        done.append(key)

    queue = KeyedQueue(work, 1)
    for key in ("bad", "good"):
        queue.mark(key)
    await drain(queue)
    assert done == ["good"]
    assert "work on bad failed" in caplog.text
    await queue.close()


async def test_a_closed_queue_takes_no_more() -> None:
    async def work(key: str) -> None:
        raise AssertionError("closed")

    queue = KeyedQueue(work, 1)
    await queue.close()
    queue.mark("a")
    await asyncio.sleep(0)
    assert len(queue) == 0
