"""Usage between the last record of a process and the start of the next one, from the pods that run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Budget, Tree
from phalanx.model.events import AccountUpdated, NodeUpdated, PodUpdated
from phalanx.model.pod import PlanMark, Pod, PodClass, PodPhase
from phalanx.scheduling.quota.usage_history import AccountUsage, UsageHistory
from phalanx.scheduling.quota.usage_since_arrival import charge_since_arrival
from tests.cluster_content import node

HOUR = 3600
DAY = 24 * HOUR
TEAM = AccountKey(Tree.QUEUE, "team")
# The window of the budget begins at START.
START = 20_000 * DAY
CPU = PodClass(requests=(("cpu", 1000),))


def world(*pods: Pod) -> ClusterState:
    state = ClusterState()
    state.apply(NodeUpdated(node(cpu=64)))
    state.apply(AccountUpdated(Account(TEAM, budget=Budget((("cpu", 10**6),), DAY))))
    for pod in pods:
        state.apply(PodUpdated(pod))
    return state


def running(name: str, **changes: Any) -> Pod:
    pod = Pod("ns", name, name, CPU, CPU.requests, "phalanx", "n1", PodPhase.RUNNING, queue="team", created=START)
    return msgspec.structs.replace(pod, **changes)


def hours(state: ClusterState, now: float, *stored: AccountUsage, half_life: float | None = None) -> float:
    """Return the CPU hours of the team at `now`, as a process finds them that starts then."""
    history = UsageHistory(half_life)
    history.restore(stored, now)
    charge_since_arrival(state, history, now)
    history.observe_all(state.ledger.accounts, now)
    return history.spent(account(state), now).get("cpu", 0) / 1000 / HOUR / 1000


def account(state: ClusterState) -> AccountRecord:
    return state.ledger.accounts[TEAM]


def stored(at: float, held: int = 0, spent: float = 0.0) -> AccountUsage:
    amounts = {"cpu": held} if held else {}
    return AccountUsage(TEAM, int(at * 1000), amounts, {}, START * 1000, {"cpu": int(spent * 1000 * HOUR * 1000)})


def test_account_without_a_record_is_charged_from_the_bindings_of_its_pods() -> None:
    pods = running("a", marked_bound=START + HOUR), running("b", mark=PlanMark("p", 1, START + 2 * HOUR))
    assert hours(world(*pods), START + 4 * HOUR) == 3 + 2


def test_pod_without_a_proof_of_its_binding_is_charged_from_its_creation() -> None:
    later = START + 3 * HOUR
    assert hours(world(running("a", bound=later, started=later)), START + 4 * HOUR) == 4


def test_pods_that_arrived_before_the_window_are_charged_from_its_beginning() -> None:
    assert hours(world(running("a", created=START - DAY)), START + HOUR) == 1


def test_pods_that_the_record_lacks_are_charged_from_their_bindings() -> None:
    pods = running("a", marked_bound=START), running("b", marked_bound=START + 2 * HOUR)
    record = stored(START + HOUR, held=1000, spent=1.0)
    assert hours(world(*pods), START + 4 * HOUR, record) == 1 + 3 + 2


def test_pod_of_the_record_that_has_ended_is_not_charged_for_its_successor() -> None:
    record = stored(START + HOUR, held=1000, spent=1.0)
    assert hours(world(running("b", marked_bound=START + 3 * HOUR)), START + 4 * HOUR, record) == 1 + 1


def test_pods_of_the_record_are_charged_once() -> None:
    record = stored(START + HOUR, held=1000, spent=1.0)
    assert hours(world(running("a", marked_bound=START)), START + 4 * HOUR, record) == 4


def test_average_includes_pods_that_the_record_lacks() -> None:
    state, history = world(running("a", marked_bound=START)), UsageHistory(float(HOUR))
    charge_since_arrival(state, history, START + HOUR)
    history.observe_all(state.ledger.accounts, START + HOUR)
    assert history.decayed(account(state), START + HOUR)["cpu"] == pytest.approx(500)


def test_account_that_this_process_has_recorded_is_not_charged_again() -> None:
    state, history = world(running("a", marked_bound=START)), UsageHistory()
    state.ledger.refresh_sums()
    history.observe_all(state.ledger.accounts, START + HOUR)
    charge_since_arrival(state, history, START + 2 * HOUR)
    assert history.spent(account(state), START + 2 * HOUR) == {"cpu": 1000 * HOUR * 1000}


def test_history_is_unchanged_without_pods_that_the_record_lacks() -> None:
    state, history = world(running("a", marked_bound=START)), UsageHistory()
    record = stored(START + HOUR, held=1000, spent=1.0)
    history.restore([record], START + 4 * HOUR)
    charge_since_arrival(state, history, START + 4 * HOUR)
    assert history.export(START + 4 * HOUR)[0].spent == {"cpu": 4 * 1000 * HOUR * 1000}
