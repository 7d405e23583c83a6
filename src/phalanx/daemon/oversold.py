"""Whether quotas promise more than there is."""

from __future__ import annotations

from phalanx.cluster.resource_space import exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.account import Account, Tree
from phalanx.model.quantity import format_quantity

CODE = "SumMinExceedsCapacity"


class Oversold:
    """Tells, once per change, that the minima of all ElasticQuotas together (or the root of a quota tree) exceed
    what the nodes offer: then not everybody can have his minimum at once.

    The youngest of the quotas is told, which is mostly the one that went too far; nothing is scaled.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._looked: int | None = None
        self._told: dict[Tree, tuple[str, frozenset[str]]] = {}

    def look(self) -> None:
        """Compares anew if anything may have changed; the ledger must be settled."""
        version = self._state.ledger.demand_version
        if version == self._looked:
            return
        self._looked = version
        nouns = [record.noun for record in self._state.ledger.accounts.values() if record.noun is not None]
        quotas = [noun for noun in nouns if noun.key.tree is Tree.ELASTIC_QUOTA]
        roots = [noun for noun in nouns if noun.key.tree is Tree.ACK and noun.parent is None]
        if not quotas and not roots:
            self._told.clear()
            return
        offered = dict(zip(self._state.space.names, exact_sums(self._state.nodes.allocatable), strict=False))
        self._compare(Tree.ELASTIC_QUOTA, quotas, offered, "all ElasticQuotas together")
        self._compare(Tree.ACK, roots, offered, "the root of the ElasticQuotaTree")

    def _compare(self, tree: Tree, nouns: list[Account], offered: dict[str, int], whose: str) -> None:
        minima: dict[str, int] = {}
        for noun in nouns:
            for name, amount in noun.deserved or ():
                minima[name] = minima.get(name, 0) + amount
        above = sorted(name for name, amount in minima.items() if amount > offered.get(name, 0))
        if not above:
            self._told.pop(tree, None)
            return
        youngest = max(nouns, key=lambda noun: (noun.created, noun.label))
        told = (youngest.uid, frozenset(above))
        source = youngest.source
        if self._told.get(tree) == told or source is None:
            return
        self._told[tree] = told
        amounts = ", ".join(
            f"{name} {format_quantity(minima[name], name)} of {format_quantity(offered.get(name, 0), name)}"
            for name in above
        )
        about = ObjectReference(
            source.kind, source.name, source.namespace, source.uid, f"{source.group}/{source.version}"
        )
        note = f"the min of {whose} exceeds what all nodes offer: {amounts}; lower some, or add nodes"
        self._recorder.record(about, type="Warning", reason=CODE, action="Validating", note=note)
