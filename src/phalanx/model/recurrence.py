"""Recurrences of time windows: a subset of RFC 5545's rules, in a time zone."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice
from typing import Literal

import msgspec
from dateutil.rrule import DAILY, HOURLY, MO, MONTHLY, WEEKLY, rrule, weekday

from phalanx.model.text.decoding import quoted

_Frequency = Literal[2, 3, 4, 1]
_FREQUENCIES: dict[str, _Frequency] = {"HOURLY": HOURLY, "DAILY": DAILY, "WEEKLY": WEEKLY, "MONTHLY": MONTHLY}
_STEPS = {HOURLY: timedelta(hours=1), DAILY: timedelta(days=1), WEEKLY: timedelta(weeks=1)}
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_READ = "FREQ, INTERVAL, BYDAY, BYHOUR, BYMINUTE, BYMONTHDAY, COUNT, UNTIL, WKST"
_MOST_CHARACTERS = 512
_MOST_INTERVAL = 1_000
_MOST_COUNT = 10_000
_MOST_SKIPPED = 1_000
_MOST_PER_DAY = 96
# A rule is searched for this number of periods: a date that does not match within them never matches.
_TURNS = 10_000
# Clock changes shift a start by at most a day; one more day is for the zone itself.
_MARGIN = timedelta(days=2)
_LATEST = datetime(9000, 1, 1)
_FIRST_MONDAY = datetime(1970, 1, 5)
_LATEST_SECOND = 221_845_392_000


class Occurrence(msgspec.Struct, frozen=True, order=True):
    """One time window: from `start` (included) to `end` (excluded), in seconds since the epoch."""

    start: int
    end: int


class Recurrence(msgspec.Struct, frozen=True):
    """Recurrence rule of a time window; each occurrence lasts `duration` seconds, and its start is in local time of
    the zone.

    - A local time that the zone skips is later by the skipped time (02:30 is 03:30 if 02:00 jumps to 03:00). A
    local time that occurs twice counts once, at its first occurrence. Two starts at the same moment are one.

    - No occurrence is before `start`, which is an occurrence itself only if the rule matches it.

    - `until` is the last moment of a start, None for no end: COUNT is converted to it once.

    - Starts on a local date in `skip` are omitted, but count for COUNT, as in RFC 5545; two starts at the same
    moment count as two.

    `frequency` is the number of dateutil; `weekdays` are (day, index in the month or 0), Monday is 0. Fields that
    the rule omits (hour, minute, day) are those of `start`.
    """

    start: int
    duration: int
    zone: str
    frequency: _Frequency
    interval: int = 1
    weekdays: tuple[tuple[int, int], ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    week_start: int = 0
    until: int | None = None
    skip: frozenset[date] = frozenset()

    def occurrences(self, begin: int, end: int) -> tuple[Occurrence, ...]:
        """Return the occurrences of the rule that overlap [begin, end), ordered by start."""
        starts = self._starts(max(begin - self.duration + 1, self.start), min(end, _LATEST_SECOND))
        return tuple(Occurrence(at, at + self.duration) for at in starts)

    def next_start(self, moment: int) -> int | None:
        """Return the first start of an occurrence at or after `moment`; None if there is none."""
        at = max(moment, self.start)
        for turns in (8, _TURNS):  # most rules match within a few periods
            starts = self._starts(at, min(self._turns_later(at, turns), _LATEST_SECOND))
            if starts:
                return starts[0]
        return None

    def _starts(self, begin: int, end: int) -> list[int]:
        """Return the starts of occurrences in [begin, end)."""
        if self.until is not None:
            end = min(end, self.until + 1)
        if begin >= end:
            return []
        zone = find_zone(self.zone)
        low, high = _wall_clock(begin, zone) - _MARGIN, _wall_clock(end, zone) + _MARGIN
        starts = {
            self._moment(local, zone) for local in self._local_starts(low, high) if local.date() not in self.skip
        }
        return sorted(at for at in starts if begin <= at < end)

    def _moment(self, local: datetime, zone: tzinfo) -> int:
        # The first start can be the second of two moments with the same local time.
        return self.start if local == _wall_clock(self.start, zone) else _seconds(local, zone)

    def _local_starts(self, low: datetime, high: datetime) -> Iterator[datetime]:
        """Yield the local times of starts between two local times, including skipped dates."""
        first = _wall_clock(self.start, find_zone(self.zone))
        plain_month = self.frequency == MONTHLY and not self.weekdays and not self.days
        rule = rrule(
            self.frequency,
            dtstart=self._anchor(first, low),
            interval=self.interval,
            wkst=self.week_start,
            until=min(high, _LATEST),
            byweekday=[weekday(day, which or None) for day, which in self.weekdays] or None,
            bymonthday=[first.day] if plain_month else list(self.days) or None,
            byhour=list(self.hours) or None,
            byminute=list(self.minutes) or None,
        )
        return (local for local in rule if local >= first and local >= low)

    def _anchor(self, first: datetime, low: datetime) -> datetime:
        """Return the first start plus a whole number of intervals, at most `low`, so that past occurrences are not
        computed."""
        if low <= first:
            return first
        if self.frequency != MONTHLY:
            step = _STEPS[self.frequency] * self.interval
            return first + (low - first) // step * step
        months = (low.year - first.year) * 12 + low.month - first.month
        months = first.year * 12 + first.month - 1 + months // self.interval * self.interval
        return first.replace(year=months // 12, month=months % 12 + 1, day=1)

    def _turns_later(self, moment: int, turns: int) -> int:
        step = _STEPS.get(self.frequency, timedelta(days=31))
        return moment + turns * self.interval * int(step.total_seconds())


def parse_recurrence(rule: str, zone: str, skip: Sequence[str], start: int, duration: int) -> Recurrence:
    """Parse the fields `rule`, `timeZone` and `skip` of a recurrence. Raise ValueError that names the invalid
    field."""
    zone = zone or "UTC"
    try:
        clock = find_zone(zone)
    except ValueError as error:
        raise ValueError(f"timeZone: {error}") from None
    if not 0 <= start < _LATEST_SECOND:
        raise ValueError("start: expected a time in the years 1970 to 8999")
    try:
        return _parse_rule(rule, zone, clock, _parse_skip(skip), start, duration)
    except _RuleError as error:
        raise ValueError(f"rule: {error}") from None


def first_monday(zone: str) -> int:
    """Return the time at which the epoch's first Monday starts in the zone, for rules without a start. Raise
    ValueError."""
    return _seconds(_FIRST_MONDAY, find_zone(zone))


def find_zone(name: str) -> tzinfo:
    """Return the time zone with this IANA name. Raise ValueError for an unknown name."""
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{quoted(name)} is not an IANA time zone such as Europe/Berlin or UTC") from None


def merged(spans: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """Return time spans in order, with adjacent and overlapping spans merged."""
    spans_so_far: list[Occurrence] = []
    for span in sorted(spans):
        if spans_so_far and span.start <= spans_so_far[-1].end:
            spans_so_far[-1] = Occurrence(spans_so_far[-1].start, max(spans_so_far[-1].end, span.end))
        else:
            spans_so_far.append(span)
    return tuple(spans_so_far)


class _RuleError(ValueError):
    """Error for an invalid recurrence rule; the text is for the rule's author."""


