"""Figures of a run of all benchmarks: each benchmark records its own, and the run collects them in one file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

#: Environment variable with the file to which the benchmarks of one run append their figures, one JSON line each.
FIGURES = "PHALANX_BENCH_FIGURES"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value. `bare` is the value of the bare client in the same run, `promised` the limit that
    `value` must keep."""

    benchmark: str
    what: str
    value: float
    unit: str
    bare: float | None = None
    promised: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.bare if self.bare else None


def record(
    benchmark: str, what: str, value: float, unit: str, *, bare: float | None = None, promised: float | None = None
) -> None:
    """Append a figure to the file of the run; do nothing if a benchmark runs alone."""
    path = os.environ.get(FIGURES)
    if path:
        figure = Figure(_name(benchmark), what, value, unit, bare, promised)
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(figure) + b"\n")


def _name(benchmark: str) -> str:
    """Return the short name of a benchmark from its module or file."""
    return benchmark.rpartition("bench_")[2].removesuffix(".py")


def recorded(path: Path) -> list[Figure]:
    """Return the figures that the benchmarks of a run have recorded."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Figure) for line in lines]


def table(figures: Iterable[Figure]) -> list[str]:
    """Return the lines of a table: each figure with its ratio to the bare client and its promise."""
    lines = [f"{'benchmark':12} {'what':58} {'value':>12} {'unit':8} {'bare':>9} {'ratio':>6} {'promised':>9}"]
    for figure in figures:
        bare = f"{figure.bare:9.1f}" if figure.bare is not None else f"{'':9}"
        ratio = f"{figure.ratio:6.2f}" if figure.ratio is not None else f"{'':6}"
        promised = f"{figure.promised:9.3f}" if figure.promised is not None else ""
        value = f"{figure.benchmark:12} {figure.what:58} {figure.value:12.3f} {figure.unit:8}"
        lines.append(f"{value} {bare} {ratio} {promised}".rstrip())
    return lines
