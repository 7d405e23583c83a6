"""Events that arrive together are planned in one cycle."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.daemon import lifecycle
from phalanx.daemon.lifecycle import Lifecycle


class Arrivals:
    """Events that wake a scheduler one after the other, one in each round of the event loop."""

    def __init__(self, woken: Lifecycle, most: int) -> None:
        self.events = 0
        self._woken = woken
        self.task = asyncio.create_task(self._arrive(most))

    async def _arrive(self, most: int) -> None:
        for _ in range(most):
            self.events += 1
            self._woken.wake.set()
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_GATHER", 0.0)


async def test_cycle_waits_until_no_further_event_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_LONGEST_GATHER", 1000.0)
    woken = Lifecycle()
    arrivals = Arrivals(woken, 5)
    await woken.events_gathered()
    assert arrivals.events == 5
    assert not woken.wake.is_set()


async def test_events_without_a_pause_do_not_delay_a_cycle_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_LONGEST_GATHER", 0.0)
    woken = Lifecycle()
    arrivals = Arrivals(woken, 1000)
    await woken.events_gathered()
    assert arrivals.events == 1
    arrivals.task.cancel()
