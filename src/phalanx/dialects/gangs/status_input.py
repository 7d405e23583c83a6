"""Input for the status of a gang's PodGroup in every dialect, and functions on its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.times import format_time
from phalanx.model.gang import Gang, GangCounts, GroupRef, MatchPolicy, share_of
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS, Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, told_fields


class GroupStatusInput(msgspec.Struct, frozen=True):
    """Input for a status. `verdict` is the last verdict about pending members, None if there is none.
    `ever_scheduled` is True once the quorum has been placed. `now` is in seconds since the epoch. `exceeded` is
    the reason why the members' run time is over, else "". `undecided` is True while the first verdict since the
    start of the scheduler is missing: what depends on it stays as it is. `withdrawn` is True if the admission was
    withdrawn although the phase still shows it."""

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
    undecided: bool = False
    withdrawn: bool = False

    @property
    def phase(self) -> str:
        phase = self.current.get("phase")
        return phase if isinstance(phase, str) else ""

    @property
    def scheduled(self) -> int:
        """Number of members with a confirmed binding that have not failed since."""
        return self.counts.bound + self.counts.running + self.counts.succeeded

    @property
    def members(self) -> int:
        """Number of members that count towards the size of the gang (docs/rules/coscheduling.md, 1.4)."""
        finished = self.gang.match_policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED
        return self.counts.present + (self.counts.succeeded if finished else 0)

    @property
    def survivors(self) -> int:
        """Number of members that have neither failed nor are terminating."""
        return self.counts.present + self.counts.gated + self.counts.succeeded

    @property
    def is_empty(self) -> bool:
        return self.counts == GangCounts()

    def is_ready(self) -> bool:
        """Return whether the gang's quorum is met as kube-batch and Volcano count it, minima per role included."""
        if self.counts.active + self.counts.succeeded < self.gang.min_member:
            return False
        return not self.short_roles(lambda counts: counts.active + counts.succeeded)

    def short_roles(self, count: Callable[[GangCounts], int]) -> list[str]:
        """Return the roles with fewer pods than their minimum, in order of their names; `count` returns the number
        of pods."""
        return [role for role, minimum in self.gang.roles if count(self.roles.get(role, GangCounts())) < minimum]


def shortfall(gang: Gang, counts: GangCounts, roles: Mapping[str, GangCounts]) -> str:
    """Return the message for a gang with fewer existing members than its minimum, or than a role's minimum."""
    have, needed = counts.present + counts.succeeded, gang.min_member
    text = f"{share_of(have, needed)} of gang {gang.title} {'exists' if needed == 1 else 'exist'}"
    if have >= needed:
        role_counts = {role: roles.get(role, GangCounts()) for role, _ in gang.roles}
        short = [
            role
            for role, minimum in gang.roles
            if role_counts[role].present + role_counts[role].succeeded < minimum
        ]
        text = f"gang {gang.title} has too few pods of role {', '.join(short)}"
    words = (("failed", counts.failed), ("terminating", counts.terminating), ("gated", counts.gated))
    aside = ", ".join(f"{count} {word}" for word, count in words if count)
    return f"{text} (not counted: {aside})" if aside else text


Conditions = list[dict[str, Any]]


def current_conditions(group: GroupStatusInput) -> Conditions:
    return conditions_in(group.current)


def conditions_in(status: Mapping[str, Any]) -> Conditions:
    """Return the conditions of a PodGroup's status, without malformed entries."""
    conditions = status.get("conditions")
    if not isinstance(conditions, Sequence) or isinstance(conditions, str):
        return []
    return [
        dict(entry) for entry in conditions if isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
    ]


def find_condition(conditions: Conditions, kind: str) -> dict[str, Any] | None:
    for entry in conditions:
        if entry["type"] == kind:
            return entry
    return None


def set_condition(
    conditions: Conditions, now: int, kind: str, status: str, reason: str, message: str
) -> Conditions:
    """Return the list with this condition. Its time changes only with its status.

    kube-batch and Volcano write the session that changed a condition as its transition ID; here it is the time.
    """
    last = find_condition(conditions, kind)
    content = {"type": kind, "status": status, "reason": reason, "message": message}
    if last is not None and all(last.get(field, "") == value for field, value in content.items()):
        return conditions
    flipped = last is None or last.get("status") != status or not last.get("lastTransitionTime")
    since = format_time(now) if flipped or last is None else last["lastTransitionTime"]
    fresh = {**(last or {}), **content, "transitionID": str(now), "lastTransitionTime": since}
    if last is None:
        return [*conditions, fresh]
    return [fresh if entry is last else entry for entry in conditions]


ConditionContent = tuple[str, str, str]
"""(status, reason, message) of a condition."""


def last_verdict(group: GroupStatusInput) -> tuple[str, ConditionContent] | None:
    """Return the condition with the exact reason why a gang waits (type, content); None if no reason is known."""
    if group.verdict is not None:
        return _told(group.verdict)
    problem = group.gang.problem
    return _told(Verdict(problem.code, problem.message)) if problem is not None else None


def lost_members(group: GroupStatusInput) -> tuple[str, ConditionContent]:
    """Return the condition (type, content) for a gang of which no member waits: the members that it lacks do not
    exist."""
    have = group.counts.present + group.counts.succeeded
    return _told(Verdict(NOT_ENOUGH_MEMBERS, "", needed=group.gang.min_member, members=have))


def _told(verdict: Verdict) -> tuple[str, ConditionContent]:
    return LAST_VERDICT, ("True", verdict.code, told_fields(verdict))


def fresh_conditions(
    present: Conditions, desired: Iterable[tuple[str, ConditionContent | None]], generation: int, now: int
) -> Conditions:
    """Return the conditions of a status that differ from the desired ones, by type. Times change only with the
    status."""
    changed: Conditions = []
    for kind, content in desired:
        if content is None:
            continue
        last = find_condition(present, kind)
        fresh: dict[str, Any] = {"type": kind, **dict(zip(("status", "reason", "message"), content, strict=True))}
        if generation:
            fresh["observedGeneration"] = generation
        if last is not None and all(last.get(field, "") == value for field, value in fresh.items()):
            continue
        same = last is not None and last.get("status") == content[0] and last.get("lastTransitionTime")
        changed.append({**fresh, "lastTransitionTime": same or format_time(now)})
    return changed
