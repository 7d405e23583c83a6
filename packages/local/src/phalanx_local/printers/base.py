"""Base of the `kubectl get` printers: the printer type, and durations in kubectl's format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, metadata
from phalanx_local.registry.resources import Column

UNKNOWN: Final = "<unknown>"
NONE: Final = "<none>"

Cells = Callable[[Json, float], list[Any]]


class Printer(NamedTuple):
    """Columns of a kind in `kubectl get`, and a function that returns the cells of an object at a time (seconds
    since the epoch)."""

    columns: tuple[Column, ...]
    cells: Cells


NAME: Final = Column("Name", "string", "Name must be unique within a namespace.", 0, "name")
AGE: Final = Column("Age", "string", "Time since the object was created.")


def column(name: str, type_: str = "string", priority: int = 0) -> Column:
    return Column(name, type_, "", priority)


def age(obj: Json, now: float) -> str:
    """Return the time since the object's creation in kubectl's format."""
    return since(metadata(obj).get("creationTimestamp"), now)


def since(timestamp: object, now: float) -> str:
    """Return the time since a timestamp in kubectl's format, or <unknown>."""
    then = parse_timestamp(timestamp)
    return human_duration(now - then) if then is not None else UNKNOWN


def human_duration(seconds: float) -> str:
    """Format a duration in at most two units, like ages in kubectl: 45s, 3m7s, 12m, 5h3m, 2d4h, 40d, 3y20d."""
    if seconds < -1:
        return "<invalid>"
    whole = int(max(0.0, seconds))
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    if days < 2920:
        return _pair(years, "y", days % 365, "d")
    return f"{years}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def joined(values: list[str], limit: int = 0) -> str:
    """Join values by comma; instead of values beyond the limit, print how many there are."""
    if not values:
        return NONE
    if limit and len(values) > limit:
        return ",".join(values[:limit]) + f" + {len(values) - limit} more..."
    return ",".join(values)


def labels_text(labels: Json) -> str:
    """Format labels as a label selector, or <none>."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE
