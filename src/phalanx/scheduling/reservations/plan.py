"""Plan of start reservations: carried over between cycles, repaired after changes of the cluster, and
compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.advance import Ask
from phalanx.scheduling.reservations.impossible import Never, why_never
from phalanx.scheduling.reservations.promised_starts import PromisedStarts
from phalanx.scheduling.reservations.reservation import NOT_SEARCHED, Reservation, Slip, SlipCause, ToldStart
from phalanx.scheduling.reservations.slip_causes import cause_on
from phalanx.scheduling.reservations.standing_plan import StandingPlan
from phalanx.scheduling.reservations.stored import StoredGrant, StoredReservation
from phalanx.scheduling.reservations.telling import basis, start_sentence
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, Window
from phalanx.scheduling.reservations.window_search import FoundWindow, earliest_window

#: Number of slips that a reservation stores.
_REMEMBERED = 8
#: A reservation is given up after this many failed turns at its time.
_MOST_FAILURES = 8
#: On a grid, pods that fit beside the windows are retried after this many seconds; until then a pod counts as that
#: much longer.
_SLACK = 60
#: Seconds between two such turns, unless the cluster changes before.
_RETRY = 30


class ReservationPlan(StandingPlan):
    """Start reservations of waiting units.

    A plan that is rebuilt at every event breaks promises without delays in the cluster: a unit of higher rank that
    finds a better hole displaces others. So the plan is carried over. An event replaces the windows that it breaks,
    the newest reservations first, and each slip has a named cause. Then every window can move forward, in order of
    rank, but never back.
    """

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        super().__init__(state, settings)
        self._loaded: list[StoredReservation] = []
        # Loaded promises that are restored, in their stored form.
        self.restored: dict[UnitKey, StoredReservation] = {}
        # Number that grows with every change of the stored state.
        self.version = 0
        self._compressed_at = (-1, -1)
        self._looked_at = 0.0
        self._advance_version = 0
        self._displacers: dict[UnitKey, str] = {}
        # Units without a possible start: the capacity version of the search, and the reason why they can never
        # start (None: a blocking pod has no known end).
        self._hopeless: dict[UnitKey, tuple[int, Never | None]] = {}
        # Unit of each gang that has requested a start.
        self._unit_of: dict[GangKey, UnitKey] = {}
        self.starts = PromisedStarts()

    # -- queries ---------------------------------------------------------------------------------------------

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
            return start_sentence(reservation.told, words, reservation.slips, reservation.spares)
        return self.starts.without_promise(key, self._hopeless.get(key))

    def is_promised(self, gang: GangKey) -> bool:
        """Return whether a start is reserved for the unit of a gang."""
        return self._unit_of.get(gang) in self._reservations

    def _basis_of(self, reservation: Reservation) -> ToldStart:
        self._catch_up()
        delay = self.settings.start_delay
        rests = basis(self._state, self._future, reservation.parts, reservation.window, self._now, delay)
        return ToldStart(int(self._now), *rests, *self.starts.expected(reservation, self._now))

    def note_forecast(self, key: UnitKey, start: int, queue: str, pods: int) -> bool:
        """Store the planned start of a unit without promise; return whether its published forecast changes."""
        forecasts = self.starts.forecasts
        former = forecasts.told(key)
        forecasts.note(key, int(self._now), start, queue, pods)
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        return forecasts.told(key) != former

    def forecast_started(self, key: UnitKey) -> None:
        """Record the start of a unit, with or without a promise."""
        self.starts.forecasts.started(key, int(self._now))
        self.version += 1

    def all(self) -> list[Reservation]:
        """Return the reservations in the order of compression: by priority, then by age."""
        return sorted(
            self._reservations.values(), key=lambda reservation: (-reservation.priority, reservation.made)
        )

    def count(self, queue: str) -> int:
        """Return the number of reservations of a queue."""
        return sum(reservation.queue == queue for reservation in self._reservations.values())

    @property
    def next_due(self) -> float | None:
        """The next time at which a cycle is due for a reservation: its start, a retry, or a change of an advance
        reservation."""
        starts = [max(reservation.start, reservation.retry_at) for reservation in self._reservations.values()]
        change = self.advance.next_change
        return min([*starts, change] if change is not None else starts, default=None)

    @property
    def outdated(self) -> bool:
        """Whether the end of a pod has changed since the plan was updated."""
        return self.advance.outdated or (self.active and not self._future.times_current)

    @property
    def disturbed(self) -> bool:
        """Whether a placement has used reserved room since: the next cycle then moves the windows."""
        if not self._reservations:
            return False
        self._catch_up()
        return bool(self._displacers) or (self._accounts is not None and self._accounts.any_overdrawn())

    def configure(self, settings: ReservationSettings) -> None:
        """Apply new settings; promises stay."""
        if settings.start_delay != self.settings.start_delay:
            self.settings = settings
            self._future = self._new_future()
            self._compressed_at = (-1, -1)
        self.settings = settings

    # -- a cycle ------------------------------------------------------------------------------------------------

    def begin_cycle(
        self,
        now: float,
        quotas: QuotaCheck,
        waits: Callable[[UnitKey], bool],
        out_of_time: Callable[[], bool] = lambda: False,
        ask: Ask = lambda spec: "its request cannot be resolved",
    ) -> list[UnitKey]:
        """Update the plan to `now`; return the units that need a turn: they are due, or their start has changed.

        `waits` returns whether a unit still waits. `ask` resolves the request of an advance reservation.
        """
        self._now, self._quotas, self._accounts, self._stale = now, quotas, None, True
        self._lifted.clear()
        self.starts.forget_gone(waits)
        if not self.active:
            return []
        released = self.advance.advance(now)
        self._catch_up()
        if released:
            self._open(released)
        for key in [key for key in self._reservations if not waits(key)]:
            self._drop(self._reservations[key])
        for key in [key for key in self._hopeless if not waits(key)]:
            del self._hopeless[key]
        self._unit_of = {
            gang: key for gang, key in self._unit_of.items() if key in self._reservations or waits(key)
        }
        self._repair()
        self._grant(ask)
        if self._compressed_at != self._moment():
            self._compress(out_of_time)
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
        return lost + [key for key, due, changed in turns if due or changed]

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

    def recount_users(self) -> None:
        """Update the unused room of advance reservations after placements."""
        for grant in self.advance.recount():
            former = grant.window
            self.advance.redraw(grant)
            if self._stale:
                continue
            if former is not None:
                self._take_off(former)
            if grant.window is not None:
                self._put_on(grant.window)

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

    def _repair(self) -> None:
        """Find new windows for reservations that have lost their room."""
        future = self._future
        for reservation in self._reservations.values():
            for part in reservation.parts:
                for column in part.pod_class.columns.tolist():
                    future.free(column)
        overbooked = future.overbooked()
        broken: list[tuple[Reservation, SlipCause, str]] = []
        for reservation in reversed(self.all()):
            rows = [
                row
                for row in reservation.window.rows.tolist()
                if row >= len(overbooked) or overbooked[row] or not self._state.nodes.alive[row]
            ]
            if rows and future.overbooks(reservation.window, rows):
                broken.append((reservation, *self._cause(reservation, rows)))
            elif (
                self._accounts is not None and (account := self._accounts.overdrawn(reservation.window)) is not None
            ):
                broken.append((reservation, SlipCause.QUOTA_CHANGED, account.label))
            else:
                continue
            self._take_off(reservation.window)
            overbooked = future.overbooked()
        self._displacers.clear()
        for reservation, cause, by in reversed(broken):
            window = self._search(reservation.parts, reservation.duration)
            self._move(reservation, window, cause, by)

    def _cause(self, reservation: Reservation, rows: Sequence[int]) -> tuple[SlipCause, str]:
        """Return the cause of a lost window, and the pod or unit that took its room."""
        by = self._displacers.pop(reservation.key, "")
        if by:
            return SlipCause.DISPLACED, by
        return cause_on(self._state, rows, reservation, self._now, self.settings.start_delay)

    def _compress(self, out_of_time: Callable[[], bool]) -> None:
        """Move windows forward into released room in the order of rank; never back."""
        for reservation in self.all():
            if reservation.start <= self._now or not self._may_move(reservation):
                continue
            grown = self._grown(reservation)
            self._take_off(reservation.window)
            result = self._find(reservation.parts, reservation.duration, reservation.start)
            if result.window is not None:
                self._open([reservation.window])
                reservation.window = result.window
                self.version += 1
            reservation.lacks = (self._future.drawn, grown + result.lacking)
            self._put_on(reservation.window)
            if out_of_time():
                return
        self._compressed_at = self._moment()

    def _grown(self, reservation: Reservation) -> int:
        return sum(self._future.grown(part.pod_class) for part in reservation.parts)

    def _moment(self) -> tuple[int, int]:
        """Return a version that changes whenever windows could move forward."""
        return self._state.capacity_version, self._state.pods.retimed.end

    def _may_move(self, reservation: Reservation) -> bool:
        """Return whether the window could move forward: room has grown enough since the last search, and each part
        has room before the start."""
        self._catch_up()
        drawn, needed = reservation.lacks
        if drawn == self._future.drawn and self._grown(reservation) < needed:
            return False
        before, _ = self._future.line.slots(reservation.start, reservation.start)
        open_slots = np.ones(before, dtype=np.bool_)
        for part in reservation.parts:
            open_slots &= self._future.room(part.pod_class, part.rows)[:before] >= part.count
        return bool(open_slots.any())

    # -- a restart ----------------------------------------------------------------------------------------------

    def load(self, promises: Sequence[StoredReservation]) -> None:
        """Load the promises of an earlier process. The next cycle restores those of units that still wait."""
        self._loaded = list(promises)

    def restore_loaded(
        self, ask: Callable[[StoredReservation], Reservation | None], quotas: QuotaCheck, now: float
    ) -> None:
        """Restore loaded promises in their old order.

        `ask` returns the reservation of a unit that still waits and is the one that got the promise. Its window has
        shares if its rows are unchanged.
        """
        loaded, self._loaded = self._loaded, []
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
                self._catch_up()
                self._move(
                    reservation, self._search(reservation.parts, reservation.duration), SlipCause.LIMIT_CHANGED, ""
                )
            elif not self._stale:
                self._put_on(reservation.window)
        self.version += 1

    def load_grants(self, grants: Sequence[StoredGrant]) -> None:
        """Load the grants of an earlier process; the next cycle restores them."""
        self.advance.load(grants)

    @property
    def has_loaded(self) -> bool:
        """Whether loaded promises are to be restored."""
        return bool(self._loaded)

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
    ) -> Reservation | None:
        """Reserve the earliest common window for the parts; None if there is none within the horizon."""
        self._quotas = quotas
        self._catch_up()
        duration += self.settings.start_delay if duration else 0
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        window = self._search(parts, duration, FOREVER)
        if window is None:
            self._hopeless[key] = self._state.capacity_version, why_never(self._state, quotas, parts)
            return None
        self._hopeless.pop(key, None)
        reservation = Reservation(key, name, queue, priority, parts, duration, window, int(self._now))
        self.starts.made(reservation)
        self._reservations[key] = reservation
        self.version += 1
        self._put_on(window)
        self._look_again([window])
        return reservation

    def revise(self, key: UnitKey, parts: tuple[Part, ...], duration: int, quotas: QuotaCheck) -> bool:
        """Replace the window if the unit's request has changed; return whether it has."""
        reservation = self._reservations[key]
        duration += self.settings.start_delay if duration else 0
        if duration == reservation.duration and _request_of(parts) == _request_of(reservation.parts):
            return False
        self._quotas = quotas
        self._catch_up()
        self._take_off(reservation.window)
        reservation.parts, reservation.duration = parts, duration
        self._move(reservation, self._search(parts, duration), SlipCause.DEMAND_CHANGED, "")
        return True

    def hopeless(self, key: UnitKey) -> bool:
        """Return whether no start was found for the unit, and capacity has not grown since."""
        entry = self._hopeless.get(key)
        if entry is not None and entry[0] != self._state.capacity_version:
            del self._hopeless[key]
            return False
        return entry is not None

    def question(self, parts: tuple[Part, ...], duration: int) -> Window | None:
        """Return the window in which the parts could start beside all reservations; reserve nothing."""
        self._catch_up()
        return self._search(parts, duration)

    def _search(self, parts: Sequence[Part], duration: int, before: float = FOREVER) -> Window | None:
        return self._find(parts, duration, before).window

    def _find(self, parts: Sequence[Part], duration: int, before: float) -> FoundWindow:
        assert self._accounts is not None
        return earliest_window(self._future, parts, duration, self._accounts, before)

    def started(self, key: UnitKey) -> None:
        """Release the reservation of a unit that has been placed."""
        reservation = self._reservations.get(key)
        if reservation is not None:
            self.starts.started(reservation, int(self._now))
            self._drop(reservation)

    def failed(self, key: UnitKey, reason: str) -> None:
        """Record a failed turn of a unit at its time: enough amounts are reserved, but the unit was not placed."""
        reservation = self._reservations.get(key)
        if reservation is None or reservation.start > self._now:
            return
        reservation.failures += 1
        if reservation.failures >= _MOST_FAILURES:
            self._note(reservation, 0, SlipCause.NOT_PLACEABLE, reason)
            self._drop(reservation)
            self.starts.lose(reservation)

    def lose(self, key: UnitKey, cause: SlipCause) -> None:
        """End the reservation of a unit that cannot start at any time now."""
        reservation = self._reservations[key]
        self._catch_up()
        self._take_off(reservation.window)
        self._move(reservation, None, cause, "")

    def _drop(self, reservation: Reservation) -> None:
        del self._reservations[reservation.key]
        self.version += 1
        self._displacers.pop(reservation.key, None)
        if self._lifted.pop(reservation.key, None) is None and not self._stale:
            self._take_off(reservation.window)
        self._open([reservation.window])

    def _move(self, reservation: Reservation, window: Window | None, cause: SlipCause, by: str) -> None:
        self._open([reservation.window])
        if window is None:
            self._note(reservation, 0, cause, by)
            del self._reservations[reservation.key]
            self.starts.lose(reservation)
            return
        if window.start > reservation.start:
            self._note(reservation, window.start, cause, by)
        reservation.window = window
        reservation.lacks = NOT_SEARCHED
        self._put_on(window)

    def _note(self, reservation: Reservation, start: int, cause: SlipCause, by: str) -> None:
        self.version += 1
        slip = Slip(int(self._now), reservation.start, start, cause, by)
        reservation.slips = (*reservation.slips, slip)[-_REMEMBERED:]

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
            self._lifted[each.key] = each
            self._take_off(each.window)
        self._look_again(each.window for each in chosen)
        try:
            yield
        finally:
            for each in chosen:
                del self._lifted[each.key]
                self._put_on(each.window)
            self._look_again(each.window for each in chosen)

    def lift(self, key: UnitKey, priority: int) -> bool:
        """Open the windows of a unit, and of units of lower priority, during its turn.

        Return whether any window was closed.
        """
        chosen = [
            reservation
            for reservation in self._reservations.values()
            if (reservation.key == key or reservation.priority < priority) and reservation.key not in self._lifted
        ]
        if not chosen:
            return False
        self._catch_up()
        for reservation in chosen:
            self._lifted[reservation.key] = reservation
            self._take_off(reservation.window)
        self._look_again(reservation.window for reservation in chosen)
        return True

    def restore(self, placed: UnitKey | None = None, name: str = "", rows: Iterable[int] = ()) -> None:
        """End a turn: reserve the lifted windows again. The `placed` unit has used `rows`."""
        lifted, self._lifted = self._lifted, {}
        used_rows = set(rows)
        for key, reservation in lifted.items():
            if key == placed:
                continue
            self._put_on(reservation.window)
            if used_rows.intersection(reservation.window.rows.tolist()):
                self._displacers[key] = name
        self._look_again(reservation.window for reservation in lifted.values())
        if placed is not None:
            if placed in lifted:
                self._lifted[placed] = lifted[placed]
            self.started(placed)


def _request_of(parts: Sequence[Part]) -> list[tuple[int, int, ChargePath | None, bool]]:
    """Return the request of parts, without the state of nodes."""
    return [(part.pod_class.number, part.count, part.charge_path, part.domains is not None) for part in parts]
