"""Whether quotas promise more than there is."""

from __future__ import annotations

from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.kube.events import EventRecorder
from phalanx.model.account import Account, AccountKey, Limits, Tree
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.status.event_publisher import object_reference

CODE = "SumMinExceedsCapacity"
GUARANTEES = "GuaranteesExceedCapacity"


class OvercommittedQuotas:
    """Tells, once per change, that the minima of all ElasticQuotas together (or the root of a quota tree), or the
    guarantees of all queues together, exceed what the nodes offer: then not everybody can have his at once.

    The youngest of those that name such a resource is told, which is mostly the one that went too far; nothing is
    scaled.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._looked: int | None = None
        self._told: dict[Tree | AccountKey, tuple[str, frozenset[str]]] = {}

    def warn_of_changes(self) -> None:
        """Compares anew if anything may have changed; the ledger must be settled."""
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
        if not quotas and not roots and not queues:
            self._told.clear()
            return
        offered = dict(zip(self._state.space.names, exact_sums(self._state.nodes.allocatable), strict=False))
        self._compare(Tree.ELASTIC_QUOTA, quotas, offered, "the min of all ElasticQuotas together exceeds")
        self._compare(Tree.ACK, roots, offered, "the min of the root of the ElasticQuotaTree exceeds")
        self._compare(Tree.QUEUE, queues, offered, "the guarantees of all queues together exceed")
        for record in self._state.ledger.accounts.values():
            parent = record.spec
            if parent is None or record.key.tree is not Tree.QUEUE or not record.children or not parent.capability:
                continue
            below = [spec for child in record.children.values() if (spec := child.spec) and spec.guarantee]
            capability = dict(parent.capability)
            limits = {name: capability.get(name, UNLIMITED) for spec in below for name, _ in spec.guarantee}
            sentence = f"the guarantees of the queues below {record.label} together exceed"
            self._compare(record.key, below, limits, sentence, "its capability", "raise that")

    def _compare(
        self,
        tree: Tree | AccountKey,
        specs: list[Account],
        offered: dict[str, int],
        sentence: str,
        whole: str = "what all nodes offer",
        remedy: str = "add nodes",
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
        queues = tree is Tree.QUEUE or isinstance(tree, AccountKey)
        until = "; until then the youngest that do not fit are not kept" if queues else ""
        note = f"{sentence} {whole}: {amounts}; lower some, or {remedy}{until}"
        reason = GUARANTEES if queues else CODE
        self._recorder.record(about, type="Warning", reason=reason, action="Validating", note=note)


def _promised(spec: Account) -> Limits:
    """What is to be there for the account whenever it wants it."""
    if spec.key.tree is Tree.QUEUE:
        return spec.guarantee
    return spec.deserved or ()
