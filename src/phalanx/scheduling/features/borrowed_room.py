"""Borrowing above the deserved share: units use idle room that no unit within its share can use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.reclaim_records import ReclaimedGang
from phalanx.model.text.moments import shown_moment
from phalanx.scheduling.features.borrow_backoff import BorrowBackoff
from phalanx.scheduling.features.borrower_turns import BorrowerTurns, gangs_or_uid
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.ordering.failures import walk_in_order
from phalanx.scheduling.ordering.ranks import try_to_rank
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.cycle_features import CycleFeatures
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of


class BorrowedRoom(CyclePlugin):
    """Turns of units above the deserved share of their queue, after the actions of a cycle.

    All units within their shares have had their turns by then, and reclaim and preemption have reserved the room
    of their victims. Units that exceed their share have further turns in the order of the queues. A unit borrows as
    a whole, within all other limits (`Limit.lends`). It is reclaimed like all borrowed room, and a reclaimed gang
    borrows again after its `backoff`.
    """

    name = "borrowed-room"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self.backoff = BorrowBackoff()
        self._state = state
        self._queue = queue
        self._places = True
        # The version of the capacity at the last complete pass; None if a cycle ended before its pass.
        self._version: int | None = None
        self._interrupted = False
        # The reclaimed units whose room is idle, with the time from which they borrow.
        self._due: dict[UnitKey, int] = {}

    def configure(self, policy: Policy) -> None:
        self._places = "allocate" in policy.actions
        self._version = None

    def outdated(self) -> bool:
        return self._interrupted

    def next_due(self) -> float | None:
        return min(self._due.values(), default=None)

    def wake(self, session: Session) -> Iterable[UnitKey]:
        return [key for key, when in self._due.items() if when <= session.now]

    def lend(self, session: Session) -> None:
        if not self._places:
            return
        self._follow_idle_room(session)
        version = self._state.capacity_version
        grown = version != self._version
        if session.quota_check.any_lends or self._version is None:
            units = self._candidates(session, grown)
            if units:
                self._give_turns(session, units)
        if session.plan.complete:
            self._version = version
            # A unit that is due and had no turn waits for a reason other than time.
            self._due = {key: when for key, when in self._due.items() if when > session.now}

    def note(self, of: GangKey | str) -> str:
        when = None if isinstance(of, str) else self._due_of.get(of)
        return f"it was reclaimed and borrows again at {shown_moment(when)} if its room stays idle" if when else ""

    def published(self, session: Session) -> None:
        self._interrupted = self._places and not session.plan.complete
        if self._interrupted:
            self._version = None
        reclaimed = dict.fromkeys(
            evict.gang
            for evict in session.plan.evictions
            if evict.reason is EvictionReason.RECLAIMED and evict.gang is not None
        )
        if reclaimed:
            self._record_reclaims(session, reclaimed)

    def _record_reclaims(self, session: Session, gangs: Iterable[GangKey]) -> None:
        """Start the back-off of gangs that were reclaimed as a whole from a queue that borrows."""
        now = int(session.now)
        for key in gangs:
            record = self._state.gangs.get(key)
            if record is None or record.spec is None or record.active >= record.spec.min_member:
                continue
            if session.quota_check.lends(session.charge_path(record)):
                self.backoff.reclaimed(identity(record), now)
        self.backoff.expire(now, map(identity, self._state.gangs.values()))

    @property
    def _due_of(self) -> dict[GangKey, int]:
        return {gang: when for key, when in self._due.items() if not isinstance(key, str) for gang in key}

    def _give_turns(self, session: Session, units: dict[UnitKey, QueuedUnit]) -> None:
        session.attempted.difference_update(units)
        turns = BorrowerTurns(session, self._may_borrow, _expected_in(session))
        walk_in_order(session, list(units.values()), turns.begin)
        session.attempted.update(key for key in units if key in session.unschedulable)

    def _candidates(self, session: Session, grown: bool) -> dict[UnitKey, QueuedUnit]:
        """Return the waiting units that exceed a limit that lends, as many of each demand as could have room.

        If room has `grown`, these include units that had no turn in this cycle.
        """
        refused: dict[WaitReason, list[QueuedUnit]] = {}
        for unit in (*session.units, *session.unasked):
            if (waits := session.unschedulable.get(unit.key)) is not None:
                refused.setdefault(waits[0], []).append(unit)
        demands = dict.fromkeys((*refused, *self._queue.waiting_demands())) if grown else refused
        candidates: dict[UnitKey, QueuedUnit] = {}
        for demand in demands:
            units = refused.get(demand, [])
            # The room of a promised start is open to its unit only, in its turn.
            candidates |= {unit.key: unit for unit in units if unit.reserved}
            if not exceeds_share(session, demand):
                continue
            first = units[0] if units else self._queue.first_preemptor(demand)
            if first is None:
                continue
            with session.quota_check.lending():
                most = demand.bound_for(session, first)
            if most > 0:
                candidates |= self._first(session, demand, units, most)
        return candidates

    def _first(
        self, session: Session, demand: WaitReason, units: list[QueuedUnit], most: int
    ) -> dict[UnitKey, QueuedUnit]:
        """Return the first `most` units with a demand, and the reclaimed ones before them."""
        further: list[QueuedUnit] = []
        for unit, fit_error in self._queue.pop_first_unschedulable(demand, most, self._is_reclaimed):
            try_to_rank(session, unit)
            session.unasked.append(unit)
            session.asked.add(unit.key)  # its search for victims does not depend on borrowed room
            session.set_unschedulable(unit, demand, fit_error)
            further.append(unit)
        ordered = sorted([*units, *further], key=lambda unit: unit.rank) if further else units
        chosen: dict[UnitKey, QueuedUnit] = {}
        count = 0
        for unit in ordered:
            if count == most:
                break
            chosen[unit.key] = unit
            count += not self._is_reclaimed(unit)
        return chosen

    def _is_reclaimed(self, unit: QueuedUnit) -> bool:
        return bool(self._reclaimed_of(unit))

    def _may_borrow(self, session: Session, unit: QueuedUnit, fits: bool) -> bool:
        """Return whether a unit borrows now: it `fits`, and the room of a reclaimed unit was idle long enough."""
        self._due.pop(unit.key, None)
        uids = self._reclaimed_of(unit)
        if not fits:
            self._room_used(uids)
        if not (fits and uids) or not unit.band[0]:
            return fits  # a gang that lost members is repaired at once
        when = max(self.backoff.room_idle(uid, int(session.now)) for uid in uids)
        if when > session.now:
            self._due[unit.key] = when
        return when <= session.now

    def _follow_idle_room(self, session: Session) -> None:
        """Forget the times of units whose room is used by now, or that wait no more."""
        for key in list(self._due):
            unit = self._queue.unit(key)
            waits = session.unschedulable.get(key)
            demand = waits[0] if waits is not None else self._queue.demand_of(key)
            if unit is None or demand is None:
                del self._due[key]
                continue
            with session.quota_check.lending():
                fits = demand.bound_for(session, unit) > 0
            if not fits:
                del self._due[key]
                self._room_used(self._reclaimed_of(unit))

    def _reclaimed_of(self, unit: QueuedUnit) -> list[str]:
        return [uid for gang in unit.gangs if (uid := identity(gang)) in self.backoff] if self.backoff else []

    def _room_used(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.backoff.room_used(uid)


def identity(gang: GangRecord) -> str:
    """Return the uid of the object that declares a gang; its path if only its pods do."""
    return (gang.spec.uid if gang.spec is not None else "") or str(gang.key.path)


def load_reclaims(features: CycleFeatures, reclaimed: Sequence[ReclaimedGang]) -> None:
    """Load the reclaimed gangs of another process into the features of a scheduler."""
    feature = features.get(BorrowedRoom)
    if feature is not None and reclaimed:
        feature.backoff.load(reclaimed)


def exceeds_share(session: Session, demand: WaitReason) -> bool:
    """Return whether a limit that lends is in the way of a demand for which the nodes could have room.

    True proves nothing for several charge paths or parts: parts within their shares can exceed them together.
    """
    parts, quota_check = demand.separate_parts, session.quota_check
    if demand.for_surplus:
        return any(exceeds_share(session, part) for part in parts)
    quorums = [quorum for part in parts or (demand,) for quorum in part.quorums]
    charge_paths = {pods.charge_path for quorum in quorums for pods in quorum.members}
    lending = [path for path in charge_paths if path is not None and quota_check.lends(path)]
    if len(quorums) != 1 or len(charge_paths) != 1 or not lending:
        return bool(lending)
    # In a full cluster this excludes nearly all demands at once.
    copies = sum([session.placer.total_copies(pods.pod_class) for pods in quorums[0].members])
    return copies >= quorums[0].total and not quota_check.room_for(lending[0], quorums[0].least_amounts())


def _expected_in(session: Session) -> dict[AccountRecord, set[GangKey | str]]:
    """Return the accounts in which gangs and pods (by uid) are about to start: they have a promised start, or room
    that is reserved while evicted pods terminate."""
    plan = plan_of(session)
    accounts: dict[AccountRecord, set[GangKey | str]] = {}
    for reservation in plan.all() if plan is not None else ():
        for part in reservation.parts:
            for account in part.charge_path.path if part.charge_path is not None else ():
                accounts.setdefault(account, set()).update(gangs_or_uid(reservation.key))
    for uid, record in session.state.pods.nominated.items():
        held = record.nomination is not None and record.nomination.held
        if not (record.pod.placeholder or held) and record.charge_path is not None:
            for account in record.charge_path.path:
                accounts.setdefault(account, set()).add(record.gang.key if record.gang is not None else uid)
    return accounts
