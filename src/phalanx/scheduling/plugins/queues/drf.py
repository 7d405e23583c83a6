"""Plugin `drf` of Volcano: the smallest dominant share is scheduled first."""

from __future__ import annotations

from phalanx.cluster.account_paths import ROOT
from phalanx.plugin import AccountKey, AccountRecord, Arguments, GangRecord, Plugin, PodRecord, Tree, View
from phalanx.scheduling.quota.dominant_share import order_by_share
from phalanx.scheduling.quota.hdrf import HdrfNode, Hierarchy, Level, turn
from phalanx.scheduling.quota.queue_tree import Amounts, takes_part


class Drf(Plugin):
    """Order of gangs by the dominant share that their members use, pod slots included. The share of a single pod is
    0.

    With `enableHierarchy: true` queues are ordered by hierarchical dominant resource fairness. The hierarchy is the
    tree of queues, or the tree in Volcano's annotations (volcano.sh/hierarchy, -weights) where queues have them.
    Leaves are queues, not jobs as in Volcano. A queue is saturated when it has no pending pods, or a pending pod
    requests a resource that the cluster has used up.
    """

    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        self._hierarchical = arguments.hierarchical
        self.disabled_points = frozenset() if arguments.hierarchical else frozenset({"queue_order"})

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> float:
        if isinstance(gang, PodRecord) or not gang.allocated:
            return 0.0
        used: dict[str, int] = {}
        for footprint, count in gang.allocated:
            for name, amount in footprint.amounts.items():
                used[name] = used.get(name, 0) + amount * count
        return order_by_share(used.items(), session.memo("drf: offered", lambda: _offered(session)))

    def queue_order(self, session: View, account: AccountRecord) -> tuple[Level, ...]:
        if not self._hierarchical or account.key.tree is not Tree.QUEUE:
            return ()
        session.state.ledger.refresh_sums()
        return session.memo("hierarchy of queues", lambda: QueueHierarchy(session)).turn(account)


class QueueHierarchy:
    """Hierarchy of the queues; the amounts of a queue are updated when its sort key is requested.

    A queue's turn depends on the amounts it uses at that moment, and on the amounts that other queues used at their
    last request. The turn grows with usage, with one exception by the definition: usage of one child of a node
    counts less once another child starts to use resources.
    """

    def __init__(self, session: View) -> None:
        accounts = session.ledger.accounts
        self._root = accounts[ROOT]
        self._idle = {name: offered - used for name, (offered, used) in session.totals().items() if offered > 0}
        self._before: Amounts = dict(self._root.used)
        self._hierarchy = Hierarchy(_offered(session))
        self._nodes: dict[AccountKey, HdrfNode] = {}
        self._leaves: dict[AccountKey, HdrfNode] = {}
        self._seen: dict[AccountKey, Amounts] = {}
        self._seen_root: Amounts = {}
        queues = [
            account
            for account in accounts.values()
            if account.key.tree is Tree.QUEUE and account is not self._root and takes_part(account)
        ]
        # Leaves are added last: by then the nodes with children are known.
        for account in sorted(queues, key=lambda queue: not (queue.children or _annotated_path(queue))):
            self._add(account)
        self._hierarchy.compute()
        self._exhaust()

    def turn(self, account: AccountRecord) -> tuple[Level, ...]:
        node = self._nodes.get(account.key)
        if node is None:
            return ()
        if self._root.used != self._seen_root:
            self._exhaust()
        self._update(account)
        return turn(node)

    def _add(self, account: AccountRecord) -> None:
        annotated = _annotated_path(account)
        path = annotated or _path(account)
        node = leaf = self._hierarchy.node(path)
        if account.children or annotated or node.children:
            # The queue's own usage gets a leaf below its node. Parts of an annotated path never begin with a slash.
            leaf = self._hierarchy.node([*path, ("/" + account.key.name, 1)])
        self._nodes[account.key] = leaf if annotated else node
        self._leaves[account.key] = leaf
        self._seen[account.key] = dict(account.used)
        self._hierarchy.set(leaf, _own_usage(account), _own_pending(account))

    def _update(self, account: AccountRecord) -> None:
        """Update the usage of the queue and its descendants in the hierarchy."""
        if account.key not in self._leaves or account.used == self._seen[account.key]:
            return
        self._seen[account.key] = dict(account.used)
        for child in account.children.values():
            self._update(child)
        self._hierarchy.update(self._leaves[account.key], _own_usage(account), _own_pending(account))

    def _exhaust(self) -> None:
        used = self._root.used
        self._seen_root = dict(used)
        self._hierarchy.exhaust(
            name for name, idle in self._idle.items() if idle <= used.get(name, 0) - self._before.get(name, 0)
        )


def _offered(session: View) -> dict[str, int]:
    return {name: offered for name, (offered, _) in session.totals().items()}


def _annotated_path(account: AccountRecord) -> list[tuple[str, int]]:
    """Return the (name, weight) path of a queue from below the root down, from its annotations."""
    return list(account.spec.hierarchy[1:]) if account.spec is not None else []


def _path(account: AccountRecord) -> list[tuple[str, int]]:
    """Return the (name, weight) path of a queue from below the root down, from the tree of queues."""
    lineage = [ancestor for ancestor in account.lineage() if ancestor.key != ROOT]
    return [(ancestor.key.name, ancestor.weight) for ancestor in reversed(lineage)]


def _own_usage(account: AccountRecord) -> Amounts:
    return (
        account.used if not account.children else _less(account.used, [c.used for c in account.children.values()])
    )


def _own_pending(account: AccountRecord) -> Amounts:
    pending = account.pending
    return (
        pending if not account.children else _less(pending, [child.pending for child in account.children.values()])
    )


def _less(amounts: Amounts, subtrahends: list[dict[str, int]]) -> Amounts:
    remainder = dict(amounts)
    for subtrahend in subtrahends:
        for name, amount in subtrahend.items():
            remainder[name] = remainder.get(name, 0) - amount
    return {name: amount for name, amount in remainder.items() if amount > 0}
