"""What other objects decide about a pod: its volumes, its claims, its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from phalanx.dialects.core import NodeObject, PodObject
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod

T = TypeVar("T")

Changes = tuple[Sequence[ClusterEvent], AbstractSet[str]]
"""Facts for the state, and the uids of pods that are to be enriched anew."""

ObjectChanges = tuple[Sequence[ClusterEvent], AbstractSet[str] | Callable[[Pod], bool]]
"""What an object changes: likewise, or which of all pods, as their own objects have them, that are known. So nobody
has to keep in mind whom an object that hardly any cluster has would concern."""

_NO_CHANGES: Changes = ((), frozenset())


def no_changes() -> Changes:
    return _NO_CHANGES


class PodEnricher:
    """Decides one side of a pod that its spec alone does not settle.

    The intake tells an enricher of every pod, node and namespace, and of every object of its `kinds`; it asks for
    each pod as the scheduler is to see it, `enriched`. The answers depend on what exists, not on the order in
    which it came.
    """

    kinds: tuple[WantedKind, ...] = ()

    @property
    def wanted(self) -> tuple[WantedKind, ...]:
        """Those of its kinds whose objects anybody needs by now."""
        return self.kinds

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        """A pod came or changed; it need not name the pod itself unless it is to be enriched anew although `spec`
        is as it was."""
        return no_changes()

    def pod_gone(self, spec: Pod) -> Changes:
        return no_changes()

    @property
    def idle(self) -> bool:
        """Whether `enriched` gives every pod back as it is; it is asked again after news of any kind."""
        return False

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        """The pod as the scheduler is to see it; `gang` is the one that it is a member of."""
        return spec

    def node(self, node: NodeObject) -> Changes:
        return no_changes()

    def node_gone(self, name: str) -> Changes:
        return no_changes()

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        """A namespace's labels; None where it is gone."""
        return no_changes()

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        """News of queues and quotas; the queues of which the pods are to be enriched anew."""
        return set()

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        """An object of one of its kinds, as its API serves it."""
        return no_changes()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> ObjectChanges:
        """One that cannot be decoded."""
        return self.removed(kind, namespace, name)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return no_changes()

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        """The API does not serve the kind any more (or we may not read it): none of its objects count."""
        return no_changes()


class PodEnrichers:
    """All enrichers as one. Those that have nothing to say about a kind of change are not asked."""

    def __init__(self, enrichers: Iterable[PodEnricher]) -> None:
        every = tuple(enrichers)
        self._every = every
        self._of_kind = {(kind.group, kind.plural): enricher for enricher in every for kind in enricher.kinds}
        self._pods = [enricher.pod for enricher in every if type(enricher).pod is not PodEnricher.pod]
        self._gone = [
            enricher.pod_gone for enricher in every if type(enricher).pod_gone is not PodEnricher.pod_gone
        ]
        self._enriching = [each for each in every if type(each).enriched is not PodEnricher.enriched]
        self._awake: list[Callable[[Pod, Gang | None], Pod]] = []
        self._nodes = [enricher.node for enricher in every if type(enricher).node is not PodEnricher.node]
        self._lost = [
            enricher.node_gone for enricher in every if type(enricher).node_gone is not PodEnricher.node_gone
        ]
        self._spaces = [
            enricher.namespace for enricher in every if type(enricher).namespace is not PodEnricher.namespace
        ]
        self._after(None)

    def _after(self, news: T) -> T:
        """(Most clusters have hardly any of the objects that enrichers are for, and every pod passes them.)"""
        self._awake = [each.enriched for each in self._enriching if not each.idle]
        return news

    @property
    def kinds(self) -> tuple[WantedKind, ...]:
        """Whose objects are to be watched."""
        return tuple(kind for enricher in self._every for kind in enricher.wanted)

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        # (Not by a generator: every change of every pod passes here.)
        news = [each for tell in self._pods if (each := tell(pod, spec)) is not _NO_CHANGES]
        return self._after(_all(news)) if news else _NO_CHANGES

    def pod_gone(self, spec: Pod) -> Changes:
        return _all(tell(spec) for tell in self._gone)

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        for show in self._awake:
            spec = show(spec, gang)
        return spec

    def node(self, node: NodeObject) -> Changes:
        return self._after(_all(tell(node) for tell in self._nodes))

    def node_gone(self, name: str) -> Changes:
        return self._after(_all(tell(name) for tell in self._lost))

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        return self._after(_all(tell(name, labels) for tell in self._spaces))

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        return self._after(set[str]().union(*(enricher.accounts_changed(events) for enricher in self._every)))

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        return self._after(self._of(kind).updated(kind, document))

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> ObjectChanges:
        return self._after(self._of(kind).malformed(kind, namespace, name, uid, error))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return self._after(self._of(kind).removed(kind, namespace, name))

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        return self._after(self._of(kind).unserved(kind))

    def __contains__(self, kind: ServedKind) -> bool:
        return (kind.group, kind.plural) in self._of_kind

    def _of(self, kind: ServedKind) -> PodEnricher:
        return self._of_kind[kind.group, kind.plural]


def _all(news: Iterable[Changes]) -> Changes:
    events: list[ClusterEvent] = []
    touched: set[str] = set()
    for facts, uids in news:
        if facts:
            events += facts
        if uids:
            touched |= uids
    return events, touched
