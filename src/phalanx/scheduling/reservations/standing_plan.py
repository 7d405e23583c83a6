"""What stands on nodes and accounts in time, and what that leaves to whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.pod import ReservationUse
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.account_future import AccountFuture
from phalanx.scheduling.reservations.advance import AdvancePlan
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import RowArray, Window

#: In large clusters the time line is a grid: a pod is taken to last so much longer.
_SLACK = 60


class StandingPlan:
    """The windows of units that wait and of advance reservations, over one future of nodes and accounts. Those that
    are `_lifted` do not count while somebody has its turn; `_rows` bool[N] are the rows on which others stand."""

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        self.settings = settings
        self._state = state
        self._reservations: dict[UnitKey, Reservation] = {}
        self._lifted: dict[UnitKey, Reservation] = {}
        self.advance = AdvancePlan(state)
        self._future = self._new_future()
        self._accounts: AccountFuture | None = None
        self._quotas: QuotaCheck | None = None
        self._rows: BoolArray = np.zeros(0, dtype=np.bool_)
        self._now = 0.0
        self._stale = True

    @property
    def active(self) -> bool:
        """Whether anything is reserved."""
        return bool(self._reservations) or self.advance.wanted

    @property
    def _closed_to_all(self) -> bool:
        """Whether something stands that is not open to whoever has its turn."""
        return len(self._lifted) < len(self._reservations) or bool(self.advance.grants)

    def _new_future(self) -> FutureMatrix:
        future = FutureMatrix(self._state, self.settings.start_delay)
        future.leaves_by = self.advance.leaves_by
        return future

    # -- what it leaves ------------------------------------------------------------------------------------------

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        """int64[rows]: of the copies that each row has room for now those that leave in time."""
        if not self._closed_to_all and pod_class.spec.reservation is None:
            return copies
        everything = np.arange(self._state.nodes.capacity, dtype=np.intp)
        chosen: RowArray = everything[rows] if isinstance(rows, slice) else np.asarray(rows, dtype=np.intp)
        if chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        if pod_class.spec.reservation is not None:
            return self._limit_users(pod_class, chosen, copies)
        return self._limit_others(pod_class, chosen, copies)

    def _limit_users(self, pod_class: ClassRecord, chosen: RowArray, copies: IntArray) -> IntArray:
        """For pods that use advance reservations: what is kept there counts as free, while they are open."""
        use = pod_class.spec.reservation
        assert use is not None
        if self.advance.unrestricted(use):
            found = self._limit_others(pod_class, chosen, copies).copy()
        else:
            found = np.zeros_like(copies)
        for grant in reversed(self.advance.open_grants(use)):
            if grant.window is None:
                continue
            here = np.flatnonzero(np.isin(chosen, grant.window.rows))
            here = here[copies[here] > 0]
            if not len(here):
                continue
            self._catch_up()
            until = min(self._end(pod_class.spec.run_limit), max(grant.leaves_at, self._now + 1))
            lifted = self.advance.shared(grant)
            room = self._future.copies_beside(pod_class, chosen[here], self._now, until, lifted)
            if emptied := self._state.transactions.emptied_rows():
                away = np.isin(chosen[here], list(emptied))
                room = np.where(away & self._overlaps(chosen[here], until, lifted), 0, room)
            found[here] = np.minimum(room, copies[here])
        return found

    def _limit_others(self, pod_class: ClassRecord, chosen: RowArray, copies: IntArray) -> IntArray:
        inside = chosen < len(self._rows)
        held = np.zeros(len(chosen), dtype=np.bool_)
        held[inside] = self._rows[chosen[inside]]
        held &= copies > 0
        if not held.any():
            return copies
        self._catch_up()
        until = self._end(pod_class.spec.run_limit)
        found = copies.copy()
        most = self._future.copies_until(pod_class, chosen[held], until)
        places = np.flatnonzero(held)
        if emptied := self._state.transactions.emptied_rows():
            # Where somebody is thought away, nobody can say what its place would be like later.
            away = np.isin(chosen[held], list(emptied))
            most = np.where(away & self._overlaps(chosen[held], until), 0, most)
        found[places] = np.minimum(found[places], most)
        return found

    def _end(self, run_limit: int) -> float:
        """When a pod that starts now has left at the latest; FOREVER where nobody knows."""
        slack = 0 if self._future.line.exact else _SLACK
        return self._now + self.settings.start_delay + run_limit + slack if run_limit else FOREVER

    def _overlaps(self, rows: RowArray, until: float, lifted: Iterable[Window] = ()) -> BoolArray:
        mine = {id(window) for window in lifted}
        standing = [each.window for each in self._reservations.values() if each.key not in self._lifted]
        standing += [window for window in self.advance.windows() if id(window) not in mine]
        busy = {row for window in standing if window.start < until for row in window.rows.tolist()}
        found: BoolArray = np.array([row in busy for row in rows.tolist()], dtype=np.bool_)
        return found

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """bool[rows]: where a pod of the class would fit but for what is kept."""
        idle = self._state.nodes.idle[pod_class.columns][:, rows]
        fits = (idle // pod_class.amounts[:, None]).min(axis=0).clip(0)
        closed: BoolArray = (fits > 0) & (self.limit_copies(pod_class, rows, fits) == 0)
        return closed

    def unready(self, pod_class: ClassRecord) -> str | None:
        """Why pods of a class wait for the advance reservation that they ask for, whatever room there is."""
        use = pod_class.spec.reservation
        return self.advance.unready(use) if use is not None else None

    @contextmanager
    def accounts_until(
        self, run_limit: int, use: ReservationUse | None = None
    ) -> Iterator[tuple[AccountFuture, float] | None]:
        """(what accounts hold in time, until when who starts now would); what one may `use` is not held. None where
        nothing is reserved."""
        if not self._closed_to_all:
            yield None
            return
        self._catch_up()
        accounts = self._accounts
        assert accounts is not None
        own = [each.window for each in self.advance.open_grants(use) if each.window] if use is not None else []
        for window in own:
            accounts.give_back(window)
        yield accounts, self._end(run_limit)
        for window in own:
            accounts.take(window)

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _put_on(self, window: Window) -> None:
        self._future.take(window)
        if self._accounts is not None:
            self._accounts.take(window)

    def _take_off(self, window: Window) -> None:
        self._future.give_back(window)
        if self._accounts is not None:
            self._accounts.give_back(window)

    def _open(self, windows: Iterable[Window]) -> None:
        """The windows are not kept any more: wakes whoever may fit there now."""
        self._look_again(windows)
        self._state.room_opened()

    def _look_again(self, windows: Iterable[Window]) -> None:
        """Lets everybody look again at the rows of the windows."""
        rows = np.zeros(self._state.nodes.capacity, dtype=np.bool_)
        for window in windows:
            rows[window.rows[window.rows < len(rows)]] = True
        current = self._future.current
        self._state.nodes.changes.note_all(np.flatnonzero(rows).tolist())
        if current:
            self._future.skip()
        held = np.zeros(self._state.nodes.capacity, dtype=np.bool_)
        standing = [each.window.rows for each in self._reservations.values() if each.key not in self._lifted]
        standing += [window.rows for window in self.advance.windows()]
        if standing:
            held[np.concatenate(standing)] = True
        self._rows = held

    def _catch_up(self) -> None:
        """The future as it is now; done when the first of a cycle asks."""
        if not self._stale:
            line = self._future.line
            self._future.update()
            if line is self._future.line and self._accounts is not None:
                return
        windows = [each.window for each in self._reservations.values() if each.key not in self._lifted]
        windows += self.advance.windows()
        if self._stale:
            self._stale = False
            self._future.advance(self._now, windows)
        assert self._quotas is not None
        self._accounts = AccountFuture(
            self._state, self._future.line, self._quotas, windows, self._now, self.settings.start_delay
        )
