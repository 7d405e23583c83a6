"""Cron expressions as Volcano's and Kubernetes' controllers parse them: five fields, or a macro such as @daily."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from phalanx.model.text.decoding import parse_whole
from phalanx.model.text.duration import parse_nanoseconds

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Minute, hour, day of the month, month, day of the week: minimum, maximum and names of values.
_FIELDS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_MOST_CHARACTERS = 1024
# A schedule that matches no time in this number of years never matches.
_YEARS = 5
_MINUTE = 60
_ZONE_PREFIXES = ("TZ=", "CRON_TZ=")


class CronSchedule(msgspec.Struct, frozen=True):
    """Cron schedule; times are whole seconds since the epoch.

    Each field contains its matching values. A day matches if both of its fields match, or, if neither is `*`, if
    one of them matches. With `every` the fields are ignored: the schedule repeats after this number of seconds.
    """

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    both_days: bool = True
    every: int = 0

    def next_after(self, moment: int, zone: tzinfo = UTC) -> int | None:
        """Return the first scheduled time after `moment`; None if there is none in the next years.

        Local times that the zone skips never match; local times that occur twice match twice.
        """
        if self.every:
            return moment + self.every
        try:
            return self._next(moment, zone)
        except (OverflowError, ValueError, OSError):
            return None  # beyond the supported years

    def last_between(self, after: int, until: int, zone: tzinfo = UTC) -> int | None:
        """Return the last scheduled time after `after` and not after `until`; None if there is none."""
        if self.every:
            turns = (until - after) // self.every
            return after + turns * self.every if turns > 0 else None
        last = self.next_after(after, zone)
        if last is None or last > until:
            return None
        # Binary search: a later match exists before the last match, and none after it.
        low, high = last, until + 1
        while high - low > 1:
            middle = (low + high) // 2
            following = self.next_after(middle, zone)
            if following is not None and following <= until:
                low = last = following
            else:
                high = middle
        return last

    def _next(self, moment: int, zone: tzinfo) -> int | None:
        local = datetime.fromtimestamp(moment, zone)
        at = moment + _MINUTE - local.second
        final = local.year + _YEARS
        while True:
            local = datetime.fromtimestamp(at, zone)
            if local.year > final:
                return None
            if local.month not in self.months:
                first = local.replace(day=1, hour=0, minute=0, fold=0)
                at = max(at + _MINUTE, _stamp((first + timedelta(days=32)).replace(day=1)))
            elif not self._day_matches(local):
                midnight = local.replace(hour=0, minute=0, fold=0)
                at = max(at + _MINUTE, _stamp(midnight + timedelta(days=1)))
            elif local.hour not in self.hours:
                at += (60 - local.minute) * _MINUTE
            elif local.minute not in self.minutes:
                at += _MINUTE
            else:
                return at

    def _day_matches(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return (day and weekday) if self.both_days else (day or weekday)


def _stamp(local: datetime) -> int:
    """Return the Unix time of the first moment with this local time; a skipped local time is shifted."""
    return int(local.replace(fold=0).timestamp())


def parse_cron(text: str) -> CronSchedule | None:
    """Parse a cron expression like robfig/cron's standard parser, without a time zone; return None for an invalid
    text."""
    text = text.strip()
    if len(text) > _MOST_CHARACTERS:
        return None
    if text.startswith(_EVERY):
        try:
            nanoseconds = parse_nanoseconds(text.removeprefix(_EVERY))
        except ValueError:
            return None
        return CronSchedule(every=max(1, nanoseconds // 10**9)) if nanoseconds > 0 else None
    if text.startswith("@"):
        return parse_cron(_WORDS[text]) if text in _WORDS else None
    written = text.split()
    if len(written) != len(_FIELDS):
        return None
    values, stars = [], []
    for field, bounds in zip(written, _FIELDS, strict=True):
        found = _field(field, *bounds)
        if found is None:
            return None
        values.append(found[0])
        stars.append(found[1])
    minutes, hours, days, months, weekdays = values
    return CronSchedule(minutes, hours, days, months, weekdays, both_days=stars[2] or stars[4])


def is_cron_schedule(text: str) -> bool:
    """Return whether the text is a valid schedule of a CronJob."""
    return parse_cron(text) is not None


def split_zone(text: str) -> tuple[str | None, str]:
    """Split the time zone from a cron expression (`TZ=Europe/Paris 0 6 * * *`); the zone is None if absent."""
    text = text.strip()
    for prefix in _ZONE_PREFIXES:
        if text.startswith(prefix):
            zone, _, expression = text.removeprefix(prefix).partition(" ")
            return zone, expression.strip()
    return None, text


def find_zone(name: str) -> tzinfo | None:
    """Return the time zone with this IANA name; None if it is unknown."""
    if name in ("", "UTC"):
        return UTC if name else None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _field(field: str, minimum: int, maximum: int, names: tuple[str, ...]) -> tuple[frozenset[int], bool] | None:
    """Return the values of one field of a cron expression, and whether the field was written as all values
    (`*`)."""
    values_of_field: set[int] = set()
    star = False
    items = [item for item in field.split(",") if item]
    for item in items:
        values = _range(item, minimum, maximum, names)
        if values is None:
            return None
        values_of_field.update(values)
        star |= item in ("*", "?", "*/1", "?/1")
    return (frozenset(values_of_field), star) if items else None


def _range(item: str, minimum: int, maximum: int, names: tuple[str, ...]) -> range | None:
    span, slash, text = item.partition("/")
    step = 1
    if slash:
        stated = parse_whole(text, 1) if text.isdecimal() else None
        if stated is None:
            return None
        step = stated
    if span in ("*", "?"):
        return range(minimum, maximum + 1, step)
    first, dash, last = span.partition("-")
    begin = _value(first, names)
    end = _value(last, names) if dash else begin
    if begin is None or end is None or not minimum <= begin <= end <= maximum:
        return None
    # 5/15 means 5-59/15.
    return range(begin, (maximum if slash and not dash else end) + 1, step)


def _value(text: str, names: tuple[str, ...]) -> int | None:
    if text.lower() in names:
        # Months count from one, days of the week from zero.
        return names.index(text.lower()) + (1 if names is _MONTHS else 0)
    return parse_whole(text) if text.isascii() and text.isdecimal() else None
