"""Progress of reading a long list of objects, on stderr, only on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

_DELAY = 0.5
_PERIOD = 0.1
_BAR = 24


class Progress:
    """Terminal line that shows the progress after `patience` seconds of reading, and is cleared at the end."""

    def __init__(self, patience: float = _DELAY) -> None:
        self._patience = patience
        self._start = time.monotonic()
        self._shown = 0.0
        self._wanted = sys.stderr.isatty()
        self._of_kind: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def advanced(self, kind: str, read: int, left: int) -> None:
        """Report the number of objects of `kind` that have been read, and the server's estimate of the remaining
        ones."""
        self._of_kind[kind] = (read, left)
        now = time.monotonic()
        if self._wanted and now - self._start >= self._patience and now - self._shown > _PERIOD:
            self._shown = now
            self._write(self._line(now))

    def _line(self, now: float) -> str:
        read = sum(done for done, _ in self._of_kind.values())
        total = read + sum(remaining for _, remaining in self._of_kind.values())
        full = _BAR * read // max(1, total)
        return f"reading {'█' * full}{'·' * (_BAR - full)} {read:,} of {total:,} objects, {now - self._start:.0f} s"

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{text[: width - 1].ljust(width - 1)}\r")
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")
