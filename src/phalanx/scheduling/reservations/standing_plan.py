"""Reserved windows over the future of nodes and accounts, and the room that they leave to pods."""

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

#: In large clusters the time line is a grid: a pod counts as that much longer.
_SLACK = 60


class StandingPlan:
    """Windows of start reservations and advance reservations over one future of nodes and accounts.

    `_lifted` windows are open to the unit that has its turn. `_rows` bool[N] are the rows with other windows.
    """

    def __init__(self, state: ClusterState, settings: ReservationSettings) -> None:
        self.settings = settings
        self._state = state
        self._reservations: dict[UnitKey, Reservation] = {}
        self._lifted: dict[UnitKey, Reservation] = {}
        # Free room of late starts from now on, beside their windows.
        self._holds: dict[UnitKey, Window] = {}
        # Rows on which units collect room, where other units get no window, and the number of their changes.
        self.collected: dict[UnitKey, RowArray] = {}
        self._collections = 0
        self.advance = AdvancePlan(state)
        self._future = self._new_future()
        self._accounts: AccountFuture | None = None
        self._quotas: QuotaCheck | None = None
        self._rows: BoolArray = np.zeros(0, dtype=np.bool_)
        self._now = 0
        # End of the window of the unit that has its turn, if its time has come; FOREVER otherwise.
        self._planned_end = FOREVER
        self._stale = True
        # State of the nodes and of pods' ends at the last check of the windows.
        self._checked_at = (-1, -1, -1)

    @property
    def active(self) -> bool:
        """Whether any room is reserved."""
        return bool(self._reservations) or self.advance.wanted

    @property
    def _has_closed_windows(self) -> bool:
        """Whether a window is closed to the unit that has its turn."""
        return len(self._lifted) < len(self._reservations) or bool(self.advance.grants)

    @property
    def reserved_rows(self) -> BoolArray:
        """Return bool[N]: the rows with reserved windows that are not lifted; rows beyond its end have none."""
        return self._rows

    def collect_on(self, collected: dict[UnitKey, RowArray]) -> None:
        """Set the rows on which units collect room."""
        former, self.collected = self.collected, collected
        same = former.keys() == collected.keys()
        self._collections += not (
            same and all(np.array_equal(former[key], rows) for key, rows in collected.items())
        )

    def beside_collections(self, key: UnitKey, rows: BoolArray) -> BoolArray:
        """Return bool[N]: `rows` without those on which other units collect room."""
        others = [collected for unit, collected in self.collected.items() if unit != key]
        if not others:
            return rows
        beside = rows.copy()
        for collected in others:
            beside[collected[collected < len(beside)]] = False
        return beside

    def _usable_rows(self) -> tuple[int, int]:
        """Return the version of the rows that units can use: by their labels and taints, beside collections."""
        return self._state.nodes.relabelled.end, self._collections

    def _new_future(self) -> FutureMatrix:
        future = FutureMatrix(self._state, self.settings.start_delay)
        future.pod_ends.leaves_by = self.advance.leaves_by
        return future

    # -- room beside windows -------------------------------------------------------------------------------------

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        """Return int64[rows]: the copies of those that fit now which also leave before reserved windows begin."""
        if not self._has_closed_windows and pod_class.spec.reservation is None:
            return copies
        chosen: RowArray = (
            np.arange(*rows.indices(self._state.nodes.capacity), dtype=np.intp)
            if isinstance(rows, slice)
            else np.asarray(rows, dtype=np.intp)
        )
        if pod_class.spec.reservation is not None:
            return self._limit_users(pod_class, chosen, copies)
        return self._limit_others(pod_class, chosen, copies)

    def _limit_users(self, pod_class: ClassRecord, chosen: RowArray, copies: IntArray) -> IntArray:
        """Return the copies of pods that use advance reservations: room of their open reservations counts as
        free."""
        use = pod_class.spec.reservation
        assert use is not None
        if self.advance.unrestricted(use):
            allowed = self._limit_others(pod_class, chosen, copies).copy()
        else:
            allowed = np.zeros_like(copies)
        for grant in reversed(self.advance.open_grants(use)):
            if grant.window is None:
                continue
            matching = np.flatnonzero(np.isin(chosen, grant.window.rows))
            matching = matching[copies[matching] > 0]
            if not len(matching):
                continue
            self._catch_up()
            until = min(self._end(pod_class.spec.run_limit), max(grant.leaves_at, self._now + 1))
            lifted = self.advance.shared(grant)
            removed = self._state.transactions.removed()
            room = self._future.copies_beside(pod_class, chosen[matching], self._now, until, lifted, removed)
            allowed[matching] = np.minimum(room, copies[matching])
        return allowed

    def _limit_others(self, pod_class: ClassRecord, chosen: RowArray, copies: IntArray) -> IntArray:
        if len(self._rows) < self._state.nodes.capacity:
            self._rows = np.pad(self._rows, (0, self._state.nodes.capacity - len(self._rows)))
        (places,) = (self._rows[chosen] & (copies > 0)).nonzero()
        if not len(places):
            return copies
        self._catch_up()
        until = self._end(pod_class.spec.run_limit)
        allowed = copies.copy()
        reserved = chosen[places]
        copies_in_time = self._future.copies_until(pod_class, reserved, until)
        if removed := self._state.transactions.removed():
            emptied = np.flatnonzero(np.isin(reserved, [record.row for record in removed]))
            rows = reserved[emptied]
            copies_in_time = copies_in_time.copy()
            copies_in_time[emptied] = self._future.copies_beside(pod_class, rows, self._now, until, (), removed)
        if uncertain := self._rows_of_unconfirmed_evictions():
            copies_in_time = np.where(np.isin(reserved, uncertain), 0, copies_in_time)
        allowed[places] = np.minimum(allowed[places], copies_in_time)
        return allowed

    def _rows_of_unconfirmed_evictions(self) -> list[int]:
        """Return the rows of evicted pods whose termination the API does not show yet.

        Such an eviction can be refused, and it is called off once its preemptor is bound. So no pod counts on the
        room that the victim would leave beside a window.
        """
        leaving = self._state.pods.terminating.values()
        return [record.row for record in leaving if record.evicting and not record.pod.terminating]

    def _end(self, run_limit: int) -> int:
        """Return the time by which a pod that starts now has left; FOREVER if unknown.

        A unit whose time has come counts until the end of its window: one that starts late postpones the windows
        behind it.
        """
        slack = 0 if self._future.line.exact else _SLACK
        end = self._now + self.settings.start_delay + run_limit + slack if run_limit else FOREVER
        return max(min(end, self._planned_end), self._now + 1)

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """Return bool[rows]: rows with free room for a pod of the class that reserved windows close to it."""
        idle, amounts = self._state.nodes.idle[pod_class.columns][:, rows], pod_class.amounts[:, None]
        fits: BoolArray = np.logical_and.reduce(idle >= amounts, axis=0)
        if not np.count_nonzero(fits):
            return fits
        copies = (idle // amounts).min(axis=0).clip(0)
        closed: BoolArray = fits & (self.limit_copies(pod_class, rows, copies) == 0)
        return closed

    def unready(self, pod_class: ClassRecord) -> str | None:
        """Return the reason why pods of a class wait for their advance reservation even with free room; None if
        they do not."""
        use = pod_class.spec.reservation
        return self.advance.unready(use) if use is not None else None

    @contextmanager
    def accounts_until(
        self, run_limit: int, use: ReservationUse | None = None
    ) -> Iterator[tuple[AccountFuture, int] | None]:
        """Yield (future usage of accounts, end of a pod that starts now); None if nothing is reserved.

        Advance reservations that the pod can `use` are not charged in this context.
        """
        if not self._has_closed_windows:
            yield None
            return
        self._catch_up()
        accounts = self._accounts
        assert accounts is not None
        own = [grant.window for grant in self.advance.open_grants(use) if grant.window] if use is not None else []
        for window in own:
            accounts.give_back(window)
        yield accounts, self._end(run_limit)
        for window in own:
            accounts.take(window)

    # -- windows ------------------------------------------------------------------------------------------------

    def _has_limited_accounts(self) -> bool:
        """Return whether a limit applies to an account that a reserved window is charged to."""
        assert self._quotas is not None
        windows = [*(reservation.window for reservation in self._reservations.values()), *self.advance.windows()]
        charges = (path for window in windows for path, _ in window.charges)
        return any(map(self._quotas.account_limits, charges))

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

    def _put_on(self, window: Window) -> None:
        self._future.take(window)
        if self._accounts is not None:
            self._accounts.take(window)

    def _take_off(self, window: Window) -> None:
        self._future.give_back(window)
        if self._accounts is not None:
            self._accounts.give_back(window)

    def _lift(self, reservation: Reservation) -> None:
        """Open the reserved room of a unit for a turn."""
        self._lifted[reservation.key] = reservation
        self._take_off(reservation.window)
        if (hold := self._holds.get(reservation.key)) is not None:
            self._take_off(hold)

    def _close(self, reservation: Reservation) -> None:
        """Reserve the room of a unit again after a turn."""
        self._put_on(reservation.window)
        if (hold := self._holds.get(reservation.key)) is not None:
            self._put_on(hold)

    def _open(self, windows: Iterable[Window]) -> None:
        """Release windows: retry units that now fit there."""
        self._look_again(windows)
        self._state.room_opened()

    def _look_again(self, windows: Iterable[Window]) -> None:
        """Invalidate the placements on the rows of the windows."""
        nodes = self._state.nodes
        capacity = nodes.capacity
        rows = {row for window in windows for row in window.rows.tolist() if row < capacity}
        current, checked = self._future.current, self._checked_at == self._state_of_nodes()
        nodes.changes.note_all(sorted(rows))
        if current:
            self._future.skip()
        if checked:
            self._checked_at = self._state_of_nodes()
        reserved_rows = np.zeros(capacity, dtype=np.bool_)
        standing = [
            reservation.window.rows
            for reservation in self._reservations.values()
            if reservation.key not in self._lifted
        ]
        standing += [window.rows for window in self.advance.windows()]
        for standing_rows in standing:
            reserved_rows[standing_rows] = True
        self._rows = reserved_rows

    def _state_of_nodes(self) -> tuple[int, int, int]:
        nodes = self._state.nodes
        return nodes.changes.end, self._state.pods.retimed.end, nodes.maintenance.version

    def _catch_up(self) -> None:
        """Update the futures of nodes and accounts. The first query of a cycle does it."""
        if not self._stale:
            line = self._future.line
            self._future.update()
            if line is self._future.line and self._accounts is not None:
                return
        if self._stale:
            self._stale = False
            windows = [
                reservation.window
                for reservation in self._reservations.values()
                if reservation.key not in self._lifted
            ]
            self._future.advance(self._now, [*windows, *self._holds.values(), *self.advance.windows()])
        assert self._quotas is not None
        self._accounts = AccountFuture(
            self._state,
            self._future.line,
            self._quotas,
            self._future.windows,
            self._now,
            self._future.pod_ends.end_of,
        )
