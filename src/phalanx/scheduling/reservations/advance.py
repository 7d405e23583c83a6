"""Advance reservations in the plan: granted whole or refused, with fixed nodes and times, open to their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.advance_reservation import AdvanceReservation, AtEnd, Replace
from phalanx.model.pod import MemberState, ReservationUse
from phalanx.model.promise_records import StoredEnd, StoredGrant, StoredNode
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.account_future import AccountFuture
from phalanx.scheduling.reservations.advance_grant import (
    AdvanceGrant,
    EndedUse,
    EndReason,
    GrantedNode,
    GrantPhase,
    GrantRefusal,
)
from phalanx.scheduling.reservations.advance_refusal import refusal_of
from phalanx.scheduling.reservations.advance_search import FoundRoom, RoomQuestion, RoomSearch, reduced, whole_nodes
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, Window

Ask = Callable[[AdvanceReservation], tuple[Part, ...] | str]
"""Resolver of an advance reservation's request by class; returns a reason where it has none."""

_THERE = frozenset({MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING})
# The next possible start of a refused advance reservation is searched again after this many seconds.
_REFRESH = 60


class AdvancePlan:
    """All advance reservations by name. Their windows, unlike those of start reservations, never move."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.grants: dict[str, AdvanceGrant] = {}
        self.version = 0
        self._seen = -1
        self._cursor = -1
        self._now = 0
        self._charge_paths: dict[str, ChargePath] = {}
        self._loaded: dict[str, StoredGrant] = {}
        self._shape = -1

    # -- looking -----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether there are advance reservations, or grants of former ones."""
        return bool(self.grants) or bool(self._state.objects.advance)

    @property
    def outdated(self) -> bool:
        """Whether objects have changed since the last read."""
        return self.wanted and self._seen != self._state.objects.advance_version

    def windows(self) -> list[Window]:
        return [grant.window for grant in self.grants.values() if grant.window is not None]

    @property
    def next_change(self) -> int | None:
        """The next time at which an advance reservation starts, ends or is released as unused."""
        times: list[int] = []
        for grant in self.grants.values():
            if grant.phase is GrantPhase.WAITING:
                times.append(grant.start)
            elif grant.phase is GrantPhase.AVAILABLE:
                times += [grant.end, self._given_up_at(grant)]
            elif grant.phase is GrantPhase.PENDING and not grant.spec.problem:
                times.append(grant.end if grant.end else self._now)
        return min((when for when in times if when < FOREVER), default=None)

    def open_grants(self, use: ReservationUse) -> list[AdvanceGrant]:
        """Return the open advance reservations of a pod, in its order of preference."""
        grants = (self.grants.get(name) for name in use.names if not use.fault)
        return [grant for grant in grants if grant is not None and grant.open]

    def unrestricted(self, use: ReservationUse) -> bool:
        """Return whether a pod can also be placed outside its advance reservations."""
        if use.fault:
            return False
        if not use.inside:
            return True
        grants = [grant for name in use.names if (grant := self.grants.get(name)) is not None]
        return any(grant.spec.flex or (grant.over and grant.spec.on_end is AtEnd.KEEP) for grant in grants)

    def shared(self, grant: AdvanceGrant) -> list[Window]:
        """Return the windows that the advance reservation can use: its own, and overlapping ones."""
        return [
            other.window
            for other in self.grants.values()
            if other.window is not None and (other is grant or other.spec.overlap or grant.spec.overlap)
        ]

    def unready(self, use: ReservationUse) -> str | None:
        """Return the reason why a pod must wait for its advance reservations; None if it need not."""
        if use.fault:
            return use.fault
        if self.unrestricted(use) or self.open_grants(use):
            return None
        return "; ".join(self._closed(name) for name in use.names)

    def _closed(self, name: str) -> str:
        grant = self.grants.get(name)
        if grant is None or grant.phase is GrantPhase.PENDING:
            return f"Reservation {name}, which it asks for, is not granted"
        if grant.phase is GrantPhase.WAITING:
            return f"{grant.spec.title}, which it asks for, starts at {format_moment(grant.start)}"
        if grant.over:
            return f"{grant.spec.title}, which it asks for, is over"
        return f"{grant.spec.title}, which it asks for, admits no more pods"

    # -- users -------------------------------------------------------------------------------------------------

    def used_by(self, record: PodRecord) -> AdvanceGrant | None:
        """Return the advance reservation that a bound pod uses: its first one that was open on the node then."""
        use = record.pod_class.spec.reservation
        if use is None or use.fault or record.row < 0 or record.state not in _THERE:
            return None
        node = self._state.nodes.names[record.row]
        bound_at = record.pod.bound or record.pod.started or self._now
        for name in use.names:
            grant = self.grants.get(name)
            if grant is None or not grant.granted or node not in grant.nodes:
                continue
            if grant.spec.flex or (grant.phase is GrantPhase.AVAILABLE and bound_at >= grant.start):
                return grant
        return None

    def leaves_by(self, record: PodRecord) -> int:
        """Return the time at which a pod is evicted because its advance reservation ends."""
        grant = self.used_by(record)
        return grant.leaves_at if grant is not None else FOREVER

    def left_over(self) -> Iterator[tuple[AdvanceGrant, PodRecord]]:
        """Yield the pods of ended occurrences that must be evicted."""
        for grant in list(self.grants.values()):
            remaining = []
            for ended in grant.ended:
                users = [record for record in self._pods_on(ended.nodes) if self._used_ended(grant, ended, record)]
                yield from ((grant, record) for record in users)
                if users:
                    remaining.append(ended)
            if len(remaining) != len(grant.ended):
                grant.ended = tuple(remaining)
                self.version += 1

    def _used_ended(self, grant: AdvanceGrant, ended: EndedUse, record: PodRecord) -> bool:
        use = record.pod_class.spec.reservation
        bound_at = record.pod.bound or record.pod.started or ended.start
        listed = use is not None and grant.name in use.names and record.state in _THERE
        return listed and ended.start <= bound_at < ended.end

    def _pods_on(self, nodes: Sequence[str]) -> Iterator[PodRecord]:
        for node in nodes:
            row = self._state.nodes.row(node)
            if row != NO_ROW:
                yield from sorted(self._state.pods.on(row), key=lambda pod_record: pod_record.pod.key)

    def recount(self) -> list[AdvanceGrant]:
        """Update the used amounts; return the advance reservations with a changed use."""
        nodes = self._state.nodes
        changed = nodes.changes.since(self._cursor, max(64, nodes.extent))
        self._cursor = nodes.changes.end
        names = {nodes.names[row] for row in changed if row >= 0} if changed is not None else None
        return [
            grant
            for grant in self.grants.values()
            if grant.granted and (names is None or not names.isdisjoint(grant.nodes)) and self._recount(grant)
        ]

    def _recount(self, grant: AdvanceGrant) -> bool:
        used: dict[str, dict[str, int]] = {}
        users: list[str] = []
        for node in sorted(grant.nodes):
            for record in self._pods_on([node]):
                if self.used_by(record) is grant:
                    add_amounts(used.setdefault(node, {}), self._amounts(record.footprint.usage), 1)
                    users.append(record.pod.key)
        if users:
            grant.last_used = self._now
        if (used, tuple(users)) == (grant.used, grant.users):
            return False
        grant.used, grant.users = used, tuple(users)
        return True

    def _amounts(self, vector: object) -> dict[str, int]:
        usage = np.asarray(vector)
        return {self._state.space.names[at]: int(usage[at]) for at in np.flatnonzero(usage).tolist()}

    # -- a cycle -----------------------------------------------------------------------------------------------

    def advance(self, now: int) -> list[Window]:
        """Update all states to `now`, without new grants; return the windows that are released."""
        self._now = now
        former = {id(window): window for window in self.windows()}
        if self.outdated:
            self._read()
        for grant in self.grants.values():
            self._pass_time(grant)
        for grant in self.grants.values():
            if grant.granted:
                self._update_lost_nodes(grant)
        for grant in self.recount():
            self.redraw(grant)
        for grant in self.grants.values():
            if grant.window is not None and self._charge_path(grant.spec) is not grant.charged_to:
                self.redraw(grant)
            if grant.spec.once and grant.users:
                self._finish(grant, GrantPhase.SUCCEEDED, EndReason.SUCCEEDED)
        standing = {id(window) for window in self.windows()}
        return [window for number, window in former.items() if number not in standing]

    def _read(self) -> None:
        """Read the changed objects."""
        self._seen = self._state.objects.advance_version
        objects = self._state.objects.advance
        for name in [name for name in self.grants if name not in objects]:
            del self.grants[name]
            self.version += 1
        for name, spec in sorted(objects.items()):
            grant = self.grants.get(name)
            if grant is None or (grant.spec.uid, grant.spec.asks) != (spec.uid, spec.asks):
                self.grants[name] = grant = AdvanceGrant(spec)
                kept = self._loaded.pop(name, None)
                if kept is not None and (kept.uid, kept.asks) == (spec.uid, spec.asks):
                    self._restore(grant, kept)
            grant.spec = spec

    def _pass_time(self, grant: AdvanceGrant) -> None:
        if grant.over:
            return
        if not grant.granted:
            coming = grant.spec.occurrence(self._now)
            if coming is not None:
                grant.start, grant.end = coming.start, coming.end
            elif not grant.spec.problem:
                self._finish(grant, GrantPhase.FAILED, EndReason.UNSCHEDULABLE)
            return
        if self._now >= grant.end:
            self._end(grant)
        elif grant.phase is GrantPhase.WAITING and self._now >= grant.start:
            grant.phase = GrantPhase.AVAILABLE
            self._invalidate_all_rows()
            self._recount(grant)
            self.redraw(grant)
        elif grant.phase is GrantPhase.AVAILABLE and self._now >= self._given_up_at(grant):
            self._finish(grant, GrantPhase.FAILED, EndReason.UNUSED)

    def _given_up_at(self, grant: AdvanceGrant) -> int:
        if not grant.spec.unused_after or grant.users:
            return FOREVER
        return max(grant.start, grant.last_used) + grant.spec.unused_after

    def _end(self, grant: AdvanceGrant) -> None:
        """End the occurrence. A recurring reservation then waits for a grant of its next one."""
        if grant.spec.on_end is AtEnd.EVICT:
            grant.ended = (*grant.ended, EndedUse(grant.start, grant.end, tuple(sorted(grant.nodes))))
        coming = grant.spec.occurrence(self._now) if grant.spec.recurrence is not None else None
        if coming is None:
            self._finish(grant, GrantPhase.SUCCEEDED, EndReason.EXPIRED)
            return
        self._release(grant)
        grant.phase, grant.start, grant.end = GrantPhase.PENDING, coming.start, coming.end
        self.version += 1

    def _finish(self, grant: AdvanceGrant, phase: GrantPhase, reason: EndReason) -> None:
        self._release(grant)
        grant.phase, grant.reason = phase, reason
        self.version += 1

    def _release(self, grant: AdvanceGrant) -> None:
        grant.window, grant.lost, grant.refusal, grant.asked_at, grant.last_used = None, (), None, (), 0
        grant.closed = {}
        grant.nodes, grant.used, grant.users = {}, {}, ()
        self._invalidate_all_rows()

    def _invalidate_all_rows(self) -> None:
        """Invalidate all rows: pods of any class can fit or not fit there now."""
        nodes = self._state.nodes
        nodes.changes.note_all(np.flatnonzero(nodes.alive).tolist())
        self._state.room_opened()

    def redraw(self, grant: AdvanceGrant) -> None:
        charge_path = grant.charged_to = self._charge_path(grant.spec)
        grant.window = grant.unused_window(self._state.nodes, charge_path)

    def _charge_path(self, spec: AdvanceReservation) -> ChargePath | None:
        ledger = self._state.ledger
        if self._shape != ledger.shape_version:
            self._shape = ledger.shape_version
            self._charge_paths.clear()
        if spec.queue and spec.queue not in self._charge_paths:
            self._charge_paths[spec.queue] = ledger.charge_path_of_group("", spec.queue)
            ledger.refresh()
        return self._charge_paths.get(spec.queue)

    # -- a restart ---------------------------------------------------------------------------------------------

    def stored(self) -> list[StoredGrant]:
        """Return the granted and ended reservations as stored records."""
        return [
            StoredGrant(
                name=grant.name,
                uid=grant.spec.uid,
                asks=grant.spec.asks,
                phase=grant.phase.value,
                start=grant.start,
                end=grant.end,
                reason=grant.reason,
                nodes={
                    name: StoredNode(dict(sorted(node.amounts.items())), node.copies)
                    for name, node in sorted(grant.nodes.items())
                },
                held_until=grant.held_until if grant.held_until > grant.end else 0,
                ended=[StoredEnd(ended.start, ended.end, list(ended.nodes)) for ended in grant.ended],
            )
            for _, grant in sorted(self.grants.items())
            if grant.granted or grant.over or grant.ended
        ]

    def load(self, grants: Sequence[StoredGrant]) -> None:
        """Load decisions of an earlier process. Each holds again if its object has not changed."""
        self._loaded = {grant.name: grant for grant in grants}
        self._seen = -1

    def _restore(self, grant: AdvanceGrant, record: StoredGrant) -> None:
        try:
            phase = GrantPhase(record.phase)
        except ValueError:
            return
        grant.phase, grant.reason, grant.start, grant.end = phase, record.reason, record.start, record.end
        grant.held_until = record.held_until
        grant.nodes = {name: GrantedNode(node.amounts, node.copies) for name, node in record.nodes.items()}
        grant.ended = tuple(EndedUse(end.start, end.end, tuple(end.nodes)) for end in record.ended)
        if grant.granted:
            self._recount(grant)
            self.redraw(grant)

    # -- lost nodes --------------------------------------------------------------------------------------------

    def _is_gone(self, node: str) -> bool:
        return self._state.nodes.row(node) == NO_ROW

    def _update_lost_nodes(self, grant: AdvanceGrant) -> None:
        """Update the nodes that no longer exist, and those that close for maintenance and that no pod uses."""
        closed = self._closed_nodes(grant)
        lost_nodes = [
            name
            for name in sorted(grant.nodes)
            if self._is_gone(name) or (name in closed and name not in grant.used)
        ]
        if grant.closed != closed:
            grant.closed = closed
            self.version += 1
        if grant.lost != tuple(lost_nodes):
            grant.lost = tuple(lost_nodes)
            grant.asked_at = ()
            self.redraw(grant)
            self.version += 1

    def _closed_nodes(self, grant: AdvanceGrant) -> dict[str, str]:
        """Return the granted nodes that close for maintenance before the end, each with the cause."""
        maintenance = self._state.nodes.maintenance
        if not maintenance.active:
            return {}
        begin = max(grant.start, int(self._now))
        rows = {name: self._state.nodes.row(name) for name in sorted(grant.nodes)}
        causes = (
            (name, maintenance.closed_by([row], begin, grant.end)) for name, row in rows.items() if row != NO_ROW
        )
        return {name: cause for name, cause in causes if cause}

    # -- granting ----------------------------------------------------------------------------------------------

    def ask(
        self,
        future: FutureMatrix,
        accounts: AccountFuture,
        parts_of: Ask,
        others: Sequence[tuple[str, Window]],
        moment: tuple[int, ...],
    ) -> AdvanceGrant | None:
        """Try to grant pending reservations, and to replace lost nodes; return the first that gets room, else None.

        One at a time: the next search must see this window. `others` are the windows of waiting units. A
        reservation is tried once for each `moment` (cluster version).
        """
        for grant in sorted(self.grants.values(), key=lambda each: (each.spec.start, each.name)):
            short = grant.granted and grant.lost and grant.spec.replace is not Replace.NONE
            early = grant.phase is GrantPhase.WAITING and grant.spec.flexible_start and not short
            if not (grant.phase is GrantPhase.PENDING or short or early) or grant.asked_at == moment:
                continue
            if grant.spec.problem:
                continue
            grant.asked_at = moment
            if short:
                changed = self._replace(grant, future, accounts, parts_of)
            elif early:
                changed = self._move_forward(grant, future, accounts, parts_of)
            else:
                changed = self._grant(grant, future, accounts, parts_of, others)
            if changed:
                return grant
        return None

    def _grant(
        self,
        grant: AdvanceGrant,
        future: FutureMatrix,
        accounts: AccountFuture,
        parts_of: Ask,
        others: Sequence[tuple[str, Window]],
    ) -> bool:
        spec, question = grant.spec, self._question(grant, parts_of)
        if isinstance(question, str):
            grant.refusal = GrantRefusal(question)
            return False
        search = RoomSearch(future, accounts, self._state.nodes, question)
        start = max(grant.start, self._now)
        room = search.earliest(start, spec.duration) if spec.flexible_start else search.at(start, grant.end)
        if room is not None and spec.flexible_start and room.end > spec.end:
            room = None
        if room is None:
            if grant.refusal is None or self._now - grant.refreshed_at >= _REFRESH:
                grant.refreshed_at = self._now
                grant.refusal = self._refusal(grant, search, question, start, others)
            return False
        self._store_grant(grant, search, room)
        return True

    def _refusal(
        self,
        grant: AdvanceGrant,
        search: RoomSearch,
        question: RoomQuestion,
        start: int,
        others: Sequence[tuple[str, Window]],
    ) -> GrantRefusal:
        own = [(other.spec.title, other.window) for other in self.grants.values() if other.window is not None]
        return refusal_of(self._state, self._now, grant, search, question, start, (*others, *own))

    def _store_grant(self, grant: AdvanceGrant, search: RoomSearch, room: FoundRoom) -> None:
        names = self._state.nodes.names
        grant.held_until = room.end
        if grant.leaves_at >= FOREVER and (endless := search.at(room.start, FOREVER)) is not None:
            # Its pods can stay after its end, so room that nobody needs later is better.
            room = FoundRoom(room.start, room.end, endless.amounts, endless.copies)
            grant.held_until = FOREVER
        grant.nodes = {
            names[row]: GrantedNode(self._amounts(vector), room.copies[row]) for row, vector in room.amounts.items()
        }
        grant.start, grant.end = room.start, room.end
        grant.phase = GrantPhase.AVAILABLE if room.start <= self._now else GrantPhase.WAITING
        grant.refusal, grant.lost = None, ()
        self._recount(grant)
        self.redraw(grant)
        self.version += 1
        self._invalidate_all_rows()

    def _move_forward(
        self, grant: AdvanceGrant, future: FutureMatrix, accounts: AccountFuture, parts_of: Ask
    ) -> bool:
        """Move a granted reservation with a flexible start to the first earlier room, if there is any."""
        question, occurrence = self._question(grant, parts_of, moves=True), grant.spec.occurrence(int(self._now))
        if isinstance(question, str) or occurrence is None:
            return False
        search = RoomSearch(future, accounts, self._state.nodes, question)
        room = search.earliest(max(occurrence.start, int(self._now)), grant.spec.duration)
        if room is None or room.start >= grant.start:
            return False
        self._store_grant(grant, search, room)
        return True

    def _replace(self, grant: AdvanceGrant, future: FutureMatrix, accounts: AccountFuture, parts_of: Ask) -> bool:
        """Search room elsewhere for the copies on lost nodes."""
        question = self._question(grant, parts_of)
        if isinstance(question, str):
            return False
        copies = sum(grant.nodes[name].copies for name in grant.lost)
        request = reduced(question, copies, {self._state.nodes.row(name) for name in grant.nodes})
        if request is None:
            return False
        room = RoomSearch(future, accounts, self._state.nodes, request).at(max(grant.start, self._now), grant.end)
        if room is None:
            return False
        for name in grant.lost:
            del grant.nodes[name]
        for row, vector in room.amounts.items():
            name = self._state.nodes.names[row]
            amounts, known = self._amounts(vector), grant.nodes.get(name)
            if known is not None:
                add_amounts(amounts, known.amounts, 1)
            grant.nodes[name] = GrantedNode(amounts, room.copies[row] + (known.copies if known is not None else 0))
        grant.lost = ()
        self._recount(grant)
        self.redraw(grant)
        self.version += 1
        self._invalidate_all_rows()
        return True

    def _question(self, grant: AdvanceGrant, parts_of: Ask, *, moves: bool = False) -> RoomQuestion | str:
        """Return the request, or why it has none. One that `moves` can use the room that it has now."""
        spec = grant.spec
        charge_path = self._charge_path(spec)
        if charge_path is not None and charge_path.queue is None and spec.queue != DEFAULT_QUEUE:
            return f"queue {spec.queue}, to which it is charged, does not exist"
        shared = tuple(
            other.window
            for other in self.grants.values()
            if other.window is not None and (moves if other is grant else other.spec.overlap or spec.overlap)
        )
        standing = tuple(self.windows())
        if spec.nodes is not None:
            nodes = whole_nodes(self._state, spec)
            if isinstance(nodes, str):
                return nodes
            return RoomQuestion((), nodes, charge_path, shared, standing, spec.ignore_running)
        parts = parts_of(spec)
        if isinstance(parts, str):
            return parts
        return RoomQuestion(parts, None, charge_path, shared, standing, spec.ignore_running)
