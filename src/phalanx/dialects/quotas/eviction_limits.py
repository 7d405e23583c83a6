"""Limits on evictions from a queue or quota, from annotations of its object."""

from __future__ import annotations

import re

from phalanx.dialects.times import parse_duration
from phalanx.model.account import EvictionRate, SelfProtection

MIN_RUN_TIME = "phalanx.dev/min-run-time"
EVICTION_RATE = "phalanx.dev/eviction-rate"
SELF_PROTECTION = "phalanx.dev/self-protection"
MAX_PROTECTION_TIME = "phalanx.dev/max-protection-time"

_RATE = re.compile(r"([0-9]{1,9})/(.+)")


def parse_min_run_time(text: str) -> int:
    """Parse a queue's minimum run time before eviction, in seconds of at least 0. Raise ValueError with advice."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        seconds = -1
    if seconds < 0:
        raise ValueError("write a duration such as 10m or 1h30m; the value is ignored")
    return seconds


def parse_self_protection(text: str) -> SelfProtection:
    """Parse the protection level of a queue's own pods. Raise ValueError with advice.

    An invalid value has no effect: the account's parent, or the policy, decides.
    """
    try:
        return SelfProtection(text.strip())
    except ValueError:
        raise ValueError("write none, guaranteed or all; the value is ignored") from None


def parse_max_protection_time(text: str) -> int:
    """Parse the maximum time for which a queue protects its pods, in seconds of at least 1. Raise ValueError with
    advice."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise ValueError(f"write a duration such as 2h (or {SELF_PROTECTION}: none); the value is ignored")
    return seconds


def parse_eviction_rate(text: str) -> EvictionRate:
    """Parse a rate such as `10/1m`: at most 10 pods within any minute. Raise ValueError with advice.

    A rate of 0 pods is rejected: a queue's `reclaimable: false` or a pod's `volcano.sh/preemptable` forbids
    eviction for gangs of any size.
    """
    match = _RATE.fullmatch(text.strip())
    pods, window = int(match[1]) if match else 0, 0
    if match:
        try:
            window = parse_duration(match[2].strip())
        except ValueError:
            window = 0
    if pods < 1 or window < 1:
        raise ValueError("write pods per duration, such as 10/1m; the value is ignored")
    return EvictionRate(pods, window)
