"""Times and ages on the command line, in the notations of sacct and kubectl. All times are UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from phalanx.model.text.decoding import quoted
from phalanx.model.text.moments import shown_moment

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,6})\s*([a-z]+)")
_CLOCK = re.compile(r"[0-2]?[0-9]:[0-5][0-9](:[0-5][0-9])?")
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse the time in an option's value to seconds since the epoch. Raises click.BadParameter."""
    if value is None:
        return None
    try:
        return parse_moment(value, datetime.now(UTC))
    except (ValueError, OverflowError) as error:
        forms = "2026-11-23, 2026-11-23T10:30, 10:30, today or now-7days"
        raise click.BadParameter(f"invalid time {quoted(value)}; write a time such as {forms}") from error


def age(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse the age in an option's value to seconds. Raises click.BadParameter."""
    if value is None:
        return None
    try:
        return parse_age(value)
    except ValueError as error:
        raise click.BadParameter(f"invalid age {quoted(value)}; write an age such as 12h, 90d or 2w") from error


def parse_moment(text: str, now: datetime) -> int:
    """Parse a time to seconds since the epoch. Raises ValueError.

    `text` is `now`, `now-3days`, `today`, `yesterday`, `10:30` (today), `2026-11-23` or `2026-11-23T10:30`, with or
    without a zone.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    text = text.strip()
    if text in ("now", "today", "midnight", "yesterday"):
        start = {"now": now, "yesterday": today - timedelta(days=1)}.get(text, today)
        return int(start.timestamp())
    if text.startswith(("now-", "now+")):
        seconds = parse_age(text[4:])
        return int(now.timestamp()) + (seconds if text[3] == "+" else -seconds)
    if _CLOCK.fullmatch(text):
        return int(datetime.fromisoformat(f"{today:%Y-%m-%d}T{text:0>5}").replace(tzinfo=UTC).timestamp())
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def parse_age(text: str) -> int:
    """Parse an age, which is a number with a unit (`7d`, `7days`; only the first letter counts), to seconds.

    Raises ValueError.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None or match[2][0] not in _UNITS or match[2].startswith("mo"):
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2][0]]


def month_of(text: str) -> tuple[int, int]:
    """Return the first second of a month (`2026-11`) and of the next month. Raises ValueError."""
    match = _MONTH.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month = int(match[1]), int(match[2])
    begin = datetime(year, month, 1, tzinfo=UTC)
    end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return int(begin.timestamp()), int(end.timestamp())


def span(seconds: int) -> str:
    """Format a number of seconds like sacct's Elapsed, without leading zeros: `45s`, `12:30`, `1:02:03`,
    `2-03:04:05`."""
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds_left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}:{seconds_left:02}"
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{seconds_left:02}"
    return f"{days}-{clock}" if days else clock.removeprefix("0")


def moment_text(seconds: int | None) -> str:
    """Format seconds since the epoch as RFC 3339; "" if unknown."""
    return shown_moment(seconds)
