"""Kubernetes' own groups that we evict as a whole say so: the condition DisruptionTarget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.gangs.status_input import conditions_in, find_condition, fresh_conditions
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER


def disruption_condition(
    status: Mapping[str, Any], message: str | None, *, whole: bool, now: int, generation: int = 0
) -> dict[str, Any] | None:
    """The condition as it should be; None where it is so already, or there is nothing to say.

    `status` is the object's, `message` why it is evicted as a whole (None where it is not), `whole` whether it has
    its quorum. A group that has it again is no target any more; only what we have said ourselves is taken back.
    """
    conditions = conditions_in(status)
    last = find_condition(conditions, DISRUPTION_TARGET) or {}
    stands = last.get("status") == "True" and last.get("reason") == PREEMPTION_BY_SCHEDULER
    if message is not None and not whole:
        told = ("True", PREEMPTION_BY_SCHEDULER, message)
    elif stands and whole:
        told = ("False", "Scheduled", "the group has been placed again")
    else:
        return None
    if (last.get("status"), last.get("reason"), last.get("message")) == told:
        return None
    (fresh,) = fresh_conditions(conditions, [(DISRUPTION_TARGET, told)], generation, now)
    return fresh
