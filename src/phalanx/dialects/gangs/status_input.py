"""How a gang stands, as every family's status is derived from it, and the conditions that tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.times import format_time
from phalanx.model.gang import Gang, GangCounts, GroupRef, MatchPolicy
from phalanx.model.verdict import Verdict


class GroupStatusInput(msgspec.Struct, frozen=True):
    """Everything that a status says. `verdict` is the last word of the scheduler about pending members, None where
    it has none. `ever_scheduled` is True once the quorum has been placed. `now` is in seconds since the epoch.
    `exceeded` says why the time of its members is over, "" while it is not.
    """

    ref: GroupRef
    current: Mapping[str, Any]
    gang: Gang
    counts: GangCounts
    roles: Mapping[str, GangCounts] = {}
    occupied_by: str = ""
    verdict: Verdict | None = None
    ever_scheduled: bool = False
    admitted: bool = False
    now: int = 0
    generation: int = 0
    fail_on_any_member: bool = False
    exceeded: str = ""

    @property
    def phase(self) -> str:
        phase = self.current.get("phase")
        return phase if isinstance(phase, str) else ""

    @property
    def scheduled(self) -> int:
        """Members whose node the API server has confirmed, and that have not failed since."""
        return self.counts.bound + self.counts.running + self.counts.succeeded

    @property
    def members(self) -> int:
        """Those that count towards having enough members at all (docs/rules/coscheduling.md, 1.4)."""
        finished = self.gang.match_policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED
        return self.counts.present + (self.counts.succeeded if finished else 0)

    @property
    def survivors(self) -> int:
        """Members that have neither failed nor are on their way out."""
        return self.counts.present + self.counts.gated + self.counts.succeeded

    @property
    def is_empty(self) -> bool:
        return self.counts == GangCounts()

    def is_ready(self) -> bool:
        """The quorum as kube-batch and Volcano count it, per-role minima included."""
        if self.counts.active + self.counts.succeeded < self.gang.min_member:
            return False
        return not self.short_roles(lambda counts: counts.active + counts.succeeded)

    def short_roles(self, count: Callable[[GangCounts], int]) -> list[str]:
        """The roles below their minimum, in order of their names."""
        return [role for role, minimum in self.gang.roles if count(self.roles.get(role, GangCounts())) < minimum]


def shortfall(gang: Gang, counts: GangCounts, roles: Mapping[str, GangCounts]) -> str:
    """What a gang lacks whose members that exist are fewer than its minimum, or those of one of its roles."""
    have, needed = counts.present + counts.succeeded, gang.min_member
    text = f"gang {gang.title} has {have} of the {needed} members that it needs"
    if have >= needed:
        of = {role: roles.get(role, GangCounts()) for role, _ in gang.roles}
        short = [role for role, minimum in gang.roles if of[role].present + of[role].succeeded < minimum]
        text = f"gang {gang.title} has too few members of {', '.join(short)}"
    words = (("failed", counts.failed), ("terminating", counts.terminating), ("gated", counts.gated))
    aside = ", ".join(f"{count} {word}" for word, count in words if count)
    return f"{text} ({aside})" if aside else text


Conditions = list[dict[str, Any]]


def current_conditions(group: GroupStatusInput) -> Conditions:
    return conditions_in(group.current)


def conditions_in(status: Mapping[str, Any]) -> Conditions:
    """An object's conditions; what is no condition is left aside."""
    conditions = status.get("conditions")
    if not isinstance(conditions, Sequence) or isinstance(conditions, str):
        return []
    return [
        dict(entry) for entry in conditions if isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
    ]


def find_condition(conditions: Conditions, kind: str) -> dict[str, Any] | None:
    return next((entry for entry in conditions if entry["type"] == kind), None)


def set_condition(
    conditions: Conditions, now: int, kind: str, status: str, reason: str, message: str
) -> Conditions:
    """The list with this condition in it. Its time changes only when its status does.

    kube-batch and Volcano number the session that changed a condition; here the number is the time of the change.
    """
    last = find_condition(conditions, kind)
    told = {"type": kind, "status": status, "reason": reason, "message": message}
    if last is not None and all(last.get(field, "") == value for field, value in told.items()):
        return conditions
    flipped = last is None or last.get("status") != status or not last.get("lastTransitionTime")
    since = format_time(now) if flipped or last is None else last["lastTransitionTime"]
    fresh = {**(last or {}), **told, "transitionID": str(now), "lastTransitionTime": since}
    if last is None:
        return [*conditions, fresh]
    return [fresh if entry is last else entry for entry in conditions]


Told = tuple[str, str, str]
"""(status, reason, message) of a condition."""


def fresh_conditions(
    told: Conditions, wishes: Iterable[tuple[str, Told | None]], generation: int, now: int
) -> Conditions:
    """The conditions, by type, that do not say yet what they should. Times change only with a status."""
    found: Conditions = []
    for kind, wish in wishes:
        if wish is None:
            continue
        last = find_condition(told, kind)
        fresh: dict[str, Any] = {"type": kind, **dict(zip(("status", "reason", "message"), wish, strict=True))}
        if generation:
            fresh["observedGeneration"] = generation
        if last is not None and all(last.get(field, "") == value for field, value in fresh.items()):
            continue
        same = last is not None and last.get("status") == wish[0] and last.get("lastTransitionTime")
        found.append({**fresh, "lastTransitionTime": same or format_time(now)})
    return found