def _parse_skip(skip: Sequence[str]) -> frozenset[date]:
    if len(skip) > _MOST_SKIPPED:
        raise ValueError(f"skip: has {len(skip)} dates; at most {_MOST_SKIPPED} are allowed")
    dates = set()
    for text in skip:
        try:
            if len(text) != len("2026-12-24"):
                raise ValueError
            dates.add(date.fromisoformat(text))
        except ValueError:
            raise ValueError(f"skip: {quoted(text)} is not a date such as 2026-12-24") from None
    return frozenset(dates)


def _parse_rule(
    rule: str, zone: str, clock: tzinfo, skip: frozenset[date], start: int, duration: int
) -> Recurrence:
    parts = _parts(rule)
    name = parts.pop("FREQ", "")
    if name not in _FREQUENCIES:
        raise _RuleError(f"unknown FREQ={name}; expected one of {', '.join(_FREQUENCIES)}")
    recurrence = Recurrence(
        start=start,
        duration=duration,
        zone=zone,
        frequency=_FREQUENCIES[name],
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MOST_INTERVAL),
        weekdays=_weekdays(parts.get("BYDAY"), name),
        hours=_numbers("BYHOUR", parts.get("BYHOUR"), 0, 23),
        minutes=_numbers("BYMINUTE", parts.get("BYMINUTE"), 0, 59),
        days=_month_days(parts.get("BYMONTHDAY"), name),
        week_start=_day("WKST", parts.get("WKST", str(MO))),
        skip=skip,
    )
    hours = len(recurrence.hours) or (24 if name == "HOURLY" else 1)
    if hours * (len(recurrence.minutes) or 1) > _MOST_PER_DAY:
        raise _RuleError(
            f"matches more than {_MOST_PER_DAY} times a day; name fewer hours (BYHOUR) or minutes (BYMINUTE)"
        )
    if "COUNT" in parts and "UNTIL" in parts:
        raise _RuleError("has both COUNT and UNTIL; remove one of them")
    count = _number("COUNT", parts["COUNT"], 1, _MOST_COUNT) if "COUNT" in parts else 0
    last = _last_counted(recurrence, count or 1, clock)
    if "UNTIL" in parts:
        return msgspec.structs.replace(recurrence, until=_parse_until(parts["UNTIL"], clock))
    return msgspec.structs.replace(recurrence, until=last) if count else recurrence


