"""Status of advance reservations: granted or refused, open, used, ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from phalanx.dialects.api_groups import KOORDINATOR
from phalanx.dialects.gangs.status_input import Conditions, conditions_in, find_condition
from phalanx.dialects.intake import Intake
from phalanx.dialects.reservations.objects import SeenReservation
from phalanx.dialects.reservations.reader import INVALID
from phalanx.dialects.status import StatusChange
from phalanx.dialects.times import format_time
from phalanx.dialects.warnings import ObjectRef, ObjectWarning
from phalanx.execution.writes import WritePool
from phalanx.kube.retry import RetryPolicy
from phalanx.model.advance_reservation import NO_END
from phalanx.model.text.quantity import canonical_quantity
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant, EndReason, GrantPhase, GrantRefusal
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.status_writer import DerivedStatus, StatusWriter

_NODES_NAMED = 64
_OWNERS_NAMED = 16
_OCCURRENCES_NAMED = 3
_WARNED_OF = ("Unschedulable", "NodeLost", "Maintenance", "Unused")
_WORDS = {
    EndReason.SUCCEEDED: "the reservation has been used",
    EndReason.EXPIRED: "the time of the reservation has ended",
    EndReason.UNUSED: "no pod has used it for the duration of unusedAfter",
    EndReason.UNSCHEDULABLE: "the time of the reservation has ended, and its resources were never completely free",
}


class ReservationStatus(msgspec.Struct, frozen=True):
    """Status of an advance reservation, written when it differs from the last one."""

    phase: GrantPhase
    start: int
    end: int
    nodes: tuple[tuple[str, int], ...]
    allocatable: tuple[tuple[str, str], ...]
    allocated: tuple[tuple[str, str], ...]
    users: tuple[str, ...]
    lost: tuple[str, ...]
    closed: tuple[tuple[str, str], ...]
    refusal: GrantRefusal | None
    reason: str
    problem: str
    occurrences: tuple[int, ...]
    generation: int


class AdvanceReservationStatuses:
    """Publisher of the status of every advance reservation; it checks once a second and writes only changes.

    `grants` returns the grants. `recorded` returns whether a grant (name, uid, phase, start) is stored where a
    restart finds it: a grant is not published before. A stored status is only compared, never used as input.
    """

    def __init__(
        self,
        endpoint: StatusEndpoint,
        pool: WritePool,
        intake: Intake,
        event_publisher: EventPublisher,
        grants: Callable[[], Mapping[str, AdvanceGrant]],
        recorded: Callable[[str, str, str, int], bool],
        now: Callable[[], float],
        retry: RetryPolicy | None = None,
    ) -> None:
        self._writer = StatusWriter(endpoint, pool, self._derive, lambda name: f"Reservation {name}", retry=retry)
        self._seen = intake.reservations.seen
        self._event_publisher = event_publisher
        self._grants = grants
        self._recorded = recorded
        self._now = now
        self._current: dict[str, tuple[ReservationStatus, SeenReservation]] = {}

    def check(self) -> None:
        grants = self._grants()
        for name in [name for name in self._current if name not in grants]:
            del self._current[name]
            self._writer.forget(name)
        for name, grant in grants.items():
            seen = self._seen.get(name)
            if seen is None or seen.ref.uid != grant.spec.uid or not self._is_publishable(grant):
                continue
            status = _status(grant, seen.generation)
            last = self._current.get(name)
            if last != (status, seen):
                self._current[name] = (status, seen)
                self._publish(seen, status, last[0] if last is not None else None)
                self._writer.touch(name)

    def _is_publishable(self, grant: AdvanceGrant) -> bool:
        """Return whether the grant of a reservation has a state that a restart would not change."""
        if grant.phase is GrantPhase.PENDING:
            return bool(grant.refusal or grant.spec.problem)
        return self._recorded(grant.name, grant.spec.uid, grant.phase.value, grant.start)

    def _publish(self, seen: SeenReservation, status: ReservationStatus, last: ReservationStatus | None) -> None:
        """Publish an event when an advance reservation is granted, refused, lost or ended.

        After a restart the conditions of the status show what is already published.
        """
        published = find_condition(conditions_in(seen.status), "Ready") or {}
        _, ready = _conditions(status)
        if (last is None or last.phase is status.phase) and published.get("reason") == ready[2]:
            return
        if last is not None and (last.phase, last.reason, last.lost, last.closed) == (
            status.phase,
            status.reason,
            status.lost,
            status.closed,
        ):
            return
        kind: Literal["Normal", "Warning"] = "Warning" if ready[2] in _WARNED_OF else "Normal"
        about = ObjectRef(f"{seen.ref.group}/{seen.ref.version}", seen.ref.kind, "", seen.ref.name, seen.ref.uid)
        self._event_publisher.publish_warning(ObjectWarning(about, kind, ready[2], ready[3]))

    def _derive(self, name: str) -> DerivedStatus | None:
        status, seen = self._current.get(name, (None, None))
        if status is None or seen is None:
            return None
        wanted = self._koordinator(status, seen) if seen.ref.group == KOORDINATOR else self._own(status, seen)
        changed = {field: value for field, value in wanted.items() if seen.status.get(field) != value}
        if not changed:
            return None
        return DerivedStatus(
            StatusChange(seen.ref, {"metadata": {"uid": seen.ref.uid}, "status": changed}), seen.status
        )

    def _own(self, status: ReservationStatus, seen: SeenReservation) -> dict[str, Any]:
        refusal = status.refusal
        next_start = refusal.next_start if refusal is not None else 0
        return {
            "observedGeneration": status.generation,
            "phase": status.phase.value,
            "start": format_time(status.start) if status.start else None,
            "end": format_time(status.end) if 0 < status.end < NO_END else None,
            "nodeCount": len(status.nodes),
            "nodes": [{"name": name, "count": count} for name, count in status.nodes[:_NODES_NAMED]] or None,
            "allocatable": dict(status.allocatable) or None,
            "allocated": dict(status.allocated) or None,
            "users": len(status.users),
            "currentOwners": _owners(status) or None,
            "nextStart": format_time(next_start) if next_start else None,
            "blockers": list(refusal.blockers) or None if refusal is not None else None,
            "nextOccurrences": [format_time(when) for when in status.occurrences] or None,
            "conditions": [
                self._condition(seen, status.generation, *condition) for condition in _conditions(status)
            ],
        }

    def _koordinator(self, status: ReservationStatus, seen: SeenReservation) -> dict[str, Any]:
        """Return the status fields of Koordinator's Reservation."""
        return {
            "phase": "Pending" if status.phase is GrantPhase.WAITING else status.phase.value,
            "nodeName": status.nodes[0][0] if status.nodes else None,
            "allocatable": dict(status.allocatable) or None,
            "allocated": dict(status.allocated) or None,
            "currentOwners": _owners(status) or None,
            "conditions": [self._condition(seen, 0, *condition) for condition in _conditions(status)],
        }

    def _condition(
        self, seen: SeenReservation, generation: int, kind: str, status: str, reason: str, message: str
    ) -> dict[str, Any]:
        published: Conditions = conditions_in(seen.status)
        last = find_condition(published, kind) or {}
        same = last.get("status") == status and last.get("lastTransitionTime")
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": last["lastTransitionTime"] if same else format_time(int(self._now())),
        }
        return {**condition, "observedGeneration": generation} if generation else condition


