"""Limits of evictions: disruption budgets, and eviction rates of accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import EvictionRate
from phalanx.model.disruption import DisruptionBudget
from phalanx.scheduling.session.eviction_log import EvictionLog, pace, rates

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

BudgetKey = tuple[str, str]


def no_override(record: PodRecord) -> bool:
    return False


class EvictionDelays:
    """Evictions that an eviction rate delays: the reasons, and the end of the first delay."""

    def __init__(self) -> None:
        self.until: float | None = None
        self._pods: dict[str, set[str]] = {}

    def add_delay(self, why: str, until: float, records: Sequence[PodRecord]) -> None:
        self.until = until if self.until is None else min(self.until, until)
        self._pods.setdefault(why, set()).update(record.pod.uid for record in records)

    def counts(self) -> dict[str, int]:
        """Return reason -> number of pods."""
        return {why: len(pods) for why, pods in self._pods.items()}


class EvictionLimits:
    """Limits on the set of pods that one decision evicts; pods are added one by one.

    An account loses at most its rate of pods in a window; more only as one unit (`try_evict_all`) with no other
    eviction in the window. `violations` counts evictions beyond PodDisruptionBudgets, in every budget of a pod.
    With the plugin `pdb` or the Eviction API no budget is broken; with the plugin, budgets of pods whose owners
    `overrules` overrules are an exception. Pods that are already being evicted count until they are gone, as
    budgets are updated late.
    """

    def __init__(
        self,
        session: Session,
        log: EvictionLog,
        delays: EvictionDelays | None = None,
        overrules: Callable[[PodRecord], bool] = no_override,
    ) -> None:
        self._delays = delays
        self._state = session.state
        self._now = session.now
        self._log = log
        plugin_runtime = session.plugin_runtime
        # The API server would refuse an eviction that breaks a budget in the middle of the decision.
        api = plugin_runtime.policy.evictions == "eviction-api"
        self._strict = api or any(plugin.keeps_budgets for plugin in plugin_runtime.plugins("evict_veto"))
        self._overrules = no_override if api else overrules
        self._lost: dict[AccountRecord, int] = {}
        self._gone: dict[AccountRecord, int] = {}
        self._disrupted: dict[BudgetKey, int] = {}
        self._allowed: dict[BudgetKey, int] = {}
        self._evicted: dict[BudgetKey, int] | None = None

    @property
    def violations(self) -> int:
        return sum(max(0, count - self._allowed_disruptions(key)) for key, count in self._disrupted.items())

    def try_evict(self, record: PodRecord) -> str | None:
        """Count a pod as evicted and return None; or return the reason against it and count nothing."""
        return self.try_evict_all((record,))

    def try_evict_all(self, records: Sequence[PodRecord]) -> str | None:
        """Count pods that are evicted together and return None; or return the reason against it and count
        nothing."""
        for record in records:
            self.count_eviction(record, 1)
        reason = self._rate_refusal(records) or (self._budget_refusal(records) if self._strict else None)
        if reason is not None:
            for record in records:
                self.count_eviction(record, -1)
        return reason

    def take_back(self, record: PodRecord) -> None:
        """Uncount a pod."""
        self.count_eviction(record, -1)

    def count_eviction(self, record: PodRecord, step: int) -> None:
        """Count a pod as evicted (1) or uncount it (-1), without checks."""
        for account, _ in rates(record):
            self._lost[account] = self._lost.get(account, 0) + step
        for budget in self._budgets(record):
            key = budget.namespace, budget.name
            self._disrupted[key] = self._disrupted.get(key, 0) + step

    def _rate_refusal(self, records: Sequence[PodRecord]) -> str | None:
        counts_by_account: dict[AccountRecord, tuple[EvictionRate, int]] = {}
        for record in records:
            for account, rate in rates(record):
                counts_by_account[account] = rate, counts_by_account.get(account, (rate, 0))[1] + 1
        for account, (rate, together) in counts_by_account.items():
            lost = self._evicted_before(account, rate) + self._lost[account]
            if lost > rate.pods and (lost > together or rate.pods <= 0):
                why = pace(account, rate)
                if self._delays is not None:
                    now = self._now
                    # A rate that this decision itself uses up is free again one window later.
                    free = self._log.free_at(account.key, now, rate, together)
                    self._delays.add_delay(why, free if free > now else now + rate.window, records)
                return why
        return None

    def _evicted_before(self, account: AccountRecord, rate: EvictionRate) -> int:
        if account not in self._gone:
            self._gone[account] = self._log.count(account.key, self._now, rate.window)
        return self._gone[account]

    def _budget_refusal(self, records: Sequence[PodRecord]) -> str | None:
        for record in records:
            for budget in self._budgets(record):
                key = budget.namespace, budget.name
                if self._disrupted[key] > self._allowed_disruptions(key) and not self._overrules(record):
                    return f"PodDisruptionBudget {budget.namespace}/{budget.name} allows no further disruption"
        return None

    def _allowed_disruptions(self, key: BudgetKey) -> int:
        """Return the number of disruptions that the budget allows beside evictions under way."""
        found = self._allowed.get(key)
        if found is None:
            if self._evicted is None:
                self._evicted = {}
                for record in self._state.pods.terminating.values():
                    for budget in self._budgets(record) if record.evicting else ():
                        name = budget.namespace, budget.name
                        self._evicted[name] = self._evicted.get(name, 0) + 1
            allowed = self._state.budgets[key[0]][key[1]].allowed
            found = self._allowed[key] = max(0, allowed - self._evicted.get(key, 0))
        return found

    def _budgets(self, record: PodRecord) -> Iterator[DisruptionBudget]:
        """Yield the budgets that a disruption of the pod is charged to."""
        pod = record.pod
        known = self._state.budgets.get(pod.namespace, {}) if pod.budgets else {}
        for name in pod.budgets:
            budget = known.get(name)
            if budget is not None and pod.name not in budget.disrupted:
                yield budget
