"""How much eviction an account bears, as annotations on the object that declares it."""

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
    """Seconds of at least 0. Raises ValueError, which says what to write instead."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        seconds = -1
    if seconds < 0:
        raise ValueError("write a duration such as 10m or 1h30m; it is ignored")
    return seconds


def parse_self_protection(text: str) -> SelfProtection:
    """Raises ValueError, which says what to write instead.

    Who cannot be understood is not taken at his word: what is above the account, or the policy, decides.
    """
    try:
        return SelfProtection(text.strip())
    except ValueError:
        raise ValueError("write none, guaranteed or all; it is ignored") from None


def parse_max_protection_time(text: str) -> int:
    """Seconds of at least 1. Raises ValueError, which says what to write instead."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise ValueError(f"write a duration such as 2h (or {SELF_PROTECTION}: none); it is ignored")
    return seconds


def parse_eviction_rate(text: str) -> EvictionRate:
    """`10/1m`: at most 10 pods within any minute. Raises ValueError, which says what to write instead.

    A rate of no pods at all is refused: who wants that has other words for it (a queue's `reclaimable: false`, a
    pod's `volcano.sh/preemptable`), which hold for gangs of any size.
    """
    match = _RATE.fullmatch(text.strip())
    pods, window = int(match[1]) if match else 0, 0
    if match:
        try:
            window = parse_duration(match[2].strip())
        except ValueError:
            window = 0
    if pods < 1 or window < 1:
        raise ValueError("write pods per duration, such as 10/1m; it is ignored")
    return EvictionRate(pods, window)
