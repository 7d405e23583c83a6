"""The record of promised starts: the reclaimed gangs in it, and the next process that reads them."""

from __future__ import annotations

import json

import pytest

from phalanx.daemon.controllers.reservation_record import ReservationRecord
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.retry import RetryPolicy
from phalanx.model.promise_records import StoredStarts
from phalanx.model.reclaim_records import ReclaimedGang
from phalanx.scheduling.features.borrow_backoff import BorrowBackoff
from phalanx.views.promise_record import RECLAIMS_KEY, promises_of

from .test_usage_record import ConfigMaps

NOW = 1_704_074_400
NAME = "phalanx-reservations"


class Process:
    """One run of the scheduler, with only its back-offs."""

    def __init__(self, api: ConfigMaps) -> None:
        self.backoff = BorrowBackoff()
        self.pool = WritePool(concurrency=2)
        client = KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)
        self.record = ReservationRecord(
            client,
            self.pool,
            "kube-system",
            lambda: (0, [], [], []),
            StoredStarts,
            self.backoff,
            retry=RetryPolicy(attempts=2, base=0.0001),
            now=lambda: NOW,
        )

    async def begin(self) -> Process:
        await self.record.load()
        return self

    async def save(self) -> None:
        self.record.save()
        await self.pool.drained()


@pytest.fixture
def api() -> ConfigMaps:
    return ConfigMaps()


async def test_nothing_is_written_before_the_first_reclaim(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    await process.save()
    assert api.writes == []


async def test_reclaimed_gang_is_restored_by_the_next_process_without_a_write(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    process.backoff.reclaimed("uid-1", NOW)
    process.backoff.reclaimed("uid-1", NOW + 50)
    process.backoff.room_idle("uid-1", NOW + 60)
    await process.save()
    await process.save()
    assert api.writes == [f"POST {NAME}"]
    successor = await Process(api).begin()
    assert successor.backoff.export() == [ReclaimedGang("uid-1", 2, NOW + 50, NOW + 60)]
    await successor.save()
    assert api.writes == [f"POST {NAME}"]


async def test_views_read_the_reclaimed_gangs_of_the_record(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    process.backoff.reclaimed("uid-1", NOW)
    await process.save()
    assert promises_of(api.objects[NAME]).reclaimed == (ReclaimedGang("uid-1", 1, NOW),)


async def test_unreadable_reclaims_are_ignored_with_a_warning(
    api: ConfigMaps, caplog: pytest.LogCaptureFixture
) -> None:
    process = await Process(api).begin()
    process.backoff.reclaimed("uid-1", NOW)
    await process.save()
    api.objects[NAME]["data"][RECLAIMS_KEY] = json.dumps({"version": 1, "gangs": [{"uid": 7}]})
    successor = await Process(api).begin()
    assert successor.backoff.export() == []
    assert f"key {RECLAIMS_KEY}: its reclaims are forgotten" in caplog.text
