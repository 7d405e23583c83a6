"""`pdb`: no PodDisruptionBudget is ever broken (Volcano's plugin of that name).

Without it budgets are a preference, as in kube-scheduler: what breaks fewer goes first.
"""

from __future__ import annotations

from phalanx.plugin import EvictVeto, Plugin, PodRecord, View


class Pdb(Plugin):
    """Spares pods whose budgets allow nothing now; what a set of pods may cost is counted where sets are chosen
    (`preemption/rules/eviction_limits.py`). Pods that no budget counts are not spared. (Volcano's spares all pods
    without labels.)
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
