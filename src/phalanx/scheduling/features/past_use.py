"""Usage history of accounts, for policies with usage decay and for accounts with a budget."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.framework.capabilities import UsageDecay
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.session.cycle_plugin import CyclePlugin


class PastUse(CyclePlugin):
    """Recorder of the accounts' usage over time, where the policy or a budget needs it."""

    name = "past-use"

    def __init__(self, state: ClusterState, history: UsageHistory) -> None:
        self._state = state
        self._history = history
        self._decay = UsageDecay()

    def configure(self, policy: Policy) -> None:
        self._decay = policy.usage_decay

    def observe(self, now: float) -> None:
        ledger = self._state.ledger
        changed = self._history.configure(self._decay.half_life, self._decay.denied, now)
        if self._decay.half_life is None and not ledger.budgeted and not changed:
            ledger.forget_moved()
            self._history.clear()
            return
        moved = ledger.take_moved()
        if moved is None or changed:
            self._history.observe_all(ledger.accounts, now)
        else:
            self._history.observe(moved.values(), now)
