"""Text columns, field lists and bars in the layout of kubectl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phalanx.cli.listing.harmless import cells_of, harmless
from phalanx.model.resources import PODS, scale_of
from phalanx.model.text.quantity import format_quantity, parse_quantity

_GAP = "   "
NONE = "<none>"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows as left-aligned columns with the header first; empty cells print as `<none>`."""
    table = [list(header), *(cells_of(row, NONE) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def fields(pairs: Iterable[tuple[str, str]], indent: str = "") -> list[str]:
    """Format pairs as `Name:   value` lines with aligned values; further lines of a value are indented below its
    first."""
    shown = [(name, [harmless(line) for line in value.splitlines()] or [NONE]) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0) + 2
    lines = []
    for name, (first, *rest) in shown:
        lines.append(f"{indent}{name + ':':<{width}}{first}".rstrip())
        lines.extend(f"{indent}{'':{width}}{line}".rstrip() for line in rest)
    return lines


def brief(amounts: Mapping[str, str], only: Iterable[str] | None = None) -> str:
    """Format resource amounts as `cpu=4,gpu=2`: rounded, resource names without domain, limited to `only` if
    given."""
    names = [name for name in amounts if only is None or name in only]
    return ",".join(f"{_short(name, names)}={rounded(name, amounts[name])}" for name in names)


def spoken(amounts: Mapping[str, str]) -> str:
    """Format resource amounts as `4 cpu, 2 nvidia.com/gpu`, for use in a sentence."""
    return ", ".join(f"{rounded(name, amount)} {name}" for name, amount in amounts.items())


def without_slots(amounts: Mapping[str, str]) -> dict[str, str]:
    """Return the amounts without the resource `pods`, whose count has its own column."""
    return {name: amount for name, amount in amounts.items() if name != PODS}


def rounded(resource: str, amount: str) -> str:
    return format_quantity(parse_quantity(amount, scale_of(resource)), resource)


def percent(share: float) -> str:
    return f"{share:.1f}%"


def bar(share: float, own: float, width: int) -> str:
    """Draw a share of the cluster as a bar of 100 percent: used within the own share (█), used above it (▓), own
    but unused (░)."""
    used, own_cells = _cells(share, width), _cells(own, width)
    within = min(used, own_cells)
    cells = "█" * within + "▓" * (used - within) + "░" * max(0, own_cells - used)
    return cells.ljust(width, "·")


def _cells(share: float, width: int) -> int:
    """Return the number of bar cells for a share in percent; a share above 0 has at least one."""
    return min(width, max(1, round(share * width / 100))) if share > 0 else 0


def _short(name: str, names: Sequence[str]) -> str:
    last = name.rpartition("/")[2]
    return last if sum(other.rpartition("/")[2] == last for other in names) == 1 else name
