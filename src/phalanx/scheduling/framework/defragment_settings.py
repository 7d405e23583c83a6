"""Settings of the action `defragment`: the time of its runs, and limits on the pods that it moves."""

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
    """Within each occurrence of `windows`, a run every `interval` seconds searches for a waiting unit that could
    start if running pods were moved.

    A run moves at most `per_run` pods and at most `per_gang` of one gang (None: no limit). All runs of an hour move
    at most `per_hour` pods. Gangs without surplus move only with `whole_gangs`, as a whole. Pods are not moved if
    - their priority is `threshold_priority` or higher;
    - they have run for less than `min_run` seconds (recently moved pods);
    - they end within `min_remaining` seconds;
    - they would lose more than `max_lost` seconds of work (-1: no limit).

    For a unit with a start reservation, no pod is moved if the lost work exceeds `most_lost_percent` of the time
    that the unit gains (-1: no limit).
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
    """Return the settings of the action `defragment`, or None if the policy does not name it; append mistakes to
    `errors`."""
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
        raise PolicyError(
            f"{stated.owner}: argument schedule is missing; set a recurrence such as FREQ=DAILY;BYHOUR=2"
        )
    if "COUNT" in rule.upper():
        raise PolicyError(f"{stated.owner}: argument schedule: COUNT is not supported; use UNTIL")
    if not duration or duration > _WEEK:
        raise PolicyError(
            f"{stated.owner}: argument duration: expected the length of a window, such as 2h, at most 7 days"
        )
    zone = stated.text("timeZone", "UTC")
    try:
        first = first_monday(zone)  # fields that the rule omits are midnight
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
        raise PolicyError(f"{stated.owner}: argument interval: expected at least 1m")
    return interval
