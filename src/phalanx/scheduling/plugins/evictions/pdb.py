"""Plugin `pdb` of Volcano: no PodDisruptionBudget is ever violated.

Without it, budgets are a preference, as in kube-scheduler: victims with fewer violations come first.
"""

from __future__ import annotations

from phalanx.plugin import EvictVeto, Plugin, PodRecord, View


class Pdb(Plugin):
    """Veto against evicting pods whose PodDisruptionBudgets allow no disruption now.

    The cost of a set of pods is counted where sets are chosen (`preemption/rules/eviction_limits.py`). Pods without
    a budget get no veto. (Volcano protects all pods without labels.)
    """

    name = "pdb"
    keeps_budgets = True
    honours_owners = True

    def evict_veto(self, session: View, record: PodRecord) -> EvictVeto | None:
        pod = record.pod
        budgets = session.state.budgets.get(pod.namespace, {}) if pod.budgets else {}
        for name in pod.budgets:
            budget = budgets.get(name)
            if budget is not None and budget.allowed <= 0 and pod.name not in budget.disrupted:
                return EvictVeto(
                    f"is counted by PodDisruptionBudget {name}, which allows no disruption now", own=True
                )
        return None
