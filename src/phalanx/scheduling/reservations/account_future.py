"""Usage of accounts over the time line, and checks against their limits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.pod import MemberState
from phalanx.scheduling.quota.limits import AccountLimit
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.reservations.timeline import Timeline
from phalanx.scheduling.reservations.window import Part, Window

_HOLDING = frozenset({MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING})


class AccountFuture:
    """Future usage of accounts, for one time line. An account is computed at its first query.

    A window is charged to every account on its charge paths from its start to its end. A pod is uncharged at its
    end.
    """

    def __init__(
        self,
        state: ClusterState,
        line: Timeline,
        quotas: QuotaCheck,
        windows: Iterable[Window],
        now: int,
        end_of: Callable[[PodRecord], int],
    ) -> None:
        """Initialize for the windows; `end_of` returns the latest end of a pod.

        Queries subtract the later releases of pods that a search has removed tentatively: their usage is already
        gone.
        """
        self._state = state
        self.line = line
        self._quotas = quotas
        self._windows = {id(window): window for window in windows}
        self._now = now
        self._end_of = end_of
        # (account, resource) -> int64[T]: present usage minus future usage, with windows.
        self._less: dict[tuple[int, str], IntArray] = {}
        self._released: dict[int, dict[str, IntArray]] | None = None

    def follow(self, line: Timeline) -> None:
        """Compute the usage for another time line from now on."""
        self.line = line
        self._less.clear()
        self._released = None

    def take(self, window: Window) -> None:
        self._windows[id(window)] = window
        self._less.clear()

    def give_back(self, window: Window) -> None:
        self._windows.pop(id(window), None)
        self._less.clear()

    def allows(self, parts: Sequence[Part], begin: int, end: int) -> bool:
        """Return whether all charge paths can be charged for the parts from slot `begin` to `end`, beside their
        usage then."""
        charge_paths = {part.charge_path for part in parts if part.charge_path is not None}
        if not any(map(self._quotas.account_limits, charge_paths)):
            return True
        wanted: dict[ChargePath, dict[str, int]] = {}
        for part in parts:
            if part.charge_path is not None:
                add_amounts(wanted.setdefault(part.charge_path, {}), part.pod_class.footprint.amounts, part.count)
        return self.allows_amounts(wanted, begin, end)

    def allows_amounts(self, wanted: Mapping[ChargePath, Mapping[str, int]], begin: int, end: int) -> bool:
        """Return whether all charge paths can be charged these amounts over the slots, beside their usage then."""
        # This query comes first: it refreshes the ledger, on which paths depend.
        account_limits = [
            account_limit for charge_path in wanted for account_limit in self._quotas.account_limits(charge_path)
        ]
        if not account_limits:
            return True
        # Charges of several charge paths to one account add up.
        charges: dict[int, dict[str, int]] = {}
        for charge_path, amounts in wanted.items():
            for account in charge_path.path:
                add_amounts(charges.setdefault(id(account), {}), amounts, 1)
        return all(
            self._fits(account_limit, charges[id(account_limit.account)], begin, end)
            for account_limit in account_limits
        )

    def overdrawn(self, window: Window) -> AccountRecord | None:
        """Return an account on the window's charge paths that exceeds its limit while the window lasts; None if
        there is none."""
        begin, end = self.line.slots(window.start, window.end)
        for charge_path, amounts in window.charges:
            for account_limit in self._quotas.account_limits(charge_path):
                for name, amount in amounts:
                    if amount > 0 and name in account_limit.limit.limits:
                        _, _, kept = account_limit.state(name)
                        if amount > kept and self._is_exceeded(account_limit, name, begin, end):
                            return account_limit.account
        return None

    def _is_exceeded(self, account_limit: AccountLimit, resource: str, begin: int, end: int) -> bool:
        """Return whether the usage with windows exceeds a limit in any of the slots.

        A guarantee that is idle now is no part of the limit. Windows of its queue use it: that part counts again,
        as the limit of that queue counts it. Otherwise each of two windows would fit beside the other in its turn,
        and one of them would be lost in each cycle.
        """
        limit, used, _ = account_limit.state(resource)
        usage = used - self._lessened(account_limit.account, resource)[begin:end]
        if account_limit.limit.reserves and int(usage.max()) > limit:
            for child in account_limit.account.children.values():
                idle = child.idle_guarantee(resource) if child not in account_limit.below else 0
                if idle > 0:
                    usage = usage - (-self._lessened(child, resource)[begin:end]).clip(0, idle)
        return int(usage.max()) > limit

    def any_overdrawn(self) -> bool:
        return any(self.overdrawn(window) is not None for window in self._windows.values())

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int], end: int) -> int | None:
        """Return the number of times that the amounts fit from now until `end`; None where there are no windows."""
        if not self._windows:
            return None
        _, last = self.line.slots(self._now, end)
        fewest: int | None = None
        for account_limit in self._quotas.account_limits(charge_path):
            for name, amount in amounts.items():
                if amount > 0 and name in account_limit.limit.limits:
                    limit, used, kept = account_limit.state(name)
                    usage = used - int(self._lessened_now(account_limit.account, name)[:last].min())
                    copies = max((limit - usage) // amount, kept // amount, 0)
                    fewest = copies if fewest is None else min(fewest, copies)
        return fewest

    def excess(
        self, charge_path: ChargePath, amounts: Mapping[str, int], end: int
    ) -> tuple[AccountLimit, str, int] | None:
        """Return (limit, resource, highest usage until `end`) of a limit that the amounts exceed; None if there is
        none."""
        _, last = self.line.slots(self._now, end)
        for account_limit in self._quotas.account_limits(charge_path):
            for name, amount in amounts.items():
                if amount > 0 and name in account_limit.limit.limits:
                    limit, used, kept = account_limit.state(name)
                    usage = used - int(self._lessened_now(account_limit.account, name)[:last].min())
                    if usage + amount > limit and amount > kept:
                        return account_limit, name, usage
        return None

    def _fits(self, account_limit: AccountLimit, amounts: dict[str, int], begin: int, end: int) -> bool:
        for name, amount in amounts.items():
            if amount > 0 and name in account_limit.limit.limits:
                limit, used, kept = account_limit.state(name)
                usage = used - int(self._lessened(account_limit.account, name)[begin:end].min())
                if usage + amount > limit and amount > kept:
                    return False
        return True

    def _lessened_now(self, account: AccountRecord, resource: str) -> IntArray:
        """Return `_lessened` without the releases of removed pods."""
        lessened = self._lessened(account, resource)
        removed = self._state.transactions.removed()
        if not removed:
            return lessened
        lessened = lessened.copy()
        for record in removed:
            if record.charge_path is None or account not in record.charge_path.path:
                continue
            end = self._end_of(record)
            footprint = record.charged_footprint or record.footprint
            lessened[bisect_left(self.line.edges, end) :] -= footprint.amounts.get(resource, 0)
        return lessened

    def _lessened(self, account: AccountRecord, resource: str) -> IntArray:
        key = (id(account), resource)
        lessened = self._less.get(key)
        if lessened is None:
            released = self._releases().get(id(account), {}).get(resource)
            lessened = released.copy() if released is not None else np.zeros(len(self.line), dtype=np.int64)
            for window in self._windows.values():
                begin, end = self.line.slots(window.start, window.end)
                for charge_path, amounts in window.charges:
                    if any(path_account is account for path_account in charge_path.path):
                        lessened[begin:end] -= dict(amounts).get(resource, 0)
            self._less[key] = lessened
        return lessened

    def _releases(self) -> dict[int, dict[str, IntArray]]:
        """Return int64[T] by account and resource: the amounts of pods that have ended by each slot."""
        if self._released is None:
            edges = self.line.edges
            by_path: dict[int, tuple[ChargePath, dict[str, IntArray]]] = {}
            for record in self._charged_pods():
                charge_path, footprint = record.charge_path, record.charged_footprint or record.footprint
                end = self._end_of(record)
                slot = bisect_left(edges, end)
                if charge_path is None or slot >= len(edges):
                    continue
                sums = by_path.setdefault(id(charge_path), (charge_path, {}))[1]
                for name, amount in footprint.amounts.items():
                    steps = sums.get(name)
                    if steps is None:
                        steps = sums[name] = np.zeros(len(edges), dtype=np.int64)
                    steps[slot] += amount
            releases: dict[int, dict[str, IntArray]] = {}
            for charge_path, sums in by_path.values():
                for name, steps in sums.items():
                    total = np.cumsum(steps)
                    for account in charge_path.path:
                        by_resource = releases.setdefault(id(account), {})
                        by_resource[name] = by_resource[name] + total if name in by_resource else total
            self._released = releases
        return self._released

    def _charged_pods(self) -> Iterable[PodRecord]:
        for row in range(self._state.nodes.extent):
            for record in self._state.pods.on(row):
                if record.state in _HOLDING:
                    yield record
