"""What comes again: a part of RFC 5545's recurrence rules, in a time zone, as spans of seconds since the epoch."""

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
# For so many turns of its frequency a rule is searched: a day that does not come in them does not come.
_TURNS = 10_000
# Clocks that are put forward or back move a start by no more than a day; one more for the zone itself.
_MARGIN = timedelta(days=2)
_LATEST = datetime(9000, 1, 1)
_FIRST_MONDAY = datetime(1970, 1, 5)
_LATEST_SECOND = 221_845_392_000


class Occurrence(msgspec.Struct, frozen=True, order=True):
    """From `start` on, and before `end`, in seconds since the epoch."""

    start: int
    end: int


class Recurrence(msgspec.Struct, frozen=True):
    """Every occurrence lasts `duration` seconds; where it starts is said in the wall clock of the zone.

    - A wall clock's time that the zone skips comes later by what is skipped (02:30 as 03:30, where 02:00 is skipped
      to 03:00); one that it shows twice comes the first time only; two that fall on one moment are one.
    - Nothing comes before `start`, which is an occurrence itself only if the rule matches it.
    - `until` is the last moment at which one may start, None without one: COUNT is turned into it, once.
    - What starts at a date of `skip` (the wall clock's) is left out, but counts for COUNT, as in RFC 5545; two that
      fall on one moment count as two.

    `frequency` is dateutil's number; `weekdays` are (day, which of the month or 0), Monday 0. What the rule leaves
    out (hour, minute, day) is `start`'s.
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
        """Those of which some part is in [begin, end), in order of their starts."""
        starts = self._starts(max(begin - self.duration + 1, self.start), min(end, _LATEST_SECOND))
        return tuple(Occurrence(at, at + self.duration) for at in starts)

    def next_start(self, moment: int) -> int | None:
        """The first start that is not before `moment`; None if none comes any more."""
        at = max(moment, self.start)
        for turns in (8, _TURNS):  # most rules come within a few turns
            found = self._starts(at, min(self._turns_later(at, turns), _LATEST_SECOND))
            if found:
                return found[0]
        return None

    def _starts(self, begin: int, end: int) -> list[int]:
        """Where an occurrence starts in [begin, end)."""
        if self.until is not None:
            end = min(end, self.until + 1)
        if begin >= end:
            return []
        zone = find_zone(self.zone)
        low, high = _wall_clock(begin, zone) - _MARGIN, _wall_clock(end, zone) + _MARGIN
        found = {
            self._moment(local, zone) for local in self._local_starts(low, high) if local.date() not in self.skip
        }
        return sorted(at for at in found if begin <= at < end)

    def _moment(self, local: datetime, zone: tzinfo) -> int:
        # The very first may be the second of two moments at which the clock shows the same.
        return self.start if local == _wall_clock(self.start, zone) else _seconds(local, zone)

    def _local_starts(self, low: datetime, high: datetime) -> Iterator[datetime]:
        """What the wall clock shows where one starts, between the two, those left out included."""
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
        """A whole number of intervals after the first start, not after `low`: so the past is not walked over."""
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
    """Reads the fields `rule`, `timeZone` and `skip` of a recurrence. Raises ValueError that names the field."""
    zone = zone or "UTC"
    try:
        clock = find_zone(zone)
    except ValueError as error:
        raise ValueError(f"timeZone: {error}") from None
    if not 0 <= start < _LATEST_SECOND:
        raise ValueError("start: only years from 1970 to 8999 come again")
    try:
        return _parse_rule(rule, zone, clock, _parse_skip(skip), start, duration)
    except _RuleError as error:
        raise ValueError(f"rule: {error}") from None


def first_monday(zone: str) -> int:
    """When the epoch's first Monday begins by the zone's clock, for rules without a start. Raises ValueError."""
    return _seconds(_FIRST_MONDAY, find_zone(zone))


def find_zone(name: str) -> tzinfo:
    """The time zone of this IANA name. Raises ValueError."""
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{quoted(name)} is no time zone of the IANA's, such as Europe/Berlin or UTC") from None


def merged(spans: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """The same moments as spans that neither touch nor overlap, in order."""
    found: list[Occurrence] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Occurrence(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


class _RuleError(ValueError):
    """A rule that cannot be read, in words for its user."""


def _parse_skip(skip: Sequence[str]) -> frozenset[date]:
    if len(skip) > _MOST_SKIPPED:
        raise ValueError(f"skip: has {len(skip)} dates, more than {_MOST_SKIPPED}")
    found = set()
    for text in skip:
        try:
            if len(text) != len("2026-12-24"):
                raise ValueError
            found.add(date.fromisoformat(text))
        except ValueError:
            raise ValueError(f"skip: {quoted(text)} is no date such as 2026-12-24") from None
    return frozenset(found)


def _parse_rule(
    rule: str, zone: str, clock: tzinfo, skip: frozenset[date], start: int, duration: int
) -> Recurrence:
    parts = _parts(rule)
    name = parts.pop("FREQ", "")
    if name not in _FREQUENCIES:
        raise _RuleError(f"FREQ={name} is not read; it is one of {', '.join(_FREQUENCIES)}")
    found = Recurrence(
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
    hours = len(found.hours) or (24 if name == "HOURLY" else 1)
    if hours * (len(found.minutes) or 1) > _MOST_PER_DAY:
        raise _RuleError(
            f"comes more than {_MOST_PER_DAY} times a day; name fewer hours (BYHOUR) or minutes (BYMINUTE)"
        )
    if "COUNT" in parts and "UNTIL" in parts:
        raise _RuleError("has both COUNT and UNTIL; keep one of them")
    count = _number("COUNT", parts["COUNT"], 1, _MOST_COUNT) if "COUNT" in parts else 0
    last = _last_counted(found, count or 1, clock)
    if "UNTIL" in parts:
        return msgspec.structs.replace(found, until=_parse_until(parts["UNTIL"], clock))
    return msgspec.structs.replace(found, until=last) if count else found


def _last_counted(rule: Recurrence, count: int, clock: tzinfo) -> int:
    """When the last of so many starts."""
    first = _wall_clock(rule.start, clock)
    high = _wall_clock(min(rule._turns_later(rule.start, _TURNS), _LATEST_SECOND), clock)
    try:
        found = list(islice(rule._local_starts(first, high), count))
    except ValueError:  # dateutil: an hour that this interval never meets
        found = []
    if not found:
        raise _RuleError("matches no moment")
    if len(found) < count:
        years = -(-(high - first) // timedelta(days=365))
        raise _RuleError(f"COUNT={count} is not reached in {years} years; leave COUNT out, or use UNTIL")
    return rule._moment(found[-1], clock)


def _parts(rule: str) -> dict[str, str]:
    if len(rule) > _MOST_CHARACTERS:
        raise _RuleError(f"has {len(rule)} characters, more than {_MOST_CHARACTERS}")
    found: dict[str, str] = {}
    for part in rule.strip().upper().split(";"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise _RuleError(f"{quoted(part)} is not KEY=VALUE, as in FREQ=WEEKLY;BYDAY=SU;BYHOUR=2")
        if key not in _READ.split(", "):
            raise _RuleError(f"{quoted(key)} is not read, only {_READ}")
        if key in found:
            raise _RuleError(f"{key} is there twice")
        found[key] = value
    return found


def _number(key: str, text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-") if least < 0 else text
    value = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else least - 1
    if not least <= value <= most:
        raise _RuleError(f"{key}={quoted(text)} is not a whole number from {least} to {most}")
    return value


def _numbers(key: str, text: str | None, least: int, most: int) -> tuple[int, ...]:
    return tuple(sorted({_number(key, item, least, most) for item in text.split(",")})) if text else ()


def _month_days(text: str | None, frequency: str) -> tuple[int, ...]:
    if text and frequency == "WEEKLY":
        raise _RuleError("BYMONTHDAY does not go with FREQ=WEEKLY; use FREQ=DAILY or FREQ=MONTHLY")
    days = _numbers("BYMONTHDAY", text, -31, 31)
    if 0 in days:
        raise _RuleError("BYMONTHDAY=0 is no day; the first is 1, the last -1")
    return days


def _weekdays(text: str | None, frequency: str) -> tuple[tuple[int, int], ...]:
    found = set()
    for item in text.split(",") if text else ():
        which = _number("BYDAY", item[:-2].removeprefix("+"), -5, 5) if len(item) > 2 else 0
        if len(item) > 2 and (which == 0 or frequency != "MONTHLY"):
            raise _RuleError(f"BYDAY={quoted(item)}: only FREQ=MONTHLY takes 1 to 5, or -1 to -5, before a day")
        found.add((_day("BYDAY", item[-2:]), which))
    return tuple(sorted(found))


def _day(key: str, text: str) -> int:
    if text not in _DAYS:
        raise _RuleError(f"{key}={quoted(text)} is no day of {', '.join(_DAYS)}")
    return _DAYS.index(text)


def _parse_until(text: str, clock: tzinfo) -> int:
    """A date is the whole of it, in the rule's zone; a time is the zone's, or with Z that of UTC."""
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
    raise _RuleError(f"UNTIL={quoted(text)} is no time such as 20261231T235959Z, and no date such as 20261231")


def _wall_clock(moment: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(min(moment, _LATEST_SECOND), zone).replace(tzinfo=None)


def _seconds(local: datetime, zone: tzinfo) -> int:
    """The first moment at which the zone's clock shows this; what it skips, later by as much (PEP 495, fold 0)."""
    return int(local.replace(tzinfo=zone, fold=0).timestamp())
