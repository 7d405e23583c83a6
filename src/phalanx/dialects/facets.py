"""What other objects decide about a pod: its volumes, its claims, its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.dialects.core import NodeObject, PodObject
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod

News = tuple[list[ClusterEvent], set[str]]
"""Facts for the state, and the uids of pods that are to be shown anew."""


def nothing() -> News:
    return [], set()


class Facet:
    """One side of a pod that its spec alone does not settle.

    The intake tells a facet of every pod, node and namespace, and of every object of its `kinds`; it asks how each
    pod is to be `shown` to the scheduler. The answers depend on what exists, not on the order in which it came.
    """

    kinds: tuple[WantedKind, ...] = ()

    def pod(self, pod: PodObject, noun: Pod) -> News:
        """A pod came or changed; it need not name the pod itself unless it is to be shown although `noun` is as
        it was."""
        return nothing()

    def pod_gone(self, noun: Pod) -> News:
        return nothing()

    def shown(self, noun: Pod, gang: Gang | None) -> Pod:
        """The pod as the scheduler is to see it; `gang` is the one that it is a member of."""
        return noun

    def node(self, node: NodeObject) -> News:
        return nothing()

    def node_gone(self, name: str) -> News:
        return nothing()

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> News:
        """A namespace's labels; None where it is gone."""
        return nothing()

    def take(self, kind: ServedKind, document: Document) -> News:
        """An object of one of its kinds, as its API serves it."""
        return nothing()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> News:
        """One that cannot be decoded."""
        return self.removed(kind, namespace, name)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> News:
        return nothing()

    def unserved(self, kind: ServedKind) -> News:
        """The API does not serve the kind any more (or we may not read it): none of its objects count."""
        return nothing()


class Facets:
    """All facets as one."""

    def __init__(self, facets: Iterable[Facet]) -> None:
        self._facets = tuple(facets)
        self.kinds = tuple(kind for facet in self._facets for kind in facet.kinds)
        self._of_kind = {(kind.group, kind.plural): facet for facet in self._facets for kind in facet.kinds}

    def pod(self, pod: PodObject, noun: Pod) -> News:
        return _all(facet.pod(pod, noun) for facet in self._facets)

    def pod_gone(self, noun: Pod) -> News:
        return _all(facet.pod_gone(noun) for facet in self._facets)

    def shown(self, noun: Pod, gang: Gang | None) -> Pod:
        for facet in self._facets:
            noun = facet.shown(noun, gang)
        return noun

    def node(self, node: NodeObject) -> News:
        return _all(facet.node(node) for facet in self._facets)

    def node_gone(self, name: str) -> News:
        return _all(facet.node_gone(name) for facet in self._facets)

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> News:
        return _all(facet.namespace(name, labels) for facet in self._facets)

    def take(self, kind: ServedKind, document: Document) -> News:
        return self._of(kind).take(kind, document)

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> News:
        return self._of(kind).malformed(kind, namespace, name, uid, error)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> News:
        return self._of(kind).removed(kind, namespace, name)

    def unserved(self, kind: ServedKind) -> News:
        return self._of(kind).unserved(kind)

    def __contains__(self, kind: ServedKind) -> bool:
        return (kind.group, kind.plural) in self._of_kind

    def _of(self, kind: ServedKind) -> Facet:
        return self._of_kind[kind.group, kind.plural]


def _all(news: Iterable[News]) -> News:
    events: list[ClusterEvent] = []
    touched: set[str] = set()
    for facts, uids in news:
        events += facts
        touched |= uids
    return events, touched
