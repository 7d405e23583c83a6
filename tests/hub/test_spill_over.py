"""A gang that waits in a cluster is moved when another starts it clearly sooner, and never after its start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.choice.spill_over import WaitingThere, reason_to_move
from tests.hub.federation import Federation, federation

NOW = 1_000_000


def moved(own: Candidate, other: Candidate, promised: int = NOW, since: int = NOW - 10_000, moves: int = 0) -> bool:
    waiting = WaitingThere("u", own.name, promised, since, moves, tolerance=600)
    return bool(reason_to_move(waiting, own, [other], NOW))


def test_start_that_slips_within_the_tolerance_moves_no_gang() -> None:
    assert not moved(Candidate("east", NOW + 599), Candidate("west", NOW))


def test_a_slipped_promise_moves_a_gang_that_gains_as_much_elsewhere() -> None:
    assert moved(Candidate("east", NOW + 700), Candidate("west", NOW))
    assert not moved(Candidate("east", NOW + 700), Candidate("west", NOW + 200))


def test_a_promise_that_is_kept_is_left_only_for_twice_the_gain() -> None:
    assert not moved(Candidate("east", NOW + 1100), Candidate("west", NOW), promised=NOW + 1100)
    assert moved(Candidate("east", NOW + 1300), Candidate("west", NOW), promised=NOW + 1300)


def test_a_cluster_that_would_never_start_it_any_more_is_left() -> None:
    assert moved(Candidate("east", never=True), Candidate("west", NOW + 5000))
    assert not moved(Candidate("east", never=True), Candidate("west", never=True))


def test_gang_is_not_moved_without_forecasts_of_both_clusters() -> None:
    assert not moved(Candidate("east"), Candidate("west", NOW))
    assert not moved(Candidate("east", never=True), Candidate("west"))


def test_each_move_makes_the_next_one_harder_and_later() -> None:
    own, other = Candidate("east", NOW + 2000), Candidate("west", NOW)
    assert moved(own, other, moves=1)
    assert not moved(own, other, moves=2)
    assert not moved(own, other, since=NOW - 599)


def test_reason_names_the_promised_and_the_current_start() -> None:
    waiting = WaitingThere("u", "east", NOW, 0)
    why = reason_to_move(waiting, Candidate("east", never=True), [Candidate("west", NOW + 60)], NOW)
    assert why == (
        "east promised 1970-01-12T13:46:40Z, and says never now; west would start it at 1970-01-12T13:47:40Z"
    )


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Federation]:
    async with federation(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.asyncio
async def test_gang_without_room_is_recalled_and_starts_elsewhere(three: Federation) -> None:
    east, west = three.members["east"], three.members["west"]
    await east.end_scheduler()  # the scheduler is stopped so that the gang does not start here
    await east.node("n1", "8")
    await three.join("east")
    await three.join("west", cost=5)
    await three.start_hub()
    await three.gang("train", 2, "2", spill_after="1s")
    first = await three.until_record(phase="Granted", cluster="east")
    assert first["promised"]
    await three.gang("calm", 2, "2", spill_after="Never")
    await three.until_record("calm", phase="Granted", cluster="east")
    await east.client.delete("/api/v1/nodes/n1")
    await west.node("n1", "8")
    await three.until_bound("west", "train-0", "train-1")
    record = await three.until_record(phase="Granted", cluster="west", epoch=2)
    (attempt,) = record["attempts"]
    assert (attempt["outcome"], attempt["cluster"], attempt["epoch"]) == ("SpillOver", "east", 1)
    assert "east promised" in attempt["message"]
    assert "west would start it at" in attempt["message"]
    assert (await three.record("calm"))["cluster"] == "east"
    left = await east.pods()
    assert set(left) == {"calm-0", "calm-1"}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.asyncio
async def test_started_gang_stays_for_any_forecast_of_another_cluster(three: Federation) -> None:
    await three.members["east"].node("n1", "8")
    await three.join("east")
    await three.join("west")
    await three.start_hub()
    await three.gang("train", 2, "2", spill_after="0s")
    await three.until_bound("east", "train-0", "train-1")
    await three.members["west"].node("n1", "8")
    await three.gang("later", 2, "4", clusters="west")
    await three.until_bound("west", "later-0", "later-1")
    record = await three.record()
    assert (record["phase"], record["cluster"], record["epoch"]) == ("Granted", "east", 1)
