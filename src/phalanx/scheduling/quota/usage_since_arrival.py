"""Usage between the last record of an earlier process and now, from the pods that run."""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import NO_NODE
from phalanx.cluster.state import ClusterState
from phalanx.model.account import AccountKey
from phalanx.model.pod import Pod, proved_binding
from phalanx.scheduling.quota.usage_history import Arrival, UsageHistory


def charge_since_arrival(state: ClusterState, history: UsageHistory, now: float) -> None:
    """Charge accounts for pods that run now, from their arrival on, as far as the restored history lacks them.

    It is called once, after the history is restored and before the first cycle.
    """
    state.ledger.refresh_sums()
    if not (state.ledger.budgeted or history.decays):
        return
    arrivals: dict[AccountKey, tuple[AccountRecord, list[Arrival]]] = {}
    for record in state.pods.values():
        if record.row == NO_NODE or record.charge_path is None or record.charged_footprint is None:
            continue
        arrival = Arrival(arrived_at(record.pod) * 1000, record.charged_footprint.amounts)
        for account in record.charge_path.path:
            arrivals.setdefault(account.key, (account, []))[1].append(arrival)
    for account, pods in arrivals.values():
        history.charge_since(account, pods, now)


def arrived_at(pod: Pod) -> int:
    """Return the time from which a pod is charged: its proved binding, else its creation. No tenant can change
    either.
    """
    return proved_binding(pod) or pod.created
