"""Common fields of maintenance windows and advance reservations: nodes, time span and recurrence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from phalanx.dialects.label_selectors import IllegibleSelectorError, read_selector
from phalanx.dialects.reader import ObjectReader
from phalanx.dialects.times import parse_duration, parse_moment
from phalanx.model.recurrence import Recurrence, parse_recurrence
from phalanx.model.selectors import Requirement

#: The longest duration of one occurrence: a leap year, in seconds.
_LONGEST = 366 * 86_400
# The year 9000, far enough from the last representable date for date arithmetic.
_LATEST = 221_845_392_000
_MOST_NAMES = 4096

Word = TypeVar("Word", bound=StrEnum)


def read_nodes(reader: ObjectReader) -> tuple[tuple[str, ...], tuple[Requirement, ...] | None]:
    stated = reader.spec.get("nodes")
    names = stated.get("names") if isinstance(stated, Mapping) else None
    selector = stated.get("selector") if isinstance(stated, Mapping) else None
    if names is None and selector is None:
        reader.refuse("spec.nodes", stated, "write {names: [n1]}, or {selector: {matchLabels: {rack: a}}}")
        return (), None
    if names is not None and not (
        isinstance(names, list) and len(names) <= _MOST_NAMES and all(isinstance(name, str) for name in names)
    ):
        reader.refuse("spec.nodes.names", names, f"write a list of at most {_MOST_NAMES} names of nodes")
        return (), None
    try:
        requirements = read_selector(selector) if selector is not None else None
    except IllegibleSelectorError as error:
        reader.refuse("spec.nodes.selector", selector, str(error))
        return (), None
    return tuple(sorted(names or ())), requirements


def read_span(reader: ObjectReader) -> tuple[int, int]:
    """Return the start and end of the first occurrence of a window or reservation; (0, 0) if unreadable."""
    start = read_moment(reader, "start")
    end, duration = reader.spec.get("end"), reader.spec.get("duration")
    if start is None:
        return 0, 0
    if (end is None) == (duration is None):
        reader.refuse("spec.end", end, "write either end, or duration")
        return 0, 0
    last = read_moment(reader, "end") if end is not None else start + read_length(reader, "duration", 0)
    if last is None:
        return 0, 0
    if not start < last <= start + _LONGEST:
        field = "end" if end is not None else "duration"
        reader.refuse(f"spec.{field}", reader.spec.get(field), "write one after the start, by at most 366 days")
        return 0, 0
    return start, last


def read_moment(reader: ObjectReader, field: str) -> int | None:
    stated = reader.spec.get(field)
    moment = parse_moment(stated) if isinstance(stated, str) else None
    seconds = _seconds(moment)
    if seconds is None:
        reader.refuse(f"spec.{field}", stated, "write a time with its zone, such as 2026-12-24T18:00:00Z")
    return seconds


def _seconds(moment: datetime | None) -> int | None:
    if moment is None or moment.tzinfo is None:
        return None
    try:
        seconds = int(moment.timestamp())
    except (OverflowError, ValueError):
        return None
    return seconds if 0 <= seconds < _LATEST else None


def read_length(reader: ObjectReader, field: str, default: int) -> int:
    stated = reader.spec.get(field)
    if stated is None:
        return default
    try:
        seconds = parse_duration(stated) if isinstance(stated, str) else -1
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _LONGEST:
        reader.refuse(f"spec.{field}", stated, "write a duration such as 90m or 4h, of at most 8784h")
        return default
    return seconds


def read_word(reader: ObjectReader, field: str, words: type[Word], default: Word) -> Word:
    stated = reader.spec.get(field)
    if stated is None:
        return default
    try:
        return words(str(stated))
    except ValueError:
        *first_words, last_word = (word.value for word in words)
        reader.refuse(f"spec.{field}", stated, f"write {', '.join(first_words)} or {last_word}")
        return default


def read_recurrence(reader: ObjectReader, start: int, end: int) -> Recurrence | None:
    stated = reader.spec.get("recurrence")
    if stated is None:
        return None
    rule = stated.get("rule") if isinstance(stated, Mapping) else None
    zone = (stated.get("timeZone") or "") if isinstance(stated, Mapping) else None
    skip = (stated.get("skip") or []) if isinstance(stated, Mapping) else None
    if not (isinstance(rule, str) and isinstance(zone, str) and isinstance(skip, list)):
        reader.refuse(
            "spec.recurrence",
            stated,
            "write {rule: FREQ=WEEKLY;BYDAY=SU, timeZone: Europe/Berlin, skip: [2026-12-27]}",
        )
        return None
    try:
        recurrence = parse_recurrence(rule, zone, [str(day) for day in skip], start, end - start)
    except ValueError as error:
        field, _, advice = str(error).partition(": ")
        reader.refuse(f"spec.recurrence.{field}", stated.get(field), advice)
        return None
    first = recurrence.next_start(start)
    second = recurrence.next_start(first + 1) if first is not None else None
    if first is not None and second is not None and second - first < recurrence.duration:
        advice = "the next occurrence starts before this one ends; make the window shorter"
        reader.refuse("spec.recurrence.rule", rule, advice)
    return recurrence
