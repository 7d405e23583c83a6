"""What the action `defragment` is told by the policy: when it runs, and whom and how many pods it may move."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.recurrence import Recurrence, first_monday, parse_recurrence
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.vocabulary import DEFRAGMENT

_CRITICAL = 2_000_000_000
_MINUTE, _HOUR, _WEEK = 60, 3600, 7 * 24 * 3600


class DefragmentSettings(msgspec.Struct, frozen=True):
    """Within each occurrence of `windows` it looks every `interval` seconds for one who waits and would start if
    others moved.

    A run moves at most `per_run` pods, of one gang at most `per_gang` (None: no limit), and any hour at most
    `per_hour`. Gangs that can spare nobody move only with `whole_gangs`, as a whole. Left where they are: pods of
    `threshold_priority` and above; that have run for less than `min_run` seconds (whoever was moved a moment ago);
    that end within `min_remaining` seconds at the latest; that would do more than `max_lost` seconds of work again
    (-1: no limit). Nobody is moved for who has a start kept for it where more than `most_lost_percent` of the time
    that it gains is lost as work of those who move (-1: no limit).
    """

    windows: Recurrence
    interval: int = 5 * _MINUTE
    per_run: int = 10
    per_hour: int = 20
    per_gang: int | None = None
    whole_gangs: bool = False
    min_run: int = 30 * _MINUTE
    min_remaining: int = _HOUR
    max_lost: int = -1
    most_lost_percent: int = -1
    threshold_priority: int = _CRITICAL


def defragment_settings(
    actions: tuple[str, ...], arguments: Mapping[str, Mapping[str, object]], errors: list[str]
) -> DefragmentSettings | None:
    """None where the policy does not name the action `defragment`; mistakes are added to `errors`."""
    if DEFRAGMENT not in actions:
        return None
    stated = Arguments(f"action {DEFRAGMENT}", arguments.get(DEFRAGMENT, {}))
    try:
        per_gang = stated.integer("maxEvictionsPerGang", -1, -1)
        return DefragmentSettings(
            _windows(stated),
            _interval(stated),
            stated.integer("maxEvictionsPerRun", 10, 0),
            stated.integer("maxEvictionsPerHour", 20, 0),
            per_gang if per_gang >= 0 else None,
            stated.boolean("wholeGangs", False),
            stated.integer("minRunSeconds", 30 * _MINUTE, 0),
            stated.integer("minRemainingSeconds", _HOUR, 0),
            stated.integer("maxLostSeconds", -1, -1),
            stated.integer("maxLostWorkPercent", -1, -1),
            stated.integer("thresholdPriority", _CRITICAL),
        )
    except PolicyError as error:
        errors.append(str(error))
        return None


def _windows(stated: Arguments) -> Recurrence:
    rule, duration = stated.text("schedule"), stated.duration("duration")
    if not rule:
        raise PolicyError(f"{stated.owner}: argument schedule is missing: when it may run, as FREQ=DAILY;BYHOUR=2")
    if "COUNT" in rule.upper():
        raise PolicyError(f"{stated.owner}: argument schedule: COUNT has nothing to count from; use UNTIL")
    if not duration or duration > _WEEK:
        raise PolicyError(f"{stated.owner}: argument duration: how long each window lasts, as 2h, at most a week")
    zone = stated.text("timeZone", "UTC")
    try:
        first = first_monday(zone)  # what the rule leaves out is midnight
    except ValueError as error:
        raise PolicyError(f"{stated.owner}: argument timeZone: {error}") from None
    try:
        return parse_recurrence(rule, zone, (), first, duration)
    except ValueError as error:
        raise PolicyError(f"{stated.owner}: argument schedule: {str(error).removeprefix('rule: ')}") from None


def _interval(stated: Arguments) -> int:
    interval = stated.duration("interval")
    if interval is None:
        return 5 * _MINUTE
    if interval < _MINUTE:
        raise PolicyError(f"{stated.owner}: argument interval: at least 1m")
    return interval
