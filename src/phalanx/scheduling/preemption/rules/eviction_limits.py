"""How many pods may go at all: disruption budgets, and how fast an account may lose pods."""

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
    """Pods that may not go yet because others of their accounts went a moment ago: why, and when that ends."""

    def __init__(self) -> None:
        self.until: float | None = None
        self._pods: dict[str, set[str]] = {}

    def add_delay(self, why: str, until: float, records: Sequence[PodRecord]) -> None:
        self.until = until if self.until is None else min(self.until, until)
        self._pods.setdefault(why, set()).update(record.pod.uid for record in records)

    def counts(self) -> dict[str, int]:
        """why -> how many pods."""
        return {why: len(pods) for why, pods in self._pods.items()}


class EvictionLimits:
    """What the set of all pods that one decision evicts must keep to; one per decision, pods are added one by one.

    Within a window an account loses no more pods than its rate says; more at once only as one unit
    (`try_evict_all`) while nothing else went. Of a PodDisruptionBudget the decision breaks as little as it can:
    `violations` counts the pods beyond what budgets allow, each in every budget that counts it; with the plugin
    `pdb`, or through the Eviction API, it breaks none. (With the plugin it may break those of pods whose owners'
    word does not count, as `overrules` says; what the API server refuses it refuses.) Whoever was told to leave
    already counts until he is gone: budgets are told late.
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
        # Where the API server keeps the budgets, a decision that breaks one would be refused in the midst of it.
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
        return sum(max(0, count - self._left(key)) for key, count in self._disrupted.items())

    def try_evict(self, record: PodRecord) -> str | None:
        """Counts a pod as going; why it may not, and then nothing is counted."""
        return self.try_evict_all((record,))

    def try_evict_all(self, records: Sequence[PodRecord]) -> str | None:
        """Counts pods that go together or not at all; why they may not, and then nothing is counted."""
        for record in records:
            self.count_eviction(record, 1)
        reason = self._too_fast(records) or (self._too_many(records) if self._strict else None)
        if reason is not None:
            for record in records:
                self.count_eviction(record, -1)
        return reason

    def take_back(self, record: PodRecord) -> None:
        """A pod that was taken stays after all."""
        self.count_eviction(record, -1)

    def count_eviction(self, record: PodRecord, step: int) -> None:
        """Counts a pod as going (1) or as staying after all (-1), whatever that breaks."""
        for account, _ in rates(record):
            self._lost[account] = self._lost.get(account, 0) + step
        for budget in self._budgets(record):
            key = budget.namespace, budget.name
            self._disrupted[key] = self._disrupted.get(key, 0) + step

    def _too_fast(self, records: Sequence[PodRecord]) -> str | None:
        mine: dict[AccountRecord, tuple[EvictionRate, int]] = {}
        for record in records:
            for account, rate in rates(record):
                mine[account] = rate, mine.get(account, (rate, 0))[1] + 1
        for account, (rate, together) in mine.items():
            lost = self._before(account, rate) + self._lost[account]
            if lost > rate.pods and (lost > together or rate.pods <= 0):
                why = pace(account, rate)
                if self._delays is not None:
                    now = self._now
                    # When something of this very decision is in the way, the next decision is a window later.
                    free = self._log.free_at(account.key, now, rate, together)
                    self._delays.add_delay(why, free if free > now else now + rate.window, records)
                return why
        return None

    def _before(self, account: AccountRecord, rate: EvictionRate) -> int:
        if account not in self._gone:
            self._gone[account] = self._log.count(account.key, self._now, rate.window)
        return self._gone[account]

    def _too_many(self, records: Sequence[PodRecord]) -> str | None:
        for record in records:
            for budget in self._budgets(record):
                key = budget.namespace, budget.name
                if self._disrupted[key] > self._left(key) and not self._overrules(record):
                    return f"PodDisruptionBudget {budget.namespace}/{budget.name} allows no further disruption"
        return None

    def _left(self, key: BudgetKey) -> int:
        """What the budget allows beside those that were told to leave before."""
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
        """The budgets that a disruption of the pod costs something."""
        pod = record.pod
        known = self._state.budgets.get(pod.namespace, {}) if pod.budgets else {}
        for name in pod.budgets:
            budget = known.get(name)
            if budget is not None and pod.name not in budget.disrupted:
                yield budget
