"""The collector skips the cached cluster while it is read; afterwards it works as before."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from phalanx.daemon import garbage_collection
from phalanx.daemon.garbage_collection import collections_postponed, until_ready


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def test_cached_objects_are_frozen_and_collection_resumes() -> None:
    # CPython 3.12 freezes some objects of its own.
    frozen = gc.get_freeze_count()
    ready = asyncio.Event()
    waiting = asyncio.create_task(until_ready(ready))
    await asyncio.sleep(0)
    assert not gc.isenabled()
    assert gc.get_freeze_count() == frozen
    ready.set()
    await waiting
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


async def test_young_objects_are_collected_more_rarely_once_ready() -> None:
    gc.set_threshold(700, 10, 10)  # other tests of this process set another
    ready = asyncio.Event()
    ready.set()
    await until_ready(ready)
    assert gc.get_threshold()[0] > 10 * 700


def test_collections_are_postponed_only_within_the_context() -> None:
    with collections_postponed():
        assert not gc.isenabled()
    assert gc.isenabled()


async def test_a_standby_collects_as_ever_while_it_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "_LONGEST", 0.0)
    frozen = gc.get_freeze_count()
    ready = asyncio.Event()
    waiting = asyncio.create_task(until_ready(ready))
    while gc.get_freeze_count() == frozen:  # noqa: ASYNC110 - the collector tells nobody
        await asyncio.sleep(0.001)
    assert gc.isenabled()
    assert not waiting.done()
    ready.set()
    await waiting


async def test_objects_of_the_first_cycles_are_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "_FIRST_CYCLES", 0.05)
    ready = asyncio.Event()
    ready.set()
    await until_ready(ready)
    frozen, kept = gc.get_freeze_count(), [[number] for number in range(10_000)]
    await asyncio.sleep(0.1)
    assert gc.get_freeze_count() > frozen + len(kept) // 2
