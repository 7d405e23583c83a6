"""How far a long list has been read, on stderr and on a terminal only."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

_PATIENCE = 0.5
_PERIOD = 0.1
_BAR = 24


class Progress:
    """A line that is rewritten, once reading has taken `patience` seconds, and is gone in the end."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._begun = time.monotonic()
        self._shown = 0.0
        self._wanted = sys.stderr.isatty()
        self._of_kind: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def advanced(self, kind: str, read: int, left: int) -> None:
        """So many objects of a kind are read, so many are left as far as the server knows."""
        self._of_kind[kind] = (read, left)
        now = time.monotonic()
        if self._wanted and now - self._begun >= self._patience and now - self._shown > _PERIOD:
            self._shown = now
            self._write(self._line(now))

    def _line(self, now: float) -> str:
        read = sum(done for done, _ in self._of_kind.values())
        total = read + sum(left for _, left in self._of_kind.values())
        full = _BAR * read // max(1, total)
        return f"reading {'█' * full}{'·' * (_BAR - full)} {read:,} of {total:,} objects, {now - self._begun:.0f} s"

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{text[: width - 1].ljust(width - 1)}\r")
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")
