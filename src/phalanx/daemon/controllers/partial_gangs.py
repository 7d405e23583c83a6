"""Gangs that stay below their quorum after failed bindings: the configured handling after a timeout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.gang_eviction import evict_members
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.pod import CAN_LEAVE, PlanMark
from phalanx.scheduling.gangs.quorum import unfinished_plan
from phalanx.status.event_publisher import EventPublisher

_DEFAULT_TIMEOUT = 600
_CUT_OFF = "the rest of the pod's gang could not be bound in time"


class PartialGangs:
    """Search for gangs whose plan is only partly bound after its timeout (seconds since the plan, the gang's own or
    600).

    With `keep` the bound members stay, and one event reports them. With `release` they are evicted (`evict`), so
    that their resources are free and the gang starts as one later. In both cases each cycle still tries to complete
    the gang.
    """

    def __init__(
        self,
        state: ClusterState,
        event_publisher: EventPublisher,
        evict: Callable[[Sequence[Evict]], None],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._event_publisher = event_publisher
        self._evict = evict
        self._now = now
        self._handled: dict[GangKey, PlanMark] = {}

    def check(self, policy: str) -> None:
        """Handle gangs that are partly bound after their timeout; `policy` is keep or release."""
        gangs = self._state.gangs
        for key in [key for key in self._handled if key not in gangs or not gangs[key].marks]:
            del self._handled[key]
        for key, record in gangs.items():
            # This runs for every gang each second: gangs without pending members and failures are skipped.
            if not record.marks or not (record.pending or record.failures):
                continue
            mark = self._overdue(record)
            if mark is None or self._handled.get(key) == mark:
                continue
            self._handled[key] = mark
            bound_members = [member for member in record.members.values() if member.state in CAN_LEAVE]
            self._event_publisher.plan_timed_out(record, mark, len(bound_members), released=policy == "release")
            if policy == "release":
                reason, cause = EvictionReason.RESCHEDULED, f"{mark.plan} {key}"
                evictions = evict_members(self._state, record, bound_members, reason, _CUT_OFF, cause, self._now())
                self._evict(evictions)

    def _overdue(self, record: GangRecord) -> PlanMark | None:
        spec = record.spec
        if spec is None:
            return None
        mark = unfinished_plan(record, spec)
        timeout = spec.timeout if spec.timeout is not None else _DEFAULT_TIMEOUT
        return mark if mark is not None and self._now() >= mark.time + timeout else None
