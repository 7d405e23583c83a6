"""Statuses that change faster than the watch delivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.dialects.status import StatusChange
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.gang import GroupRef
from phalanx.status import status_writer
from phalanx.status.status_writer import DerivedStatus, StatusWriter

REF = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "g", "uid-g")


class Api:
    """One status; every write is merged into it, also one whose answer is lost."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.writes = 0
        self.lose = 0
        self.conflicts = 0
        self.moved: list[Any] = []

    async def write(self, change: StatusChange) -> None:
        self.writes += 1
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "try again")
        self.status |= change.patch
        if self.lose:
            self.lose -= 1
            raise ConnectionLost("the answer is lost")


class Place:
    """`truth` is the wanted status, `seen` the status delivered by the watch."""

    def __init__(self) -> None:
        self.api, self.pool, self.now = Api(), WritePool(), 0.0
        self.truth: dict[str, Any] = {}
        self.seen: dict[str, Any] = {}
        self.writer: StatusWriter[str] = StatusWriter(
            self.api,  # type: ignore[arg-type]
            self.pool,
            self._derive,
            str,
            retry=RetryPolicy(base=0.001, cap=0.01),
            clock=lambda: self.now,
        )

    def _derive(self, key: str) -> DerivedStatus:
        patch = {name: value for name, value in self.truth.items() if self.seen.get(name, 0) != value}
        return DerivedStatus(StatusChange(REF, patch), dict(self.seen))

    async def becomes(self, **truth: Any) -> None:
        self.truth = truth
        self.writer.submit("g")
        await asyncio.sleep(0.02)

    def watch(self) -> None:
        self.seen = dict(self.api.status)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "_LOOK", 0.001)


@pytest.mark.parametrize("lost", [0, 1])
async def test_second_change_waits_until_the_first_was_observed(lost: int) -> None:
    """Otherwise it would not include the field that the first change has added."""
    place = Place()
    place.api.lose = lost
    await place.becomes(running=2, succeeded=0)
    await place.becomes(running=0, succeeded=2)
    assert place.api.status == {"running": 2}
    place.watch()
    await asyncio.sleep(0.02)
    assert place.api.status == {"running": 0, "succeeded": 2}
    await place.pool.close()


async def test_unobserved_change_is_not_awaited_forever() -> None:
    place = Place()
    await place.becomes(running=2, succeeded=0)
    await place.becomes(running=2, succeeded=1)
    assert place.api.writes == 1
    place.now = 10.0
    await asyncio.sleep(0.02)
    assert place.api.status == {"running": 2, "succeeded": 1}
    await place.pool.close()


async def test_conflict_without_an_event_is_retried() -> None:
    """Servers under contention answer 409 although nothing has changed: the watch has no event then."""
    place = Place()
    place.api.conflicts = 7
    await place.becomes(running=2)
    async with asyncio.timeout(5):
        while not place.api.status:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert place.api.writes == 8
    await place.pool.close()
