"""Progress bar for a terminal: one line that is overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")
_WIDTH = 30


class ProgressBar:
    """Progress of `total` runs; a run can report its own progress with `within`."""

    def __init__(self, stream: TextIO, total: int, *, shown: bool) -> None:
        self._stream, self._total, self._shown = stream, total, shown
        self._done = 0
        self._last = ""

    def each(self, tasks: Iterable[T]) -> Iterator[T]:
        for task in tasks:
            yield task
            self.advance()

    def advance(self) -> None:
        self._done += 1
        self._show(0.0)

    def within(self, done: int, total: int) -> None:
        self._show(done / total if total else 0.0)

    def close(self) -> None:
        if self._shown and self._last:
            self._stream.write("\r" + " " * len(self._last) + "\r")
            self._stream.flush()

    def _show(self, part: float) -> None:
        if not self._shown:
            return
        whole = min(1.0, (self._done + min(part, 0.999)) / self._total)
        filled = int(_WIDTH * whole)
        line = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {whole:4.0%} {self._done} of {self._total} runs"
        if line != self._last:
            self._stream.write("\r" + line)
            self._stream.flush()
            self._last = line
