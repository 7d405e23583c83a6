"""Pod enrichers: properties of a pod that other objects decide, such as volumes, claims and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from phalanx.dialects.core import NodeObject, PodObject
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass

T = TypeVar("T")

Changes = tuple[Sequence[ClusterEvent], AbstractSet[str]]
"""Events for the cluster state, and the uids of pods that have to be enriched again."""

ObjectChanges = tuple[Sequence[ClusterEvent], AbstractSet[str] | Callable[[Pod], bool]]
"""Changes that an object causes. Instead of uids an enricher can return a predicate for known pods (as their own
objects declare them), so it needs no index of pods for objects that are rare."""

NO_CHANGES: Changes = ((), frozenset())


def no_changes() -> Changes:
    return NO_CHANGES


class PodEnricher:
    """Resolves one aspect of pods that the pod spec alone does not determine.

    The intake passes every pod, node and namespace, and every object of `kinds`, to each enricher. `enriched`
    returns a pod in its final form for the scheduler. The result depends on the existing objects, not on their
    order of arrival.
    """

    kinds: tuple[WantedKind, ...] = ()

    @property
    def wanted(self) -> tuple[WantedKind, ...]:
        """Kinds among `kinds` with objects that are needed at present."""
        return self.kinds

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        """Process an added or changed pod. The result names the pod's own uid only if it has to be enriched again
        although `spec` is unchanged."""
        return no_changes()

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        """Return whether `pod` can have to process pods written like this one: with its spec, labels, annotations
        and owners. If it need not, for two versions of a pod, it is not called for the second one."""
        return True

    def pod_gone(self, spec: Pod) -> Changes:
        return no_changes()

    @property
    def idle(self) -> bool:
        """Whether `enriched` returns every pod unchanged, so that the intake can skip this enricher; evaluated
        again after each change of any kind."""
        return False

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        """Return the pod as the scheduler sees it, completed with the properties from other objects; `gang` is the
        gang of the pod."""
        return spec

    def node(self, node: NodeObject) -> Changes:
        return no_changes()

    def node_gone(self, name: str) -> Changes:
        return no_changes()

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        """Process the labels of a namespace; None means that the namespace was deleted."""
        return no_changes()

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        """Process changed queues and quotas; return the queues of pods to enrich again."""
        return set()

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        """Process an added or changed object of one of this enricher's `kinds`, as the API serves it."""
        return no_changes()

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> ObjectChanges:
        """Process an object of one of this enricher's `kinds` that cannot be decoded."""
        return self.removed(kind, namespace, name)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return no_changes()

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        """Process a kind that the API no longer serves, or that the scheduler cannot read: all its objects are
        gone."""
        return no_changes()


class PodEnrichers:
    """All pod enrichers as one. A method that an enricher does not override is not called."""

    def __init__(self, enrichers: Iterable[PodEnricher]) -> None:
        all_enrichers = tuple(enrichers)
        self._every = all_enrichers
        self._of_kind = {
            (kind.group, kind.plural): enricher for enricher in all_enrichers for kind in enricher.kinds
        }
        # By bit of a set of enrichers.
        self._pods = {
            1 << number: enricher
            for number, enricher in enumerate(all_enrichers)
            if type(enricher).pod is not PodEnricher.pod
        }
        self._gone = [
            enricher.pod_gone for enricher in all_enrichers if type(enricher).pod_gone is not PodEnricher.pod_gone
        ]
        self._enriching = [
            enricher for enricher in all_enrichers if type(enricher).enriched is not PodEnricher.enriched
        ]
        self._active: list[Callable[[Pod, Gang | None], Pod]] = []
        self._nodes = [enricher.node for enricher in all_enrichers if type(enricher).node is not PodEnricher.node]
        self._nodes_gone = [
            enricher.node_gone
            for enricher in all_enrichers
            if type(enricher).node_gone is not PodEnricher.node_gone
        ]
        self._namespaces = [
            enricher.namespace
            for enricher in all_enrichers
            if type(enricher).namespace is not PodEnricher.namespace
        ]
        self._refresh_active(None)

    def _refresh_active(self, result: T) -> T:
        """Determine again which enrichers are active, and return `result`: most clusters have objects for few of
        them, and every pod passes the active ones."""
        self._active = [enricher.enriched for enricher in self._enriching if not enricher.idle]
        return result

    @property
    def kinds(self) -> tuple[WantedKind, ...]:
        """Kinds of objects that the enrichers need watched."""
        return tuple(kind for enricher in self._every for kind in enricher.wanted)

    def concerned(self, pod: PodObject, pod_class: PodClass) -> int:
        """Return the set of enrichers that pods written like this one concern, as bits of a number."""
        return sum(bit for bit, enricher in self._pods.items() if enricher.concerns(pod, pod_class))

    def pod(self, pod: PodObject, spec: Pod, concerned: int) -> Changes:
        """Process an added or changed pod by the enrichers that this version or the last one concerns."""
        # A loop without a generator: every change of such pods passes here.
        changes = [
            change
            for bit, enricher in self._pods.items()
            if concerned & bit and (change := enricher.pod(pod, spec)) is not NO_CHANGES
        ]
        return self._refresh_active(_all(changes)) if changes else NO_CHANGES

    def pod_gone(self, spec: Pod) -> Changes:
        return _all(pod_gone(spec) for pod_gone in self._gone)

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        for enrich in self._active:
            spec = enrich(spec, gang)
        return spec

    def node(self, node: NodeObject) -> Changes:
        return self._refresh_active(_all(node_changed(node) for node_changed in self._nodes))

    def node_gone(self, name: str) -> Changes:
        return self._refresh_active(_all(node_gone(name) for node_gone in self._nodes_gone))

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        return self._refresh_active(_all(namespace_changed(name, labels) for namespace_changed in self._namespaces))

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        return self._refresh_active(
            set[str]().union(*(enricher.accounts_changed(events) for enricher in self._every))
        )

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        return self._refresh_active(self._of(kind).updated(kind, document))

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> ObjectChanges:
        return self._refresh_active(self._of(kind).malformed(kind, namespace, name, uid, error))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return self._refresh_active(self._of(kind).removed(kind, namespace, name))

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        return self._refresh_active(self._of(kind).unserved(kind))

    def __contains__(self, kind: ServedKind) -> bool:
        return (kind.group, kind.plural) in self._of_kind

    def _of(self, kind: ServedKind) -> PodEnricher:
        return self._of_kind[kind.group, kind.plural]


def _all(changes: Iterable[Changes]) -> Changes:
    events: list[ClusterEvent] = []
    touched: set[str] = set()
    for facts, uids in changes:
        if facts:
            events += facts
        if uids:
            touched |= uids
    return events, touched
