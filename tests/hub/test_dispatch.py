"""A gang goes whole to one member cluster, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.hub.federation import Federation, federation

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio]

PODS = ("train-0", "train-1")


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Federation]:
    async with federation(tmp_path) as made:
        for name in made.members:
            await made.join(name)
        yield made


async def test_a_gang_goes_where_it_starts_first_and_its_end_is_told_at_the_hub(three: Federation) -> None:
    await three.members["north"].node("n1", "8")
    await three.start_hub()
    await three.gang()
    await three.until_bound("north", *PODS)
    record = await three.record()
    assert (record["phase"], record["cluster"], record["epoch"]) == ("Granted", "north", 1)
    await three.members["north"].phase("Running", *PODS)
    await three.until_phase("Running", *PODS)
    await three.members["north"].phase("Succeeded", *PODS)
    await three.until_phase("Succeeded", *PODS)
    assert (await three.until_record(phase="Ended"))["succeeded"] == 2
    await three.delete_gang()
    await three.until_empty("north")
    await three.until_forgotten()
