"""Condition DisruptionTarget of native PodGroups (scheduling.k8s.io) that are evicted as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.gangs.status_input import conditions_in, find_condition, fresh_conditions
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER


def disruption_condition(
    status: Mapping[str, Any], message: str | None, *, whole: bool, now: int, generation: int = 0
) -> dict[str, Any] | None:
    """Return the condition DisruptionTarget to write to a PodGroup; None if it is up to date or not needed.

    `status` is the current status, `message` the reason of the eviction (None without one), and `whole` is True if
    the group has its quorum. The condition becomes False once the quorum is placed again, if we set it.
    """
    conditions = conditions_in(status)
    last = find_condition(conditions, DISRUPTION_TARGET) or {}
    set_by_us = last.get("status") == "True" and last.get("reason") == PREEMPTION_BY_SCHEDULER
    if message is not None and not whole:
        wanted = ("True", PREEMPTION_BY_SCHEDULER, message)
    elif set_by_us and whole:
        wanted = ("False", "Scheduled", "the group was placed again")
    else:
        return None
    if (last.get("status"), last.get("reason"), last.get("message")) == wanted:
        return None
    (fresh,) = fresh_conditions(conditions, [(DISRUPTION_TARGET, wanted)], generation, now)
    return fresh
