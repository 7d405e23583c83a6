"""`drf`: who holds the smallest part of what dominates its demand comes first (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.cluster.account_paths import ROOT
from phalanx.plugin import AccountKey, AccountRecord, Arguments, GangRecord, Plugin, PodRecord, Tree, View
from phalanx.scheduling.quota.dominant_share import order_by_share
from phalanx.scheduling.quota.hdrf import HdrfNode, Hierarchy, Level, turn
from phalanx.scheduling.quota.queue_tree import Amounts, takes_part


class Drf(Plugin):
    """Gangs by the dominant share of what their members hold, pod slots included; a pod on its own holds nothing.

    With `enableHierarchy: true` queues go by hierarchical dominant resource fairness: over the tree of queues, or
    where queues carry Volcano's annotations (volcano.sh/hierarchy, -weights) over the tree that these spell. The
    leaves are queues, not single jobs as in Volcano; a queue is saturated when nothing waits in it, or something
    that waits asks for what the cluster has run out of.
    """

    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        self._hierarchical = arguments.hierarchical
        self.disabled_points = frozenset() if arguments.hierarchical else frozenset({"queue_order"})

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> float:
        if isinstance(gang, PodRecord) or not gang.allocated:
            return 0.0
        held: dict[str, int] = {}
        for footprint, count in gang.allocated.items():
            for name, amount in footprint.amounts.items():
                held[name] = held.get(name, 0) + amount * count
        return order_by_share(held.items(), session.memo("offered", lambda: _offered(session)))

    def queue_order(self, session: View, account: AccountRecord) -> tuple[Level, ...]:
        if not self._hierarchical or account.key.tree is not Tree.QUEUE:
            return ()
        session.state.ledger.refresh_sums()
        return session.memo("hierarchy of queues", lambda: QueueHierarchy(session)).turn(account)


class QueueHierarchy:
    """The hierarchy of the queues, brought up to date as queues are asked about.

    A queue's turn follows what it holds at that moment, and what queues that were asked about before held then. It
    grows as the queue gets more, but for one case that the definition brings along: what one child of a node holds
    counts less once another child begins to hold something.
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
        # Leaves come last: by then it is known which of their places have others below.
        for account in sorted(queues, key=lambda queue: not (queue.children or _spelt(queue))):
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
        spelt = _spelt(account)
        path = spelt or _path(account)
        node = leaf = self._hierarchy.node(path)
        if account.children or spelt or node.children:
            # What the queue holds itself gets a leaf below; no part of a spelt path begins with a slash.
            leaf = self._hierarchy.node([*path, ("/" + account.key.name, 1)])
        self._nodes[account.key] = leaf if spelt else node
        self._leaves[account.key] = leaf
        self._seen[account.key] = dict(account.used)
        self._hierarchy.set(leaf, _held(account), _asked(account))

    def _update(self, account: AccountRecord) -> None:
        """Takes over what the queue, and those below, hold by now."""
        if account.key not in self._leaves or account.used == self._seen[account.key]:
            return
        self._seen[account.key] = dict(account.used)
        for child in account.children.values():
            self._update(child)
        self._hierarchy.update(self._leaves[account.key], _held(account), _asked(account))

    def _exhaust(self) -> None:
        used = self._root.used
        self._seen_root = dict(used)
        self._hierarchy.exhaust(
            name for name, idle in self._idle.items() if idle <= used.get(name, 0) - self._before.get(name, 0)
        )


def _offered(session: View) -> dict[str, int]:
    return {name: offered for name, (offered, _) in session.totals().items()}


def _spelt(account: AccountRecord) -> list[tuple[str, int]]:
    """(name, weight) from below the root down, as the queue's annotations have it."""
    return list(account.spec.hierarchy[1:]) if account.spec is not None else []


def _path(account: AccountRecord) -> list[tuple[str, int]]:
    """The same as the tree of queues has it."""
    lineage = [each for each in account.lineage() if each.key != ROOT]
    return [(each.key.name, each.weight) for each in reversed(lineage)]


def _held(account: AccountRecord) -> Amounts:
    return (
        account.used if not account.children else _less(account.used, [c.used for c in account.children.values()])
    )


def _asked(account: AccountRecord) -> Amounts:
    asked = account.pending
    return asked if not account.children else _less(asked, [child.pending for child in account.children.values()])


def _less(amounts: Amounts, others: list[dict[str, int]]) -> Amounts:
    left = dict(amounts)
    for other in others:
        for name, amount in other.items():
            left[name] = left.get(name, 0) - amount
    return {name: amount for name, amount in left.items() if amount > 0}
