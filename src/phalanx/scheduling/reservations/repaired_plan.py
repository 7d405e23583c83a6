"""Repair of reserved windows in the order of rank, after changes of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.model.promise_records import Slip, SlipCause
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.idle_copies import IdleCopies
from phalanx.scheduling.reservations.pod_ends import overrun
from phalanx.scheduling.reservations.promised_starts import PromisedStarts
from phalanx.scheduling.reservations.reservation import NOT_SEARCHED, Reservation
from phalanx.scheduling.reservations.slip_causes import cause_on
from phalanx.scheduling.reservations.standing_plan import StandingPlan
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import AmountShare, Part, Window, mask_at
from phalanx.scheduling.reservations.window_search import FoundWindow, earliest_window, missing_copies

#: Number of slips that a reservation stores.
_REMEMBERED = 8
#: A due unit without a turn for this many seconds gets a new window from now on.
_LATE_TURN = 30
#: Room of a start that an overdue pod delays is reserved from the promised time on, for this many seconds: kubelets
#: and grace periods are late by less, and a pod that never leaves must not keep the other nodes idle.
_LONGEST_HOLD = 360

Moment = tuple[int, int, int, int]
"""Version of free room, of the ends of pods, of the labels, taints and closings of nodes, and of their amounts."""


class LostWindow(msgspec.Struct, eq=False):
    """Reservation that has lost its window. `beside` is its earliest window beside those of all other reservations;
    None if it is unknown."""

    reservation: Reservation
    cause: SlipCause
    by: str
    beside: Window | None = None


class RepairedPlan(StandingPlan):
    """Windows that are repaired in the order of rank: by priority, then by the age of the promise.

    A unit that loses its window keeps its rank. It gets a window beside all others if that is not later. Otherwise
    windows of lower rank are no obstacle, and move behind it by its delay (cascade). So a delay that a unit did not
    cause never lets a younger unit of the same priority start before it.
    """

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        super().__init__(state, settings)
        # Number that grows with every change of the stored state, and the changes that let no other unit start.
        self.version = self._silent_changes = 0
        self.starts = PromisedStarts()
        self._compressed_at: Moment = (-1, -1, -1, -1)
        # Cause and name of what has used the reserved room of a unit.
        self._displacers: dict[UnitKey, tuple[SlipCause, str]] = {}
        # int64[R, N]: allocatable amounts at the last cycle, and the rows that have shrunk since.
        self._allocatable = np.zeros((0, 0), dtype=np.int64)
        self._shrunk: set[int] = set()
        self._amounts_version = 0
        self._offers = -1
        # Rows with a pod whose end has changed since the last cycle, and the version of ends then.
        self._retimed: set[int] = set()
        self._ends_version = 0
        self._idle = IdleCopies(state.nodes)
        self._relabelled = -1

    def all(self) -> list[Reservation]:
        """Return the reservations in the order of rank: by priority, then by age."""
        return sorted(
            self._reservations.values(), key=lambda reservation: (-reservation.priority, reservation.made)
        )

    def _moment(self) -> Moment:
        """Return a version that changes whenever windows could move forward."""
        state = self._state
        ends = self._future.pod_ends.follow()
        return state.capacity_version, ends, state.nodes.relabelled.end, self._amounts_version

    @property
    def _nodes_current(self) -> bool:
        """Whether the plan includes all changes of labels, taints and closings of nodes."""
        return self._relabelled == self._state.nodes.relabelled.end

    # -- changes of nodes --------------------------------------------------------------------------------------

    def _follow_nodes(self, parts_now: Callable[[Reservation], tuple[Part, ...]]) -> None:
        """Update the usable rows of all requests; record rows that have shrunk or whose pods have other ends."""
        for reservation in self._reservations.values():
            parts = parts_now(reservation)
            if parts is not reservation.parts:
                reservation.window = reservation.window.with_classes(
                    {old.pod_class: new.pod_class for old, new in zip(reservation.parts, parts, strict=True)}
                )
                reservation.parts, reservation.lacks = parts, NOT_SEARCHED
                self._compressed_at = (-1, -1, -1, -1)
        self._relabelled = self._state.nodes.relabelled.end
        self._ends_version = self._future.pod_ends.follow()
        self._retimed = self._future.pod_ends.pop_changed()
        self._shrunk = set()
        if self._offers != self._state.nodes.offers:
            self._offers = self._state.nodes.offers
            self._follow_amounts()

    def _follow_amounts(self) -> None:
        """Record the rows that have shrunk."""
        allocatable, former = self._state.nodes.allocatable, self._allocatable
        columns, width = (min(sizes) for sizes in zip(allocatable.shape, former.shape, strict=True))
        less = (allocatable[:columns, :width] < former[:columns, :width]).any(axis=0)
        self._shrunk = set(np.flatnonzero(less).tolist())
        if self._shrunk or allocatable.shape != former.shape or not np.array_equal(allocatable, former):
            self._allocatable = allocatable.copy()
            self._amounts_version += 1

    # -- repair ------------------------------------------------------------------------------------------------

    def _repair(self) -> None:
        """Find new windows for reservations that have lost their room."""
        future = self._future
        for reservation in self._reservations.values():
            for part in reservation.parts:
                for column in part.pod_class.columns.tolist():
                    future.free(column)
        lost: list[LostWindow] = []
        overbooked = future.overbooked()
        for reservation in reversed(self.all()):
            loss = self._loss(reservation, overbooked)
            if loss is None:
                continue
            lost.append(loss)
            self._take_off(reservation.window)
            overbooked = future.overbooked()
        self._displacers.clear()
        if lost:
            self._settle(lost[::-1])

    def _loss(self, reservation: Reservation, overbooked: BoolArray) -> LostWindow | None:
        """Return why a reservation has lost its window; None if it has not."""
        window = reservation.window
        if closed := self._closed_rows(reservation):
            dead = [row for row in closed if not self._state.nodes.alive[row]]
            cause = SlipCause.NODE_LOST if dead else SlipCause.NODE_CLOSED
            row = (dead or closed)[0]
            return LostWindow(reservation, cause, f"node {name}" if (name := self._state.nodes.names[row]) else "")
        rows = window.rows
        if not np.count_nonzero(overbooked):
            rows = rows[rows.searchsorted(len(overbooked)) :]
        else:
            rows = rows[~mask_at(~overbooked, rows)]
        if len(rows) and self._future.overbooks(window, rows):
            return LostWindow(reservation, *self._cause(reservation, rows.tolist()))
        if self._accounts is not None and (account := self._accounts.overdrawn(window)) is not None:
            return LostWindow(reservation, SlipCause.QUOTA_CHANGED, account.label)
        if window.start + _LATE_TURN < self._now:
            return LostWindow(reservation, SlipCause.UNKNOWN, "")
        return None

    def _closed_rows(self, reservation: Reservation) -> list[int]:
        """Return the rows of the window that are gone or closed to the unit, or outside of its topology domain."""
        closed: list[int] = []
        alive = self._state.nodes.alive
        usable: dict[int, list[Part]] = {}
        for part in reservation.parts:
            usable.setdefault(part.pod_class.number, []).append(part)
        for share in reservation.window.shares:
            parts = usable.get(share.pod_class.number, [])
            if not parts:
                continue
            open_rows = alive[share.rows] & mask_at(parts[0].rows, share.rows)
            closed += share.rows[~open_rows].tolist()
        domains = {id(part.domains): part.domains for part in reservation.parts}
        common = next(iter(domains.values())) if len(domains) == 1 else None
        if common is not None and not closed and len(reservation.window.rows):
            numbers = common[reservation.window.rows]
            closed += reservation.window.rows[(numbers == 0) | (numbers != numbers[0])].tolist()
        return closed

    def _cause(self, reservation: Reservation, rows: Sequence[int]) -> tuple[SlipCause, str]:
        """Return the cause of a lost window, and the pod, unit or node that took its room."""
        known = self._displacers.pop(reservation.key, None)
        if known is not None:
            return known
        delay = self.settings.start_delay
        return cause_on(self._state, rows, reservation, self._now, delay, self._shrunk, self._retimed)

    def _settle(self, lost: list[LostWindow]) -> None:
        """Find windows for reservations that have none, in the order of rank."""
        late: dict[UnitKey, LostWindow] = {}
        released: list[Window] = []
        for loss in lost:
            reservation = loss.reservation
            released.append(reservation.window)
            loss.beside = self._search(reservation.parts, reservation.duration)
            if loss.beside is not None and loss.beside.start <= max(reservation.start, self._now):
                self._move(loss, loss.beside)
            else:
                late[reservation.key] = loss
        if late:
            order = self.all()
            first = next(place for place, each in enumerate(order) if each.key in late)
            rest = order[first:]
            for each in rest:
                if each.key not in late:
                    self._take_off(each.window)
            self._lift_holds(rest)
            released += self._cascade(rest, late, (SlipCause.UNKNOWN, ""))
        self._open(released)

    def _cascade(
        self, rest: list[Reservation], late: dict[UnitKey, LostWindow], cause: tuple[SlipCause, str]
    ) -> list[Window]:
        """Reserve windows in the order of rank, none of which is reserved now; return the released windows.

        A window that still fits stays. One that does not has the cause of the last one that moved before it; at
        first this is `cause`.
        """
        released: list[Window] = []
        for reservation in rest:
            loss = late.get(reservation.key)
            if loss is None:
                if self._put_back(reservation.window):
                    self._hold(reservation)
                    continue
                loss = LostWindow(reservation, *cause)
                released.append(reservation.window)
            beside, before = loss.beside, loss.beside.start if loss.beside is not None else FOREVER
            window = self._search(reservation.parts, reservation.duration, before)
            if window is None and beside is not None:
                if self._put_back(beside):
                    self._take_off(beside)
                    window = beside
                else:
                    window = self._search(reservation.parts, reservation.duration)
            former = reservation.window
            shifted, moved = self._shift_behind(loss, window)
            released += moved
            self._move(loss, shifted or window)
            if moved:
                released.append(former)
            cause = loss.cause, loss.by
        return released

    def _shift_behind(self, loss: LostWindow, window: Window | None) -> tuple[Window | None, list[Window]]:
        """Return an earlier window for a late unit in front of units that were planned behind it, and the released
        windows of these; (None, []) if there is none.

        A backfilled unit that is late by seconds would otherwise start after the unit before whose start it was to
        end. The units behind it move by at most its delay, those of higher priority by at most the start delay.
        """
        reservation, former = loss.reservation, loss.reservation.window
        bound = window.start if window is not None else FOREVER
        tolerance = max(self.settings.start_delay, 1)
        if loss.cause is SlipCause.DISPLACED or bound - max(former.start, self._now) <= tolerance:
            return None, []
        standing = {id(each) for each in self._future.windows}
        behind = [each for each in self.all() if each.start > former.start and id(each.window) in standing]
        # In the order of starts, a shift of all by the delay always fits: running pods only leave.
        behind.sort(key=lambda each: each.start)
        if not behind:
            return None, []
        for each in behind:
            self._take_off(each.window)
        earlier = self._search(reservation.parts, reservation.duration, bound)
        places: list[tuple[Reservation, Window]] = []
        if earlier is not None:
            self._put_on(earlier)
            delay = earlier.start - former.start
            for each in behind:
                most = delay if each.priority <= reservation.priority else min(delay, tolerance)
                place: Window | None = each.window
                if not self._put_back(each.window):
                    place = self._search(each.parts, each.duration, each.start + most + 1)
                    if place is None:
                        break
                    self._put_on(place)
                assert place is not None
                places.append((each, place))
            self._take_off(earlier)
        if len(places) < len(behind):
            for _, place in places:
                self._take_off(place)
            for each in behind:
                self._put_on(each.window)
            return None, []
        released: list[Window] = []
        for each, place in places:
            if place is each.window:
                continue
            if place.start > each.start:
                self._note(each, place.start, loss.cause, loss.by)
            released.append(each.window)
            each.window, each.lacks = place, NOT_SEARCHED
        return earlier, released

    def _put_back(self, window: Window) -> bool:
        """Reserve a window again if it fits; return whether it does."""
        self._put_on(window)
        self._catch_up()
        if not self._future.overbooks(window, window.rows) and (
            self._accounts is None or self._accounts.overdrawn(window) is None
        ):
            return True
        self._take_off(window)
        return False

    def _move(self, loss: LostWindow, window: Window | None) -> None:
        """Reserve the new window of a reservation, or end its promise without one. The caller opens the old one."""
        reservation = loss.reservation
        if (hold := self._holds.pop(reservation.key, None)) is not None:
            self._take_off(hold)
        if window is None:
            self._note(reservation, 0, loss.cause, loss.by)
            del self._reservations[reservation.key]
            self.starts.lose(reservation)
            return
        if window.start > reservation.start:
            self._note(reservation, window.start, loss.cause, loss.by)
        self.version += 1
        reservation.window = window
        reservation.lacks = NOT_SEARCHED
        self._put_on(window)
        if loss.cause is SlipCause.OVERRUN:
            self._hold(reservation)

    def _hold(self, reservation: Reservation, *, due: bool = False) -> None:
        """Reserve the free room of a start that overdue pods delay: these can leave at any time.

        Otherwise units that end before the expected start would delay the late unit once more. With `due`, the room
        is reserved although no pod is overdue.
        """
        former = self._holds.pop(reservation.key, None)
        if former is not None:
            self._take_off(former)
        if reservation.start <= self._now or not (due or self._is_overrun(reservation)):
            return
        self._catch_up()
        rows = reservation.window.rows
        last, _ = self._future.line.slots(reservation.start, reservation.start)
        amounts = np.zeros((len(self._state.space), len(rows)), dtype=np.int64)
        for share in reservation.window.kept:
            places = np.searchsorted(rows, share.rows)
            for column in share.columns:
                amounts[column, places] += share.kept(column)
        for column in np.flatnonzero(amounts.any(axis=1)).tolist():
            free = self._future.free(column)[: max(last, 1), rows].min(axis=0)
            amounts[column] = np.minimum(amounts[column], free).clip(0)
        hold = Window(self._now, reservation.start, (), (), (AmountShare(rows, amounts),))
        self._holds[reservation.key] = hold
        self._put_on(hold)

    def _is_overrun(self, reservation: Reservation) -> bool:
        """Return whether a pod delays the start that should have left a short time ago."""
        if not reservation.slips or reservation.slips[-1].cause is not SlipCause.OVERRUN:
            return False
        late = max(
            (
                overrun(record, self._now)
                for row in reservation.window.rows.tolist()
                for record in self._state.pods.on(row)
            ),
            default=-1,
        )
        return 0 <= late < _LONGEST_HOLD

    def _hold_again(self) -> None:
        """Hold the room that has become free since for late starts, until compression has moved these."""
        for reservation in self.all() if self._holds else ():
            if reservation.key in self._holds:
                self._hold(reservation, due=True)

    def _lift_holds(self, reservations: list[Reservation]) -> None:
        """Release the held room of reservations: a search for a unit of higher rank does not see it."""
        for reservation in reservations:
            if (hold := self._holds.pop(reservation.key, None)) is not None:
                self._take_off(hold)

    def _end_holds(self) -> None:
        """Release the held room of starts that no pod delays any more."""
        for key in list(self._holds):
            reservation = self._reservations.get(key)
            if reservation is None or reservation.start <= self._now or not self._is_overrun(reservation):
                self._take_off(self._holds.pop(key))

    def _note(self, reservation: Reservation, start: int, cause: SlipCause, by: str) -> None:
        self.version += 1
        slip = Slip(self._now, reservation.start, start, cause, by)
        reservation.slips = (*reservation.slips, slip)[-_REMEMBERED:]

    # -- a new reservation -------------------------------------------------------------------------------------

    def _search_by_rank(self, parts: Sequence[Part], duration: int, priority: int, name: str) -> FoundWindow:
        """Return the earliest reserved window of a new reservation; windows of lower priority move behind it."""
        found = self._find(parts, duration, FOREVER)
        lower = [each for each in self.all() if each.priority < priority]
        if not lower:
            if found.window is not None:
                self._put_on(found.window)
            return found
        beside = found.window
        for each in lower:
            self._take_off(each.window)
        window = self._search(parts, duration, beside.start if beside is not None else FOREVER) or beside
        if window is None:
            for each in lower:
                self._put_on(each.window)
            return FoundWindow(None)
        self._put_on(window)
        self._open(self._cascade(lower, {}, (SlipCause.DISPLACED, name)))
        return FoundWindow(window)

    # -- compression -------------------------------------------------------------------------------------------

    def _compress(self, out_of_time: Callable[[], bool]) -> None:
        """Move windows forward into released room in the order of rank; never back."""
        order, stopped = self.all(), False
        self._lift_holds(order)
        for place, reservation in enumerate(order):
            if reservation.key not in self._reservations:
                continue
            if not stopped and reservation.start > self._now and self._may_move(reservation):
                grown = self._grown(reservation)
                if (lacking := self._missing(reservation)) is not None:
                    reservation.lacks = (self._future.drawn, grown + lacking)
                    self._hold(reservation)
                    stopped = out_of_time()
                    continue
                self._take_off(reservation.window)
                result = self._find(reservation.parts, reservation.duration, reservation.start)
                former, earlier, window = reservation.window, result.window, None
                if (earlier is None or earlier.start > self._now) and self._has_idle_room(reservation):
                    window = self._start_now(reservation, order[place + 1 :])
                if window is None and earlier is not None:
                    window = earlier
                    self._put_on(window)
                if window is None:
                    self._put_on(former)
                else:
                    reservation.window = window
                    self.version += 1
                    self._open([former])
                reservation.lacks = (self._future.drawn, grown + result.lacking)
                stopped = out_of_time()
            self._hold(reservation)
        if not stopped:
            self._compressed_at = self._moment()

    def _missing(self, reservation: Reservation) -> int | None:
        """Return the number of copies that the unit lacks to start earlier; None if a search is needed."""
        if len(reservation.parts) > 1 or reservation.promised <= self._now:
            return None
        return missing_copies(self._future, reservation.parts[0], reservation.duration, reservation.window)

    def _start_now(self, reservation: Reservation, rest: list[Reservation]) -> Window | None:
        """Reserve a window from now on for a late unit, where only windows of lower rank are in its way.

        They move behind it. Return None if it cannot start now.
        """
        standing = [each for each in rest if each.key in self._reservations]
        for each in standing:
            self._take_off(each.window)
        window = self._search(reservation.parts, reservation.duration, self._now + 1)
        if window is None:
            for each in standing:
                self._put_on(each.window)
            return None
        self._put_on(window)
        slip = reservation.slips[-1] if reservation.slips else None
        cause = (slip.cause, slip.by) if slip is not None else (SlipCause.UNKNOWN, "")
        self._open(self._cascade(standing, {}, cause))
        return window

    def _has_idle_room(self, reservation: Reservation) -> bool:
        """Return whether the promised time has come and each part has idle amounts, reserved or not."""
        return reservation.promised <= self._now and self._fits_idle_amounts(reservation)

    def _fits_idle_amounts(self, reservation: Reservation) -> bool:
        return all(self._idle.on(part.pod_class, part.rows) >= part.count for part in reservation.parts)

    def _grown(self, reservation: Reservation) -> int:
        return sum(self._future.grown(part.pod_class) for part in reservation.parts)

    def _may_move(self, reservation: Reservation) -> bool:
        """Return whether the window could move forward: room has grown enough since the last search, and each part
        has room before the start."""
        self._catch_up()
        drawn, needed = reservation.lacks
        # A late unit can start when windows of lower rank move, without any growth of the room.
        in_time = reservation.promised > self._now
        if in_time and drawn == self._future.drawn and self._grown(reservation) < needed:
            return False
        before, _ = self._future.line.slots(reservation.start, reservation.start)
        if self._has_idle_room(reservation):
            return True
        open_slots = np.ones(before, dtype=np.bool_)
        for part in reservation.parts:
            open_slots &= self._future.room(part.pod_class, part.rows)[:before] >= part.count
        return bool(open_slots.any())

    def _search(self, parts: Sequence[Part], duration: int, before: int = FOREVER) -> Window | None:
        return self._find(parts, duration, before).window

    def _find(self, parts: Sequence[Part], duration: int, before: int) -> FoundWindow:
        self._catch_up()
        assert self._accounts is not None
        return earliest_window(self._future, parts, duration, self._accounts, before)

    # -- the end of a reservation ------------------------------------------------------------------------------

    def _end_promise(self, reservation: Reservation, cause: SlipCause, by: str) -> None:
        """Give up a promise, and release its window to other units in the same cycle."""
        self._note(reservation, 0, cause, by)
        self._drop(reservation)
        self.starts.lose(reservation)

    @property
    def opening_changes(self) -> int:
        """Number that grows with every change of the stored state that can let another unit start."""
        return self.version - self._silent_changes

    def note_silent_change(self) -> None:
        """Record that the last change of the stored state lets no other unit start."""
        self._silent_changes += 1

    def _drop(self, reservation: Reservation, *, opens: bool = True) -> None:
        """Remove a reservation. Without `opens`, other units use its room from now on."""
        del self._reservations[reservation.key]
        self.version += 1
        self._displacers.pop(reservation.key, None)
        lifted = self._lifted.pop(reservation.key, None) is not None
        if not lifted and not self._stale:
            self._take_off(reservation.window)
        hold = self._holds.pop(reservation.key, None)
        if hold is not None and not lifted and not self._stale:
            self._take_off(hold)
            opens = True
        if opens:
            self._open([reservation.window])
        else:
            self.note_silent_change()
            self._look_again([reservation.window])