def _last_counted(rule: Recurrence, count: int, clock: tzinfo) -> int:
    """Return the start of the last occurrence of a rule with COUNT."""
    first = _wall_clock(rule.start, clock)
    high = _wall_clock(min(rule._turns_later(rule.start, _TURNS), _LATEST_SECOND), clock)
    try:
        starts = list(islice(rule._local_starts(first, high), count))
    except ValueError:  # dateutil: an hour that this interval never matches
        starts = []
    if not starts:
        raise _RuleError("matches no date")
    if len(starts) < count:
        years = -(-(high - first) // timedelta(days=365))
        raise _RuleError(f"COUNT={count} is not reached in {years} years; remove COUNT, or use UNTIL")
    return rule._moment(starts[-1], clock)


def _parts(rule: str) -> dict[str, str]:
    if len(rule) > _MOST_CHARACTERS:
        raise _RuleError(f"has {len(rule)} characters; at most {_MOST_CHARACTERS} are allowed")
    parts: dict[str, str] = {}
    for part in rule.strip().upper().split(";"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise _RuleError(f"{quoted(part)} is not KEY=VALUE, as in FREQ=WEEKLY;BYDAY=SU;BYHOUR=2")
        if key not in _READ.split(", "):
            raise _RuleError(f"unknown key {quoted(key)}; expected one of {_READ}")
        if key in parts:
            raise _RuleError(f"{key} occurs twice")
        parts[key] = value
    return parts


def _number(key: str, text: str, minimum: int, maximum: int) -> int:
    digits = text.removeprefix("-") if minimum < 0 else text
    value = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else minimum - 1
    if not minimum <= value <= maximum:
        raise _RuleError(f"{key}={quoted(text)} is not a whole number from {minimum} to {maximum}")
    return value


def _numbers(key: str, text: str | None, minimum: int, maximum: int) -> tuple[int, ...]:
    return tuple(sorted({_number(key, item, minimum, maximum) for item in text.split(",")})) if text else ()


def _month_days(text: str | None, frequency: str) -> tuple[int, ...]:
    if text and frequency == "WEEKLY":
        raise _RuleError("BYMONTHDAY is invalid with FREQ=WEEKLY; use FREQ=DAILY or FREQ=MONTHLY")
    days = _numbers("BYMONTHDAY", text, -31, 31)
    if 0 in days:
        raise _RuleError("BYMONTHDAY=0 is not a day of a month; the first day is 1, the last day is -1")
    return days


def _weekdays(text: str | None, frequency: str) -> tuple[tuple[int, int], ...]:
    weekdays = set()
    for item in text.split(",") if text else ():
        which = _number("BYDAY", item[:-2].removeprefix("+"), -5, 5) if len(item) > 2 else 0
        if len(item) > 2 and (which == 0 or frequency != "MONTHLY"):
            raise _RuleError(
                f"BYDAY={quoted(item)}: a number (1 to 5, or -1 to -5) before the day requires FREQ=MONTHLY"
            )
        weekdays.add((_day("BYDAY", item[-2:]), which))
    return tuple(sorted(weekdays))


def _day(key: str, text: str) -> int:
    if text not in _DAYS:
        raise _RuleError(f"{key}={quoted(text)} is not one of {', '.join(_DAYS)}")
    return _DAYS.index(text)


def _parse_until(text: str, clock: tzinfo) -> int:
    """Return the last moment that an UNTIL value includes: a date is the whole day in the rule's zone; a time is
    local, or UTC with Z."""
    for form in ("%Y%m%d", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ"):
        try:
            local = datetime.strptime(text, form)
        except ValueError:
            continue
        if local >= _LATEST:
            break
        if form == "%Y%m%d":
            local += timedelta(days=1, seconds=-1)
        return _seconds(local, UTC if text.endswith("Z") else clock)
    raise _RuleError(f"UNTIL={quoted(text)} is neither a time such as 20261231T235959Z nor a date such as 20261231")


def _wall_clock(moment: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(min(moment, _LATEST_SECOND), zone).replace(tzinfo=None)


def _seconds(local: datetime, zone: tzinfo) -> int:
    """Return the first moment with this local time; a skipped local time is later by the skipped time (PEP 495,
    fold 0).
    """
    return int(local.replace(tzinfo=zone, fold=0).timestamp())