def _status(grant: AdvanceGrant, generation: int) -> ReservationStatus:
    return ReservationStatus(
        phase=grant.phase,
        start=grant.start,
        end=grant.end,
        nodes=tuple((name, node.copies) for name, node in sorted(grant.nodes.items()) if name not in grant.lost),
        allocatable=_amounts(grant.granted_amounts()),
        allocated=_amounts(grant.used_amounts()),
        users=grant.users,
        lost=grant.lost,
        closed=tuple(sorted(grant.closed.items())),
        refusal=grant.refusal,
        reason=grant.reason,
        problem=grant.spec.problem,
        occurrences=_occurrences(grant),
        generation=generation,
    )


def _occurrences(grant: AdvanceGrant) -> tuple[int, ...]:
    recurrence, starts, after = grant.spec.recurrence, list[int](), grant.start
    while recurrence is not None and len(starts) < _OCCURRENCES_NAMED:
        following = recurrence.next_start(after + 1)
        if following is None:
            break
        starts.append(following)
        after = following
    return tuple(starts)


def _amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, canonical_quantity(amount, name)) for name, amount in sorted(amounts.items()) if name != "pods"
    )


def _owners(status: ReservationStatus) -> list[dict[str, str]]:
    pairs = (key.partition("/") for key in status.users[:_OWNERS_NAMED])
    return [{"namespace": namespace, "name": name} for namespace, _, name in pairs]


def conditions_of_grant(grant: AdvanceGrant) -> tuple[tuple[str, str, str, str], tuple[str, str, str, str]]:
    """Return the conditions Scheduled and Ready of a grant: (type, status, reason, message)."""
    return _conditions(_status(grant, 0))


def _conditions(status: ReservationStatus) -> tuple[tuple[str, str, str, str], tuple[str, str, str, str]]:
    """Return the conditions Scheduled and Ready of a reservation: (type, status, reason, message)."""
    if status.problem:
        return ("Scheduled", "False", INVALID, status.problem), ("Ready", "False", INVALID, status.problem)
    if status.phase is GrantPhase.PENDING:
        message = status.refusal.message if status.refusal is not None else ""
        return (
            ("Scheduled", "False", "Unschedulable", message),
            ("Ready", "False", "Unschedulable", message),
        )
    if status.phase in (GrantPhase.SUCCEEDED, GrantPhase.FAILED):
        words = _WORDS.get(EndReason(status.reason), "") if status.reason else ""
        granted = "False" if status.reason == EndReason.UNSCHEDULABLE else "True"
        scheduled = "Scheduled" if granted == "True" else "Unschedulable"
        return ("Scheduled", granted, scheduled, words), ("Ready", "False", status.reason, words)
    granted_on = f"resources are reserved on {len(status.nodes)} node(s)"
    scheduled_now = ("Scheduled", "True", "Scheduled", granted_on)
    closed = dict(status.closed)
    gone = [name for name in status.lost if name not in closed]
    if gone:
        lost = f"node(s) {', '.join(gone[:5])} are lost, and no other node has free resources for the lost part"
        return scheduled_now, ("Ready", "False", "NodeLost", lost)
    if closed:
        causes = ", ".join(sorted(set(closed.values())))
        text = f"node(s) {', '.join(list(closed)[:5])} close before its end ({causes})"
        if status.lost:
            text += ", and no other node has free resources for this part"
        return scheduled_now, ("Ready", "False", "Maintenance", text)
    if status.phase is GrantPhase.AVAILABLE:
        return scheduled_now, ("Ready", "True", "Available", "its pods can use it")
    return scheduled_now, ("Ready", "False", "Waiting", f"the reservation starts at {format_time(status.start)}")
