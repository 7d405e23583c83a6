"""Order of queues over all member clusters, and their limits."""

from __future__ import annotations

from phalanx.hub.choice.ledger import ClusterAccount, ClusterLedger, QueueDemand, WaitingGang
from phalanx.model.account import Account as Queue
from phalanx.model.account import AccountKey, AccountState, Tree

GPU = "nvidia.com/gpu"


def queue(name: str, parent: str = "", **fields: object) -> Queue:
    above = AccountKey(Tree.QUEUE, parent) if parent else None
    return Queue(AccountKey(Tree.QUEUE, name), parent=above, **fields)  # type: ignore[arg-type]


def gang(name: str, line: str, gpus: int, created: int = 0, priority: int = 0) -> WaitingGang:
    return WaitingGang(name, name, created, QueueDemand(line, priority, {GPU: gpus}))


def order(ledger: ClusterLedger, *gangs: WaitingGang) -> list[str]:
    return [each.name for each, refusal in ledger.in_order(gangs) if not refusal]


def clusters(**held: int) -> list[ClusterAccount]:
    """Two clusters of 32 GPUs; all usage of each queue is in the second, outside the hub's control."""
    return [
        ClusterAccount({GPU: 32}, {}),
        ClusterAccount({GPU: 32}, {name: {GPU: amount} for name, amount in held.items()}),
    ]


def test_queue_with_the_smallest_weighted_share_is_first_wherever_its_usage_is() -> None:
    queues = {"a": queue("a", weight=1), "b": queue("b", weight=4)}
    ledger = ClusterLedger(clusters(a=4, b=8), queues)
    assert order(ledger, gang("a1", "a", 4), gang("b1", "b", 4)) == ["b1", "a1"]
    assert ledger.share("a") == (4 + 4) / 64
    assert ledger.share("b") == (8 + 4) / 64 / 4


def test_gang_already_sent_counts_at_the_next_choice() -> None:
    queues = {"a": queue("a"), "b": queue("b")}
    gangs = [gang(f"a{n}", "a", 4, n) for n in range(3)] + [gang(f"b{n}", "b", 4, n) for n in range(3)]
    assert order(ClusterLedger(clusters(), queues), *gangs) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_in_a_queue_the_highest_priority_comes_first_and_then_the_oldest() -> None:
    gangs = [gang("young", "a", 1, 9), gang("old", "a", 1, 1), gang("urgent", "a", 1, 10, priority=5)]
    assert order(ClusterLedger(clusters(), {}), *gangs) == ["urgent", "old", "young"]


def test_queue_below_its_guarantee_precedes_all_other_queues() -> None:
    queues = {"a": queue("a"), "b": queue("b", guarantee=((GPU, 32),))}
    assert order(ClusterLedger(clusters(b=16), queues), gang("a1", "a", 4), gang("b1", "b", 4)) == ["b1", "a1"]


def test_limit_applies_over_all_clusters_and_so_do_limits_of_parents() -> None:
    queues = {
        "top": queue("top", capability=((GPU, 12),)),
        "a": queue("a", "top", capability=((GPU, 100),)),
        "b": queue("b", "top"),
    }
    ledger = ClusterLedger(clusters(a=6), queues)
    refusals = {each.name: why for each, why in ledger.in_order([gang("b1", "b", 6), gang("a1", "a", 1)])}
    assert refusals["b1"] == ""
    assert refusals["a1"] == f"queue top uses 12 of 12 {GPU} in all clusters, and the gang requests 1 more"


def test_nothing_is_sent_for_a_queue_that_is_closed() -> None:
    ledger = ClusterLedger(clusters(), {"a": queue("a", state=AccountState.CLOSED)})
    assert ledger.refusal(QueueDemand("a", 0, {GPU: 1})) == "queue a is closed"


def test_queues_that_are_above_each_other_do_not_hang_it_up() -> None:
    queues = {"a": queue("a", "b"), "b": queue("b", "a", capability=((GPU, 4),))}
    assert "queue b uses" in ClusterLedger(clusters(a=4), queues).refusal(QueueDemand("a", 0, {GPU: 1}))
