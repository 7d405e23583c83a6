"""The plan of starts: carried over from cycle to cycle, mended where the cluster broke it, and compressed."""

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

#: So many of its slips a reservation remembers.
_REMEMBERED = 8
#: After so many turns at its time in which it could not be placed a reservation is given up.
_MOST_FAILURES = 8
#: On a grid what fits beside the windows is looked at again after so many seconds; meanwhile a pod counts as if it
#: lasted so much longer.
_SLACK = 60
#: Seconds from one such turn to the next, unless something changes before.
_RETRY = 30


class ReservationPlan(StandingPlan):
    """Which waiting units have a start that is kept for them.

    A plan that is made anew at every event breaks promises though nobody is late: who ranks higher
    and finds a better hole pushes others back. So it is carried over. An event mends the windows that it breaks,
    last come first, and each slip has a named cause; then every window may move forward, in the order of rank,
    never back.
    """

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        super().__init__(state, settings)
        self._loaded: list[StoredReservation] = []
        # What stands again of the loaded promises, as it was loaded.
        self.restored: dict[UnitKey, StoredReservation] = {}
        # Grows with every change of what is to be remembered.
        self.version = 0
        self._compressed_at = (-1, -1)
        self._looked_at = 0.0
        self._advance_version = 0
        self._displacers: dict[UnitKey, str] = {}
        # Who was found to have no start, and when in the history of the cluster.
        # As of which version of the capacity, and why it never can ("": what is in its way has no known end).
        self._hopeless: dict[UnitKey, tuple[int, Never | None]] = {}
        # The unit of each gang that has asked for a start.
        self._unit_of: dict[GangKey, UnitKey] = {}
        self.starts = PromisedStarts()

    # -- looking ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._reservations)

    def get(self, key: UnitKey) -> Reservation | None:
        return self._reservations.get(key)

    def unit_of(self, of: GangKey | str) -> UnitKey | None:
        """Return the unit of a gang that has asked for a start (None for others), or of a pod (its uid)."""
        return self._unit_of.get(of) if isinstance(of, GangKey) else of

    def promise(self, of: GangKey | str) -> str:
        """What a gang, or a pod on its own (its uid), is told about its start; "" for nothing."""
        key = self.unit_of(of)
        if key is None:
            return ""
        reservation = self._reservations.get(key)
        if reservation is not None:
            words = reservation.words = reservation.words or self._words(reservation)
            return start_sentence(reservation.told, words, reservation.slips, reservation.spares)
        return self.starts.without_promise(key, self._hopeless.get(key))

    def is_promised(self, gang: GangKey) -> bool:
        """Return whether a start is reserved for the unit of a gang."""
        return self._unit_of.get(gang) in self._reservations

    def _words(self, reservation: Reservation) -> ToldStart:
        self._catch_up()
        delay = self.settings.start_delay
        rests = basis(self._state, self._future, reservation.parts, reservation.window, self._now, delay)
        return ToldStart(int(self._now), *rests, *self.starts.expected(reservation, self._now))

    def note_forecast(self, key: UnitKey, start: int, queue: str, pods: int) -> bool:
        """A unit without a promise starts at a moment by the plan; whether people are to be told anything new."""
        forecasts = self.starts.forecasts
        former = forecasts.told(key)
        forecasts.note(key, int(self._now), start, queue, pods)
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        return forecasts.told(key) != former

    def forecast_started(self, key: UnitKey) -> None:
        """A unit has started, with or without a promise."""
        self.starts.forecasts.started(key, int(self._now))
        self.version += 1

    def all(self) -> list[Reservation]:
        """In the order in which they are compressed."""
        return sorted(self._reservations.values(), key=lambda each: (-each.priority, each.made))

    def count(self, queue: str) -> int:
        """How many of a queue have one."""
        return sum(each.queue == queue for each in self._reservations.values())

    @property
    def next_due(self) -> float | None:
        """When a cycle has something to do for one of them: its start, or another try."""
        starts = [max(each.start, each.retry_at) for each in self._reservations.values()]
        change = self.advance.next_change
        return min([*starts, change] if change is not None else starts, default=None)

    @property
    def outdated(self) -> bool:
        """Whether a pod will have left at another time than the plan was made with."""
        return self.advance.outdated or (self.active and not self._future.times_current)

    @property
    def disturbed(self) -> bool:
        """Whether somebody has taken since what is kept for others: the next cycle finds them another start."""
        if not self._reservations:
            return False
        self._catch_up()
        return bool(self._displacers) or (self._accounts is not None and self._accounts.any_overdrawn())

    def configure(self, settings: ReservationSettings) -> None:
        """Goes on under other settings; what is promised stays."""
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
        ask: Ask = lambda spec: "nobody can say what it asks for",
    ) -> list[UnitKey]:
        """Brings the plan up to `now`. `waits` tells whether a unit still asks for something, `ask` what an advance
        reservation asks for.

        Returns the units that are to have a turn: they are due, or have to be told another start.
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
        self._mend()
        self._grant(ask)
        if self._compressed_at != self._moment():
            self._compress(out_of_time)
        # Who fits beside them changes with the time.
        if self._future.line.exact or now - self._looked_at >= _SLACK:
            self._looked_at = now
            self._look_again([*(each.window for each in self._reservations.values()), *self.advance.windows()])
        lost = self.starts.pop_untold()
        turns = [(each.key, self._is_due(each), self._refresh_told(each)) for each in self.all()]
        return lost + [key for key, due, news in turns if due or news]

    def _grant(self, ask: Ask) -> None:
        """Asks for advance reservations, one after the other: each on the plan that holds those before it."""
        while self.advance.wanted:
            self._catch_up()
            assert self._accounts is not None
            others = [(f"the promised start of {each.name}", each.window) for each in self.all()]
            granted = self.advance.ask(self._future, self._accounts, ask, others, self._moment())
            if granted is None or granted.window is None:
                break
            self._stale = True
            self._look_again([granted.window])
        self.version += self.advance.version != self._advance_version
        self._advance_version = self.advance.version

    def recount_users(self) -> None:
        """Counts off what has just been placed in advance reservations."""
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
        """Whether its time has come; after a try only once something has changed, or after a while."""
        moment = self._moment()
        if reservation.start > self._now:
            return False
        if reservation.retry_at > self._now and reservation.attempted_at == moment:
            return False
        # Whatever becomes of its turn, it asks for none at once.
        reservation.retry_at, reservation.attempted_at = self._now + _RETRY, moment
        return True

    def _refresh_told(self, reservation: Reservation) -> bool:
        """Whether people are to be told another start, or when to expect it."""
        if not self.starts.has_news(reservation, self._now):
            return False
        reservation.told, reservation.words = reservation.start, None
        self.version += 1
        return True

    def _mend(self) -> None:
        """Finds new windows for those whose room is not there any more."""
        future = self._future
        for each in self._reservations.values():
            for part in each.parts:
                for column in part.pod_class.columns.tolist():
                    future.free(column)
        over = future.overbooked()
        broken: list[tuple[Reservation, SlipCause, str]] = []
        for each in reversed(self.all()):
            rows = [
                row
                for row in each.window.rows.tolist()
                if row >= len(over) or over[row] or not self._state.nodes.alive[row]
            ]
            if rows and future.overbooks(each.window, rows):
                broken.append((each, *self._cause(each, rows)))
            elif self._accounts is not None and (account := self._accounts.overdrawn(each.window)) is not None:
                broken.append((each, SlipCause.QUOTA_CHANGED, account.label))
            else:
                continue
            self._take_off(each.window)
            over = future.overbooked()
        self._displacers.clear()
        for each, cause, by in reversed(broken):
            found = self._search(each.parts, each.duration)
            self._move(each, found, cause, by)

    def _cause(self, reservation: Reservation, rows: Sequence[int]) -> tuple[SlipCause, str]:
        """What took the room of a window, and who."""
        by = self._displacers.pop(reservation.key, "")
        if by:
            return SlipCause.DISPLACED, by
        return cause_on(self._state, rows, reservation, self._now, self.settings.start_delay)

    def _compress(self, out_of_time: Callable[[], bool]) -> None:
        """Moves windows forward where room has come free, in the order of rank; never back."""
        for each in self.all():
            if each.start <= self._now or not self._may_move(each):
                continue
            grown = self._grown(each)
            self._take_off(each.window)
            found = self._find(each.parts, each.duration, each.start)
            if found.window is not None:
                self._open([each.window])
                each.window = found.window
                self.version += 1
            each.lacks = (self._future.drawn, grown + found.lacking)
            self._put_on(each.window)
            if out_of_time():
                return
        self._compressed_at = self._moment()

    def _grown(self, reservation: Reservation) -> int:
        return sum(self._future.grown(part.pod_class) for part in reservation.parts)

    def _moment(self) -> tuple[int, int]:
        """Changes with whatever may let windows move forward."""
        return self._state.capacity_version, self._state.pods.retimed.end

    def _may_move(self, reservation: Reservation) -> bool:
        """Whether room has grown as much as it lacked when it was looked at last, and each of its parts has room at
        some moment before its start: its own window adds nothing there."""
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
        """What an earlier process had promised; it stands again with the next cycle, for those who still wait."""
        self._loaded = list(promises)

    def restore_loaded(
        self, ask: Callable[[StoredReservation], Reservation | None], quotas: QuotaCheck, now: float
    ) -> None:
        """Lets loaded promises stand again, in their old order. `ask` gives the reservation of a unit that is the
        one to whom it was promised and waits still, with its window where its rows are what they were."""
        loaded, self._loaded = self._loaded, []
        self._quotas, self._now = quotas, now
        for kept in loaded:
            made = ask(kept)
            if made is None or made.key in self._reservations:
                continue
            if not isinstance(made.key, str):
                self._unit_of.update(dict.fromkeys(made.key, made.key))
            self._reservations[made.key] = made
            self.restored[made.key] = kept
            if not made.window.shares:
                self._catch_up()
                self._move(made, self._search(made.parts, made.duration), SlipCause.LIMIT_CHANGED, "")
            elif not self._stale:
                self._put_on(made.window)
        self.version += 1

    def load_grants(self, grants: Sequence[StoredGrant]) -> None:
        """What an earlier process had granted stands again with the next cycle."""
        self.advance.load(grants)

    @property
    def has_loaded(self) -> bool:
        """Whether promises of an earlier process are to be looked at."""
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
        """Keeps the earliest common window for the parts; None if nobody knows one within the horizon."""
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
        made = Reservation(key, name, queue, priority, parts, duration, window, int(self._now))
        self.starts.made(made)
        self._reservations[key] = made
        self.version += 1
        self._put_on(window)
        self._look_again([window])
        return made

    def revise(self, key: UnitKey, parts: tuple[Part, ...], duration: int, quotas: QuotaCheck) -> bool:
        """Keeps another window where the unit asks for something else than it was promised; whether it does."""
        reservation = self._reservations[key]
        duration += self.settings.start_delay if duration else 0
        if duration == reservation.duration and _asked(parts) == _asked(reservation.parts):
            return False
        self._quotas = quotas
        self._catch_up()
        self._take_off(reservation.window)
        reservation.parts, reservation.duration = parts, duration
        self._move(reservation, self._search(parts, duration), SlipCause.DEMAND_CHANGED, "")
        return True

    def hopeless(self, key: UnitKey) -> bool:
        """Whether no start was found for the unit, and room has not grown since."""
        found = self._hopeless.get(key)
        if found is not None and found[0] != self._state.capacity_version:
            del self._hopeless[key]
            return False
        return found is not None

    def question(self, parts: tuple[Part, ...], duration: int) -> Window | None:
        """When the parts could start beside everything that is reserved; nothing is kept."""
        self._catch_up()
        return self._search(parts, duration)

    def _search(self, parts: Sequence[Part], duration: int, before: float = FOREVER) -> Window | None:
        return self._find(parts, duration, before).window

    def _find(self, parts: Sequence[Part], duration: int, before: float) -> FoundWindow:
        assert self._accounts is not None
        return earliest_window(self._future, parts, duration, self._accounts, before)

    def started(self, key: UnitKey) -> None:
        """The unit has been placed: what was kept for it is its own now."""
        reservation = self._reservations.get(key)
        if reservation is not None:
            self.starts.started(reservation, int(self._now))
            self._drop(reservation)

    def failed(self, key: UnitKey, reason: str) -> None:
        """The unit had its turn at its time and could not be placed, whatever the amounts say."""
        reservation = self._reservations.get(key)
        if reservation is None or reservation.start > self._now:
            return
        reservation.failures += 1
        if reservation.failures >= _MOST_FAILURES:
            self._note(reservation, 0, SlipCause.NOT_PLACEABLE, reason)
            self._drop(reservation)
            self.starts.lose(reservation)

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
        """While somebody looks where units could be, what is kept for them themselves is open to them; also within
        a turn in which something was lifted."""
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
        """Opens to a unit what is kept for it, and for those whom it outranks, while it has its turn.

        Whether anything was closed to it.
        """
        chosen = [
            each
            for each in self._reservations.values()
            if (each.key == key or each.priority < priority) and each.key not in self._lifted
        ]
        if not chosen:
            return False
        self._catch_up()
        for each in chosen:
            self._lifted[each.key] = each
            self._take_off(each.window)
        self._look_again(each.window for each in chosen)
        return True

    def restore(self, placed: UnitKey | None = None, name: str = "", rows: Iterable[int] = ()) -> None:
        """Ends the turn: what was lifted stands again. Who has been placed `placed` has taken `rows`."""
        lifted, self._lifted = self._lifted, {}
        taken = set(rows)
        for key, each in lifted.items():
            if key == placed:
                continue
            self._put_on(each.window)
            if taken.intersection(each.window.rows.tolist()):
                self._displacers[key] = name
        self._look_again(each.window for each in lifted.values())
        if placed is not None:
            if placed in lifted:
                self._lifted[placed] = lifted[placed]
            self.started(placed)


def _asked(parts: Sequence[Part]) -> list[tuple[int, int, ChargePath | None, bool]]:
    """What parts ask for, whatever nodes are like."""
    return [(part.pod_class.number, part.count, part.charge_path, part.domains is not None) for part in parts]
