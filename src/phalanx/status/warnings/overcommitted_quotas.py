"""Warnings about quotas whose guaranteed amounts exceed the nodes or their parent."""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.kube.events import EventRecorder
from phalanx.model.account import Account, AccountKey, Limits, Tree
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.status.event_publisher import object_reference

CODE = "SumMinExceedsCapacity"
GUARANTEES = "GuaranteesExceedCapacity"
CHILDREN = "ChildrenMinExceedsMin"


class OvercommittedQuotas:
    """Warnings, once per change, about guaranteed amounts that cannot be met at the same time.

    Compared are the minima of all ElasticQuotas (or of the root of a quota tree) and the guarantees of all queues
    with the nodes, and those of children with their parent. (The reader of an ACK tree warns about its object.) The
    warning is recorded on the youngest account that names the resource, usually the cause; amounts are not scaled.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._looked: int | None = None
        self._told: dict[Tree | AccountKey, tuple[str, frozenset[str]]] = {}

    def warn_of_changes(self) -> None:
        """Compare the guaranteed sums again if queues, quotas or nodes have changed; the ledger must be
        refreshed."""
        version = self._state.ledger.shape_version
        if version == self._looked:
            return
        self._looked = version
        specs = [record.spec for record in self._state.ledger.accounts.values() if record.spec is not None]
        quotas = [spec for spec in specs if spec.key.tree is Tree.ELASTIC_QUOTA]
        roots = [spec for spec in specs if spec.key.tree is Tree.ACK and spec.parent is None]
        guaranteed = {spec.key for spec in specs if spec.key.tree is Tree.QUEUE and spec.guarantee}
        # A guarantee below another one is part of that.
        queues = [spec for spec in specs if spec.key in guaranteed and spec.parent not in guaranteed]
        trees = [spec for spec in specs if spec.key.tree is Tree.KOORDINATOR]
        if not quotas and not roots and not queues and not trees:
            self._told.clear()
            return
        offered = dict(zip(self._state.space.names, exact_sums(self._state.nodes.allocatable), strict=False))
        self._compare(Tree.ELASTIC_QUOTA, quotas, offered, "the min of all ElasticQuotas together exceeds")
        self._compare(Tree.ACK, roots, offered, "the min of the root of the ElasticQuotaTree exceeds")
        self._compare(Tree.QUEUE, queues, offered, "the guarantees of all queues together exceed")
        for record in self._state.ledger.accounts.values():
            if record.spec is None or not record.children:
                continue
            if record.key.tree is Tree.QUEUE:
                self._compare_guarantees(record, record.spec)
            elif record.key.tree is Tree.KOORDINATOR:
                self._compare_minima(record, record.spec, offered)

    def _compare_guarantees(self, queue: AccountRecord, spec: Account) -> None:
        below = [child.spec for child in queue.children.values() if child.spec and child.spec.guarantee]
        capability = dict(spec.capability)
        limits = {name: capability.get(name, UNLIMITED) for each in below for name, _ in each.guarantee}
        sentence = f"the guarantees of the queues below {queue.label} together exceed"
        self._compare(queue.key, below, limits, sentence, "its capability", "raise that")

    def _compare_minima(self, quota: AccountRecord, spec: Account, offered: dict[str, int]) -> None:
        """Compare the sum of the min of Koordinator quotas with their parent; the built-in root has the amounts of
        all nodes, a pool's root those of its pool."""
        below = [child.spec for child in quota.children.values() if child.spec is not None]
        sentence = f"the min of the quotas below {quota.label} together exceed"
        if spec.total is not None:
            self._compare(
                quota.key, below, dict(spec.total), sentence, "what its pool has", "add nodes", reason=CODE
            )
        elif quota.parent is None and not spec.deserved:
            # (The trees of pools stand beside the others, each with a root of this name.)
            if not quota.key.forest:
                self._compare(quota.key, below, offered, sentence, reason=CODE)
        else:
            minimum = dict(spec.deserved or ())
            self._compare(quota.key, below, minimum, sentence, "its min", "raise that", reason=CHILDREN)

    def _compare(
        self,
        tree: Tree | AccountKey,
        specs: list[Account],
        offered: dict[str, int],
        sentence: str,
        whole: str = "what all nodes offer",
        remedy: str = "add nodes",
        reason: str = "",
    ) -> None:
        minima: dict[str, int] = {}
        for spec in specs:
            for name, amount in _promised(spec):
                minima[name] = minima.get(name, 0) + amount
        above = sorted(name for name, amount in minima.items() if amount > offered.get(name, 0))
        if not above:
            self._told.pop(tree, None)
            return
        concerned = [spec for spec in specs if any(name in above and amount for name, amount in _promised(spec))]
        youngest = max(concerned, key=lambda spec: (spec.created, spec.label))
        told = (youngest.uid, frozenset(above))
        source = youngest.source
        if self._told.get(tree) == told or source is None:
            return
        self._told[tree] = told
        amounts = ", ".join(
            f"{name} {format_quantity(minima[name], name)} of {format_quantity(offered.get(name, 0), name)}"
            for name in above
        )
        about = object_reference(source)
        # (What the guarantees of older queues leave no room for is not kept: see cluster/account_paths.py.)
        queues = (tree.tree if isinstance(tree, AccountKey) else tree) is Tree.QUEUE
        until = "; until then the youngest that do not fit are not kept" if queues else ""
        note = f"{sentence} {whole}: {amounts}; lower some, or {remedy}{until}"
        reason = reason or (GUARANTEES if queues else CODE)
        self._recorder.record(about, type="Warning", reason=reason, action="Validating", note=note, once=True)


def _promised(spec: Account) -> Limits:
    """Return the guaranteed amounts of a queue (guarantee) or quota (min)."""
    if spec.key.tree is Tree.QUEUE:
        return spec.guarantee
    return spec.deserved or ()
