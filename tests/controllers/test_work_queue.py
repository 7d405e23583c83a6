"""The queue of keys: each once, never two at a time, later where it failed."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.controllers.work_queue import WorkQueue
from tests.clocks import use_virtual_time


async def worked(queue: WorkQueue[str], look: object, workers: int = 2, seconds: float = 0.2) -> None:
    use_virtual_time()
    task = asyncio.create_task(queue.run(look, workers))  # type: ignore[arg-type]
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_key_that_changes_often_is_processed_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: list[str] = []

    async def look(key: str) -> None:
        seen.append(key)

    for _ in range(5):
        queue.add("a", 0.01)
        queue.add("b")
    await worked(queue, look)
    assert sorted(seen) == ["a", "b"]
    assert len(queue) == 0


async def test_key_that_changes_while_processed_is_processed_again_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue()
    active, most, looks = 0, 0, 0

    async def look(key: str) -> None:
        nonlocal active, most, looks
        active += 1
        looks += 1
        most = max(most, active)
        if looks == 1:
            queue.add("a")
            queue.add("a", 5.0)
        await asyncio.sleep(0.02)
        active -= 1

    queue.add("a")
    await worked(queue, look, workers=4)
    assert (looks, most) == (2, 1)


async def test_a_failure_is_tried_again_and_harms_no_other() -> None:
    queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.0)
    seen: list[str] = []

    async def look(key: str) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            raise ValueError(key)

    queue.add("bad")
    queue.add("good")
    await worked(queue, look, seconds=0.5)
    assert seen.count("bad") == 3
    assert seen.count("good") == 1


async def test_earlier_time_wins_and_a_forgotten_key_is_not_processed() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: list[str] = []

    async def look(key: str) -> float | None:
        seen.append(key)
        return 0.02 if seen.count(key) < 3 else None

    queue.add("a", 60.0)
    queue.add("a", 0.0)
    queue.add("gone", 0.01)
    queue.forget("gone")
    await worked(queue, look)
    assert seen == ["a", "a", "a"]


async def test_a_worker_that_is_cancelled_ends() -> None:
    queue: WorkQueue[str] = WorkQueue()

    async def look(key: str) -> None:
        await asyncio.sleep(60)

    queue.add("a")
    task = asyncio.create_task(queue.run(look, 1))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
