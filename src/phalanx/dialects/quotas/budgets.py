"""Budgets: limits on a queue's or quota's usage per time window, from an annotation of its object."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.reader import show
from phalanx.dialects.times import parse_duration
from phalanx.model.account import Budget, limits_of
from phalanx.model.resources import parse_amount
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.quantity import QuantityError

BUDGET = "phalanx.dev/budget"
_EXAMPLE = '{"window": "24h", "hours": {"nvidia.com/gpu": "100", "cpu": "1k"}}'


def parse_budget(text: str) -> tuple[Budget | None, list[str]]:
    """Parse a budget from JSON; return it, or None if unusable, and messages about its faults.

    `hours` are resource-hours (core-hours for cpu, byte-hours for memory), `window` is a duration.
    """
    try:
        stated = decode_json(text)
    except msgspec.DecodeError:
        return None, [f"{show(text)} is no JSON; write {_EXAMPLE}; the budget is ignored"]
    if not isinstance(stated, Mapping):
        return None, [f"{show(stated)} is no JSON object; write {_EXAMPLE}; the budget is ignored"]
    faults = [
        f"{name} is no field of a budget (those are window and hours); the field is ignored"
        for name in sorted(stated.keys() - {"window", "hours"})
    ]
    window = _window(stated.get("window"), faults)
    hours = _hours(stated.get("hours"), faults)
    if window is None or not hours:
        return None, faults
    return Budget(limits_of(hours), window), faults


def _window(value: object, faults: list[str]) -> int | None:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else 0
    except ValueError:
        seconds = 0
    if seconds > 0:
        return seconds
    faults.append(f'window is {show(value)}; write a duration above 0, such as "24h"; the budget is ignored')
    return None


def _hours(value: object, faults: list[str]) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        advice = 'write a map such as {"nvidia.com/gpu": "100"}; the budget is ignored'
        faults.append(f"hours is {show(value)}; {advice}")
        return {}
    hours: dict[str, int] = {}
    for resource, amount in value.items():
        try:
            read = parse_amount(str(resource), amount)
        except QuantityError:
            read = -1
        if read < 0:
            faults.append(
                f"hours.{resource} is {show(amount)}; write a quantity such as 100 or 1k; the value is ignored"
            )
        else:
            hours[str(resource)] = read
    return hours
