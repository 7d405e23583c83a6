"""Table of all measurements: name, measured value, and promised value of each."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable, Iterable

import msgspec

from benchmarks.figures import record


class Row(msgspec.Struct):
    """One line. `limit` is the promise (None where there is none): the figure must not exceed it."""

    what: str
    seconds: float
    limit: float | None = None
    note: str = ""
    megabytes: float = 0.0


def in_own_process(measure: Callable[..., Row], *arguments: object) -> Row:
    """Runs one measurement in a fresh interpreter, so that its peak of memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_memory, (measure, arguments))


def all_in_own_process(measure: Callable[..., list[Row]], *arguments: object) -> list[Row]:
    """The same for a measurement of several lines."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        rows, megabytes = pool.apply(_all_with_memory, (measure, arguments))
    for row in rows:
        row.megabytes = megabytes
    return rows


def _with_memory(measure: Callable[..., Row], arguments: tuple[object, ...]) -> Row:
    row = measure(*arguments)
    row.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _all_with_memory(measure: Callable[..., list[Row]], arguments: tuple[object, ...]) -> tuple[list[Row], float]:
    return measure(*arguments), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(rows: Iterable[Row]) -> bool:
    """Prints the rows as they come; whether every promise was kept."""
    print(f"{'what':58} {'seconds':>9} {'promised':>9} {'max MB':>7}  note")
    kept = True
    benchmark = getattr(sys.modules["__main__"].__spec__, "name", "")
    for row in rows:
        record(benchmark, row.what, row.seconds, "s", promised=row.limit)
        promised = f"{row.limit:9.3f}" if row.limit is not None else f"{'':9}"
        broken = row.limit is not None and row.seconds > row.limit
        kept = kept and not broken
        mark = "  <-- too slow" if broken else ""
        print(f"{row.what:58} {row.seconds:9.3f} {promised} {row.megabytes:7.0f}  {row.note}{mark}", flush=True)
    return kept
