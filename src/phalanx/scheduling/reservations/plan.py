"""Plan of start reservations: carried over between cycles, repaired after changes of the cluster, and
compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.promise_records import SlipCause, StoredLoss, StoredReservation, ToldStart
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.advance import Ask
from phalanx.scheduling.reservations.failed_searches import (
    FailedSearch,
    FailedStartSearches,
    MissingGrowth,
    missing_growth,
)
from phalanx.scheduling.reservations.impossible import why_never
from phalanx.scheduling.reservations.repaired_plan import LostWindow, RepairedPlan
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.slip_causes import cause_since
from phalanx.scheduling.reservations.telling import basis, start_sentence
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, Window, request_of

#: On a grid, pods that fit beside the windows are retried after this many seconds; until then a pod counts as that
#: much longer.
_SLACK = 60
#: Seconds between two such turns, unless the cluster changes before.
_RETRY = 30


class ReservationPlan(RepairedPlan):
    """Start reservations of waiting units.

    A plan that is rebuilt at every event breaks promises without delays in the cluster: a unit of higher rank that
    finds a better hole displaces others. So the plan is carried over. An event replaces the windows that it breaks,
    in order of rank, and each slip has a named cause. Then every window can move forward, in order of rank, but
    never back.
    """

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        super().__init__(state, settings)
        self._loaded: list[StoredReservation] = []
        self._loaded_losses: list[StoredLoss] = []
        # Loaded promises that are restored, in their stored form.
        self.restored: dict[UnitKey, StoredReservation] = {}
        self._looked_at = 0
        # Time of the last cycle with an earlier time.
        self._previous = 0
        self._advance_version = 0
        self._failed = FailedStartSearches(self._fails_again)
        # Unit of each gang that has requested a start.
        self._unit_of: dict[GangKey, UnitKey] = {}

    # -- queries ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Time of the last update."""
        return self._now

    def __len__(self) -> int:
        return len(self._reservations)

    def get(self, key: UnitKey) -> Reservation | None:
        return self._reservations.get(key)

    def unit_of(self, of: GangKey | str) -> UnitKey | None:
        """Return the unit of a gang that has requested a start (else None), or of a pod (its uid)."""
        return self._unit_of.get(of) if isinstance(of, GangKey) else of

    def promise(self, of: GangKey | str) -> str:
        """Return the published text about the start of a gang, or of a pod on its own (its uid); "" for none."""
        key = self.unit_of(of)
        if key is None:
            return ""
        reservation = self._reservations.get(key)
        if reservation is not None:
            words = reservation.words = reservation.words or self._basis_of(reservation)
            return start_sentence(reservation.told, words, reservation.slips, self._now, reservation.spares)
        return self.starts.without_promise(key, self._failed.get(key))

    def is_promised(self, gang: GangKey) -> bool:
        """Return whether a start is reserved for the unit of a gang."""
        return self._unit_of.get(gang) in self._reservations

    def _basis_of(self, reservation: Reservation) -> ToldStart:
        self._catch_up()
        delay = self.settings.start_delay
        rests = basis(self._state, self._future, reservation.parts, reservation.window, self._now, delay)
        return ToldStart(self._now, *rests, *self.starts.expected(reservation, self._now))

    def note_forecast(self, key: UnitKey, start: int, queue: str, pods: int) -> bool:
        """Store the planned start of a unit without promise; return whether its published forecast changes."""
        forecasts = self.starts.forecasts
        former = forecasts.told(key)
        forecasts.note(key, self._now, start, queue, pods)
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        return forecasts.told(key) != former

    def forecast_started(self, key: UnitKey) -> None:
        """Record the start of a unit, with or without a promise."""
        self.starts.forecasts.started(key, self._now)
        self.version += 1
        self.note_silent_change()

    def count(self, queue: str, priority: int) -> int:
        """Return the number of reservations of a queue with at least this priority."""
        count = 0
        for reservation in self._reservations.values():
            count += reservation.queue == queue and reservation.priority >= priority
        return count

    @property
    def next_due(self) -> int | None:
        """The next time at which a cycle is due for a reservation: its start, a retry, or a change of an advance
        reservation."""
        starts = [max(reservation.start, reservation.retry_at) for reservation in self._reservations.values()]
        if self.starts.losses():
            starts += [until for until in self.starts.rests().values() if until > self._now]
        change = self.advance.next_change
        return min([*starts, change] if change is not None else starts, default=None)

    @property
    def outdated(self) -> bool:
        """Whether the end of a pod, or a node, has changed since the plan was updated."""
        if self._failed.is_outdated(self._search_moment()):
            return True
        if self.advance.outdated:
            return True
        return self.active and not (self._nodes_current and self._future.pod_ends.follow() == self._ends_version)

    @property
    def disturbed(self) -> bool:
        """Whether a placement has used reserved room since: the next cycle then moves the windows."""
        if not self._reservations:
            return False
        if not self._stale and not self._has_limited_accounts():
            # Otherwise the confirmation of a binding would change an end that the plan does not know yet.
            self._future.read_ends()
            return bool(self._displacers)
        self._catch_up()
        return bool(self._displacers) or (self._accounts is not None and self._accounts.any_overdrawn())

    def configure(self, settings: ReservationSettings) -> None:
        """Apply new settings; promises stay."""
        if settings.start_delay != self.settings.start_delay:
            self.settings, former = settings, self._future
            self._future = self._new_future()
            self._future.pod_ends.version = former.pod_ends.version + 1
            self._holds.clear()
            self._compressed_at = (-1, -1, -1, -1)
        self.settings = settings

    # -- a cycle ------------------------------------------------------------------------------------------------

    def begin_cycle(
        self,
        now: int,
        quotas: QuotaCheck,
        waits: Callable[[UnitKey], bool],
        out_of_time: Callable[[], bool] = lambda: False,
        ask: Ask = lambda spec: "its request cannot be resolved",
        obstacle: Callable[[UnitKey], str] = lambda key: "",
        parts_now: Callable[[Reservation], tuple[Part, ...]] = lambda reservation: reservation.parts,
    ) -> list[UnitKey]:
        """Update the plan to `now`; return the units that need a turn: they are due, or their start has changed.

        `waits` returns whether a unit still waits, `obstacle` why it could not start even with room ("" if it
        could). `ask` resolves the request of an advance reservation; `parts_now` returns the request of a unit with
        the nodes that it can use now.
        """
        former, self._now = self._now, now
        if former < now:
            self._previous = former
        self._quotas, self._accounts, self._stale = quotas, None, True
        self._lifted.clear()
        self._planned_end = FOREVER
        self.version += self.starts.forget_gone(waits)
        rested = [key for key, until in self.starts.rests().items() if former < until <= now]
        self._follow_nodes(parts_now)
        if not self.active:
            return rested + self._failed.pop_outdated(self._search_moment(), waits)
        released = self.advance.advance(now)
        gone = [reservation for key, reservation in self._reservations.items() if not waits(key)]
        obstructed = any(map(obstacle, self._reservations))
        intact = not (released or gone or obstructed) and self._are_windows_intact()
        if not intact:
            self._catch_up()
        if released:
            self._open(released)
        for reservation in gone:
            self._drop(reservation)
        if not intact:
            self.end_obstructed(obstacle)
        again = rested + self._failed.pop_outdated(self._search_moment(), waits)
        self._unit_of = {
            gang: key for gang, key in self._unit_of.items() if key in self._reservations or waits(key)
        }
        if not intact:
            self._hold_again()
            self._repair()
            self._grant(ask)
            if self._compressed_at != self._moment():
                self._compress(out_of_time)
            self._end_holds()
            self._checked_at = self._state_of_nodes()
        # The time decides which pods fit beside the windows.
        if self._future.line.exact or now - self._looked_at >= _SLACK:
            self._looked_at = now
            self._look_again(
                [*(reservation.window for reservation in self._reservations.values()), *self.advance.windows()]
            )
        lost = self.starts.pop_untold()
        turns = [
            (reservation.key, self._is_due(reservation), self._refresh_told(reservation))
            for reservation in self.all()
        ]
        return lost + again + [key for key, due, changed in turns if due or changed]

    def end_obstructed(self, obstacle: Callable[[UnitKey], str]) -> None:
        """End the promises of units with an obstacle other than room: `obstacle` names it, "" for none."""
        for reservation in list(self._reservations.values()):
            if why := obstacle(reservation.key):
                self._end_promise(reservation, SlipCause.CANNOT_START, why)

    def _are_windows_intact(self) -> bool:
        """Return whether only the time has passed since the last check of the windows.

        Then no window is broken or can move. The future of nodes is computed at its first query: most units that
        arrive find no idle amounts.
        """
        if self._checked_at != self._state_of_nodes() or self._compressed_at != self._moment():
            return False
        if self._displacers or self._holds or self.advance.wanted or self._state.nodes.maintenance.active:
            return False
        if any(reservation.promised <= self._now for reservation in self._reservations.values()):
            return False
        if min(self._future.pod_ends.moments, default=FOREVER) <= self._now:
            return False  # overdue pods are expected to end later
        return not self._has_limited_accounts()

    def _search_moment(self) -> tuple[int, ...]:
        """Return the part of the moment with which starts are searched again for all units without a start.

        With a depth, room that has grown lets the first units of each queue search again (`hopeless`), without one
        all units.
        """
        return self._moment()[1:] if self.settings.depth else self._moment()

    def _grant(self, ask: Ask) -> None:
        """Grant pending advance reservations one after the other, each beside the earlier ones."""
        while self.advance.wanted:
            self._catch_up()
            assert self._accounts is not None
            waiting = [
                (f"the promised start of {reservation.name}", reservation.window) for reservation in self.all()
            ]
            granted = self.advance.ask(self._future, self._accounts, ask, waiting, self._moment())
            if granted is None or granted.window is None:
                break
            self._stale = True
            self._look_again([granted.window])
        self.version += self.advance.version != self._advance_version
        self._advance_version = self.advance.version

    def _is_due(self, reservation: Reservation) -> bool:
        """Return whether the reservation's time has come.

        After a failed turn it is due once the cluster changes, or after a while.
        """
        moment = self._moment()
        if reservation.start > self._now:
            return False
        if reservation.retry_at > self._now and reservation.attempted_at == moment:
            return False
        # Set the retry time in any case, so that the next turn is not due at once.
        reservation.retry_at, reservation.attempted_at = self._now + _RETRY, moment
        return True

    def _refresh_told(self, reservation: Reservation) -> bool:
        """Update the published start if it has changed enough; return whether it has."""
        if not self.starts.has_news(reservation, self._now):
            return False
        reservation.told, reservation.words = reservation.start, None
        self.version += 1
        return True

    # -- a restart ----------------------------------------------------------------------------------------------

    def load(self, promises: Sequence[StoredReservation], losses: Sequence[StoredLoss] = ()) -> None:
        """Load the promises of an earlier process and their losses. The next cycle restores those of units that
        still wait."""
        self._loaded, self._loaded_losses = list(promises), list(losses)

    def restore_loaded(
        self, ask: Callable[[StoredReservation], Reservation | None], quotas: QuotaCheck, now: int
    ) -> None:
        """Restore loaded promises in their old order.

        `ask` returns the reservation of a unit that still waits and is the one that got the promise. Its window has
        shares if its rows are unchanged.
        """
        loaded, self._loaded = self._loaded, []
        lost: list[LostWindow] = []
        self._quotas, self._now = quotas, now
        for promise in loaded:
            reservation = ask(promise)
            if reservation is None or reservation.key in self._reservations:
                continue
            if not isinstance(reservation.key, str):
                self._unit_of.update(dict.fromkeys(reservation.key, reservation.key))
            self._reservations[reservation.key] = reservation
            self.restored[reservation.key] = promise
            if not reservation.window.shares:
                lost.append(LostWindow(reservation, cause_since(self._state, promise), ""))
            elif not self._stale:
                self._put_on(reservation.window)
        if lost:
            self._settle(lost)
        self.version += 1

    def restore_losses(self, is_present: Callable[[StoredLoss], bool]) -> None:
        """Restore the loaded losses of units that still wait and are those that had the promise."""
        losses, self._loaded_losses = self._loaded_losses, []
        for loss in losses:
            if is_present(loss):
                if not isinstance(loss.key, str):
                    self._unit_of.update(dict.fromkeys(loss.key, loss.key))
                self.starts.restore_loss(loss.key, loss.slips)

    @property
    def has_loaded(self) -> bool:
        """Whether loaded promises are to be restored."""
        return bool(self._loaded or self._loaded_losses)

    # -- reserving ------------------------------------------------------------------------------------------------

    def reserve(
        self,
        key: UnitKey,
        name: str,
        queue: str,
        priority: int,
        parts: tuple[Part, ...],
        duration: int,
        quotas: QuotaCheck,
        demand: WaitReason,
    ) -> Reservation | None:
        """Reserve the earliest common window for the parts of a demand; None if there is none within the horizon.

        Windows of lower priority are no obstacle: they move behind it.
        """
        self._quotas = quotas
        self._catch_up()
        duration += self.settings.start_delay if duration else 0
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        found = self._search_by_rank(parts, duration, priority, name)
        window = found.window
        if window is None:
            self._search_failed(key, priority, parts, demand, found.lacking)
            return None
        self._failed.drop(key)
        reservation = Reservation(key, name, queue, priority, parts, duration, window, self._now)
        self.starts.made(reservation)
        alone = not self._reservations
        self._reservations[key] = reservation
        self.version += 1
        self._look_again([window])
        if alone:
            # The window is the earliest one in the present state, so the next cycle need not check it.
            self._checked_at, self._compressed_at = self._state_of_nodes(), self._moment()
        return reservation

    def follow(self, key: UnitKey, queue: str, priority: int) -> None:
        """Give a reservation the present queue and priority of its unit: its rank does not depend on the past."""
        reservation = self._reservations[key]
        if (reservation.queue, reservation.priority) != (queue, priority):
            reservation.queue, reservation.priority = queue, priority
            self._compressed_at = (-1, -1, -1, -1)
            self.version += 1

    def revise(self, key: UnitKey, parts: tuple[Part, ...], duration: int, quotas: QuotaCheck) -> bool:
        """Replace the window if the unit's request has changed; return whether it has."""
        reservation = self._reservations[key]
        duration += self.settings.start_delay if duration else 0
        if duration == reservation.duration and request_of(parts) == request_of(reservation.parts):
            return False
        self._quotas = quotas
        self._catch_up()
        former = reservation.window
        self._take_off(former)
        reservation.parts, reservation.duration = parts, duration
        self._move(LostWindow(reservation, SlipCause.DEMAND_CHANGED, ""), self._search(parts, duration))
        self._open([former])
        return True

    def hopeless(self, key: UnitKey, demand: WaitReason | None = None, priority: int = 0) -> bool:
        """Return whether no start was found for the unit, and nothing has changed since; or it rests.

        Without a `demand` the unit has not changed since its last turn.
        """
        if self.starts.rest_of(key) > self._now:
            return True
        return self._failed.holds(key, self._moment(), (demand, priority) if demand is not None else None)

    def has_start(
        self, key: UnitKey, priority: int, parts: tuple[Part, ...], duration: int, demand: WaitReason
    ) -> bool:
        """Return whether `reserve` would find a window; record that none was found, as `reserve` does."""
        if any(reservation.priority < priority for reservation in self._reservations.values()):
            return True  # only with these windows moved away
        found = self._find(parts, duration + (self.settings.start_delay if duration else 0), FOREVER)
        if found.window is None:
            self._search_failed(key, priority, parts, demand, found.lacking)
        return found.window is not None

    def _search_failed(
        self, key: UnitKey, priority: int, parts: tuple[Part, ...], demand: WaitReason, lacking: int
    ) -> None:
        assert self._quotas is not None
        never = why_never(self._state, self._quotas, parts)
        missing = missing_growth(self._future, parts, lacking, self._usable_rows(), priority)
        self._failed.put(key, FailedSearch(self._moment(), (demand, priority), never, missing))

    def _fails_again(self, missing: MissingGrowth) -> bool:
        """Return whether the nodes have gained too little room since a failed search."""
        if missing.rows != self._usable_rows():
            return False
        # Windows of lower priority move behind the unit, and their room does not count as growth.
        if any(reservation.priority < missing.priority for reservation in self._reservations.values()):
            return False
        self._catch_up()
        return missing.lasts(self._future)

    def question(self, parts: tuple[Part, ...], duration: int) -> Window | None:
        """Return the window in which the parts could start beside all reservations; reserve nothing."""
        return self._search(parts, duration)

    def started(self, key: UnitKey, rows: Sequence[int] = ()) -> None:
        """Release the reservation of a unit whose pods have been placed on `rows`."""
        reservation = self._reservations.get(key)
        if reservation is not None:
            self._push_behind(reservation)
            self.starts.started(reservation, self._now, self._previous)
            self._drop(reservation, opens=not reservation.uses_whole_window(rows, self._now))

    def _push_behind(self, reservation: Reservation) -> None:
        """Name the unit that starts late as the cause for the starts that were planned at its end."""
        if self._now <= reservation.start or not reservation.duration:
            return
        cause = SlipCause.STARTED_LATE, reservation.name
        for each in self._reservations.values():
            if reservation.window.end <= each.start < self._now + reservation.duration:
                self._displacers.setdefault(each.key, cause)

    def failed(self, key: UnitKey, reason: str) -> None:
        """End the promise of a unit whose turn failed at its time: its reserved amounts do not help it.

        After a rest it can get another start.
        """
        reservation = self._reservations.get(key)
        if reservation is None or reservation.start > self._now:
            return
        if key in self._displacers:
            reservation.retry_at = 0  # the next cycle moves the window, or the unit has another turn
            return
        self._end_promise(reservation, SlipCause.NOT_PLACEABLE, reason)

    # -- a turn ----------------------------------------------------------------------------------------------------

    @contextmanager
    def opened_to(self, keys: Iterable[UnitKey]) -> Iterator[None]:
        """Open the windows of these units while the context is active, also within a turn that has lifted
        windows."""
        chosen = [
            each for key in keys if (each := self._reservations.get(key)) is not None and key not in self._lifted
        ]
        if not chosen:
            yield
            return
        self._catch_up()
        for each in chosen:
            self._lift(each)
        self._look_again(each.window for each in chosen)
        try:
            yield
        finally:
            for each in chosen:
                del self._lifted[each.key]
                self._close(each)
            self._look_again(each.window for each in chosen)

    def opens_room(self, key: UnitKey, priority: int) -> bool:
        """Return whether a turn of a unit can open a window that keeps one of its pods from idle amounts."""
        own = self._reservations.get(key)
        for reservation in self._reservations.values():
            if reservation.key != key and reservation.priority >= priority:
                continue
            if own is None:
                return True  # its request is unknown here
            if any(self._idle.on(part.pod_class, reservation.window.rows) for part in own.parts):
                return self._fits_idle_amounts(own)
        return False

    def lift(self, key: UnitKey, priority: int) -> bool:
        """Open the windows of a unit, and of units of lower priority, during its turn.

        Return whether any window was closed.
        """
        own = self._reservations.get(key)
        self._planned_end = own.window.end if own is not None and own.start <= self._now else FOREVER
        chosen = [
            reservation
            for reservation in self._reservations.values()
            if (reservation.key == key or reservation.priority < priority) and reservation.key not in self._lifted
        ]
        if not chosen:
            return False
        self._catch_up()
        for reservation in chosen:
            self._lift(reservation)
        self._look_again(reservation.window for reservation in chosen)
        return True

    def restore(self, placed: UnitKey | None = None, name: str = "", rows: Sequence[int] = ()) -> None:
        """End a turn: reserve the lifted windows again. The `placed` unit has used `rows`."""
        lifted, self._lifted, self._planned_end = self._lifted, {}, FOREVER
        used_rows = set(rows)
        for key, reservation in lifted.items():
            if key == placed:
                continue
            self._close(reservation)
            if used_rows.intersection(reservation.window.rows.tolist()):
                self._displacers[key] = SlipCause.DISPLACED, name
        self._look_again(reservation.window for reservation in lifted.values())
        if placed is not None:
            if placed in lifted:
                self._lifted[placed] = lifted[placed]
            self.started(placed, rows)
