"""Lines of a workload file that a simulation skips or changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

# Times above this (the year 1973) are seconds since the epoch, not since the beginning of a file.
EPOCH_SECONDS = 100_000_000
EPOCH_TIMES = "times are seconds since the epoch: counted from the first submission"


class InputChange(msgspec.Struct, frozen=True):
    """One line that is not simulated as written. `job` is its name in the file, `skipped` whether it is left out;
    `before` and `after` are the changed value, "" for a skipped line."""

    file: str
    line: int
    job: str
    reason: str
    skipped: bool = False
    before: str = ""
    after: str = ""


class ChangeCount(msgspec.Struct, frozen=True):
    """Number of lines of a file that are skipped, or changed, for one reason."""

    file: str
    reason: str
    skipped: bool
    lines: int


def count_changes(changes: Sequence[InputChange]) -> list[ChangeCount]:
    """Return the counts by file and reason, in order of their first lines."""
    counts = Counter((change.file, change.reason, change.skipped) for change in changes)
    return [ChangeCount(*key, lines) for key, lines in counts.items()]
