"""Status of PodGroups and CompositePodGroups of scheduling.k8s.io, which consists of conditions only."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.families.native_groups import INITIALLY_SCHEDULED, SCHEDULED
from phalanx.dialects.gangs.status_input import (
    ConditionContent,
    Conditions,
    GroupStatusInput,
    current_conditions,
    find_condition,
    fresh_conditions,
    last_verdict,
)

# Our own condition: waiting for quota or for a turn is no lack of nodes, and the API has no condition for it.
ADMITTED = "phalanx.dev/Admitted"


def scheduled_condition(version: str) -> str:
    """Return the type of the condition by which a PodGroup of this API version reports that its gang is placed."""
    return SCHEDULED if version == "v1alpha2" else INITIALLY_SCHEDULED


def status_of(group: GroupStatusInput) -> dict[str, Any] | None:
    """Return the conditions of a native PodGroup's status that need an update; None without any."""
    conditions = conditions_of(group)
    return {"conditions": conditions} if conditions else None


def conditions_of(group: GroupStatusInput) -> Conditions:
    """Return the conditions that differ from the desired ones.

    The gang condition is final once it is True: it reports that the first quorum has been placed.
    """
    conditions = current_conditions(group)
    kind = scheduled_condition(group.ref.version)
    desired = [
        (kind, _scheduled(group, find_condition(conditions, kind))),
        (ADMITTED, _admitted(group, conditions)),
    ]
    exact = last_verdict(group)
    # It is written together with a condition that it makes exact, and never alone.
    if exact is not None and any(wish is not None and wish[0] == "False" for _, wish in desired):
        desired.append(exact)
    return fresh_conditions(conditions, desired, group.generation, group.now)


def _scheduled(group: GroupStatusInput, last: dict[str, Any] | None) -> ConditionContent | None:
    if last is not None and last.get("status") == "True":
        return None
    if group.ever_scheduled or group.scheduled >= group.gang.min_member:
        return "True", "Scheduled", "the members that the policy asks for have been placed"
    problem, verdict = group.gang.problem, group.verdict
    if problem is not None:
        mismatch = problem.code.endswith("Mismatch")
        return "False", "SchedulerError" if mismatch else "Unschedulable", problem.message
    if verdict is None:
        return None
    if verdict.unschedulable:
        return "False", "Unschedulable", verdict.message
    # The last message about nodes is outdated.
    return ("False", verdict.code, verdict.message) if last is not None else None


def _admitted(group: GroupStatusInput, conditions: Conditions) -> ConditionContent | None:
    verdict = group.verdict
    if verdict is not None and not verdict.unschedulable and group.gang.problem is None:
        return "False", verdict.code, verdict.message
    if group.undecided:
        return None
    last = find_condition(conditions, ADMITTED)
    return ("True", "Admitted", "") if last is not None and last.get("status") == "False" else None
