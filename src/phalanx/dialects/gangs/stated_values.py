"""Parsers for text values of pods and PodGroups: numbers, durations, requests. Each raises ValueError with
advice."""

from __future__ import annotations

import re

import msgspec

from phalanx.dialects.gangs.extras import EXPECT_NOBODY, FROM_MIN_RESOURCES
from phalanx.dialects.gangs.group_spec import MAX_MEMBERS
from phalanx.dialects.pods.requests import resource_list
from phalanx.model.gang import MOST_EXPECTED
from phalanx.model.resources import Requests
from phalanx.model.text.decoding import decode_json, quoted
from phalanx.model.text.duration import parse_duration

# Longest time, in seconds, for which a leader holds room for members that do not arrive.
_LONGEST_HOLD = 3600
_LONGEST_DELAY = 24 * 3600
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def to_minimum(text: str) -> int | None:
    """Parse the minimum that a pod states for its gang; None for an invalid one (rule 4)."""
    if not _WHOLE.fullmatch(text):
        return None
    minimum = int(text)
    return minimum if 1 <= minimum <= MAX_MEMBERS else None


def is_legal_minimum(text: str) -> bool:
    return to_minimum(text) is not None


def parse_waiting_time(text: str) -> int | None:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("write a duration above 0, such as 10m")
    return seconds


def parse_expected(text: str) -> int:
    """Parse the number of expected members; 0 means that the gang's minResources determine it."""
    if text == FROM_MIN_RESOURCES:
        return 0
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= MOST_EXPECTED:
        words = f"{quoted(FROM_MIN_RESOURCES)} or {quoted(EXPECT_NOBODY)}"
        raise ValueError(f'write a whole number from 1 to {MOST_EXPECTED}, such as "4", {words}')
    return int(text)


def parse_requests(text: str) -> Requests:
    advice = 'write a map such as {"cpu": "1", "memory": "2Gi"}'
    try:
        amounts = decode_json(text, dict[str, str | int])
    except msgspec.DecodeError:
        raise ValueError(advice) from None
    requests, faults = resource_list(amounts, "")
    if faults or not requests:
        raise ValueError(advice)
    return requests


def parse_expected_timeout(text: str) -> int:
    seconds = parse_duration(text)
    if not 0 < seconds <= _LONGEST_HOLD:
        raise ValueError(f"write a duration above 0 of at most {_LONGEST_HOLD // 60}m, such as 5m")
    return seconds


def parse_scale_up_delay(text: str) -> int:
    seconds = parse_duration(text)
    if not 0 <= seconds <= _LONGEST_DELAY:
        raise ValueError(f"write a duration of at most {_LONGEST_DELAY // 3600}h, such as 3m")
    return seconds


def parse_total(text: str) -> int:
    if not _WHOLE.fullmatch(text) or not 0 <= int(text) <= MAX_MEMBERS:
        raise ValueError("write a whole number, such as 5")
    return int(text)


def parse_truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"
