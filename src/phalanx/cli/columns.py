"""Columns and bars as kubectl's users are used to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phalanx.cli.listing.harmless import cells_of, harmless
from phalanx.model.resources import PODS, scale_of
from phalanx.model.text.quantity import format_quantity, parse_quantity

_GAP = "   "
NONE = "<none>"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Left-aligned, as wide as needed; empty cells are shown as `<none>`."""
    table = [list(header), *(cells_of(row, NONE) for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(header))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def fields(pairs: Iterable[tuple[str, str]], indent: str = "") -> list[str]:
    """`Name:   value` lines with the values below each other; several lines of a value stay together."""
    shown = [(name, [harmless(line) for line in value.splitlines()] or [NONE]) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0) + 2
    lines = []
    for name, (first, *rest) in shown:
        lines.append(f"{indent}{name + ':':<{width}}{first}".rstrip())
        lines.extend(f"{indent}{'':{width}}{line}".rstrip() for line in rest)
    return lines


def brief(amounts: Mapping[str, str], only: Iterable[str] | None = None) -> str:
    """`cpu=4,gpu=2`: rounded, resources without their domain; of those in `only`, if given."""
    names = [name for name in amounts if only is None or name in only]
    return ",".join(f"{_short(name, names)}={rounded(name, amounts[name])}" for name in names)


def spoken(amounts: Mapping[str, str]) -> str:
    """`4 cpu, 2 nvidia.com/gpu`: as sentences say it."""
    return ", ".join(f"{rounded(name, amount)} {name}" for name, amount in amounts.items())


def without_slots(amounts: Mapping[str, str]) -> dict[str, str]:
    """The amounts but for the slots that pods take: their number has a column of its own."""
    return {name: amount for name, amount in amounts.items() if name != PODS}


def rounded(resource: str, amount: str) -> str:
    return format_quantity(parse_quantity(amount, scale_of(resource)), resource)


def percent(share: float) -> str:
    return f"{share:.1f}%"


def bar(share: float, own: float, width: int) -> str:
    """What is used of one's own (█), above it (▓), and one's own that is not used (░), of 100 percent."""
    used, right = _cells(share, width), _cells(own, width)
    within = min(used, right)
    cells = "█" * within + "▓" * (used - within) + "░" * max(0, right - used)
    return cells.ljust(width, "·")


def _cells(share: float, width: int) -> int:
    """Anything at all is at least one cell."""
    return min(width, max(1, round(share * width / 100))) if share > 0 else 0


def _short(name: str, names: Sequence[str]) -> str:
    last = name.rpartition("/")[2]
    return last if sum(each.rpartition("/")[2] == last for each in names) == 1 else name
