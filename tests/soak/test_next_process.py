"""Stories of differences between this process and the next one that are not corrected yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from .life import read, relive

OPEN = Path(__file__).parent / "stories" / "open"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.xfail(strict=True, reason="open: see docs/decisions/042"))
        for path in sorted(OPEN.glob("*.jsonl"))
    ],
)
def test_open_faults_of_the_next_process(name: str) -> None:
    life = relive(read(OPEN / f"{name}.jsonl"))
    assert not life.fault
