"""What is written to PodGroups and CompositePodGroups of scheduling.k8s.io: conditions, and nothing else."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.families.native_groups import INITIALLY_SCHEDULED, SCHEDULED
from phalanx.dialects.gangs.status_input import (
    Conditions,
    GroupStatusInput,
    Told,
    current_conditions,
    find_condition,
    fresh_conditions,
    last_verdict,
)

# Ours: a quota or a turn in a queue is no lack of nodes, and the API has no word for it.
ADMITTED = "phalanx.dev/Admitted"


def scheduled_condition(version: str) -> str:
    """The gang condition that this version of the API knows."""
    return SCHEDULED if version == "v1alpha2" else INITIALLY_SCHEDULED


def status_of(group: GroupStatusInput) -> dict[str, Any] | None:
    """The conditions that are not as they should be."""
    conditions = conditions_of(group)
    return {"conditions": conditions} if conditions else None


def conditions_of(group: GroupStatusInput) -> Conditions:
    """Those of the conditions that are not as they should be, as they should be.

    The gang condition is final once it is True: it says that the first quorum has been placed, which nothing takes
    back.
    """
    told = current_conditions(group)
    kind = scheduled_condition(group.ref.version)
    wishes = [(kind, _scheduled(group, find_condition(told, kind))), (ADMITTED, _admitted(group, told))]
    exact = last_verdict(group)
    # Written with a condition that it makes exact, and never on its own behalf.
    if exact is not None and any(wish is not None and wish[0] == "False" for _, wish in wishes):
        wishes.append(exact)
    return fresh_conditions(told, wishes, group.generation, group.now)


def _scheduled(group: GroupStatusInput, last: dict[str, Any] | None) -> Told | None:
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
    # What was said about nodes is not true any more.
    return ("False", verdict.code, verdict.message) if last is not None else None


def _admitted(group: GroupStatusInput, told: Conditions) -> Told | None:
    verdict = group.verdict
    if verdict is not None and not verdict.unschedulable and group.gang.problem is None:
        return "False", verdict.code, verdict.message
    last = find_condition(told, ADMITTED)
    return ("True", "Admitted", "") if last is not None and last.get("status") == "False" else None
