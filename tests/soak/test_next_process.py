"""The next process decides what this process would decide; stories of faults that are not fixed are marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from .life import read, relive
from .next_process import next_process

OPEN = Path(__file__).parent / "stories" / "open"


def test_first_search_of_a_process_counts_no_requests_that_can_never_run() -> None:
    """The deserved share of the preemptor's queue is larger once these requests are marked."""
    life = relive(read(OPEN / "nominated-unit-loses-its-room-in-the-first-cycle.jsonl"), compares=False)
    assert not life.fault
    _, scheduler = next_process(life.cluster)
    assert scheduler.cycle(life.cluster.clock).evictions == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.xfail(strict=True, reason="open: see docs/decisions/045"))
        for path in sorted(OPEN.glob("*.jsonl"))
    ],
)
def test_open_faults_of_the_next_process(name: str) -> None:
    life = relive(read(OPEN / f"{name}.jsonl"))
    assert not life.fault
