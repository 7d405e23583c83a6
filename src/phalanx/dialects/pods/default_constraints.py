"""Default spread constraints for pods of a Service or workload that state none: kube-scheduler's system defaults.

They are preferred, not required: a skew of 3 over hosts and of 5 over zones, among the pods that match the
selectors of the pod's Services and of its controller (helper.DefaultSelector, PodTopologySpread's defaultingType
System).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.label_selectors import IllegibleSelectorError, read_selector
from phalanx.dialects.pods.known_pods import KnownPods
from phalanx.dialects.reader import Document
from phalanx.model.gang import Gang
from phalanx.model.peers import Peers, PodSelection, Selector, Spread, selects
from phalanx.model.pod import Pod, PodClass
from phalanx.model.selectors import Requirement

_SERVICE = "Service"
# Kinds with a selector, which defines the pods to spread.
_KINDS = (
    WantedKind("", "services", _SERVICE, ("v1",)),
    WantedKind("", "replicationcontrollers", "ReplicationController", ("v1",)),
    WantedKind("apps", "replicasets", "ReplicaSet", ("v1",)),
    WantedKind("apps", "statefulsets", "StatefulSet", ("v1",)),
)
_OWNERS = frozenset(kind.kind for kind in _KINDS if kind.kind != _SERVICE)
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# Limit for pairs of a class and its counterpart; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


Labels = tuple[tuple[str, str], ...]
# Kind and name of a controller.
Owner = tuple[str, str]
K = TypeVar("K", bound=Hashable)


class DefaultConstraints(PodEnricher):
    """Adds kube-scheduler's default spread constraints to pods without constraints of their own."""

    kinds = _KINDS

    def __init__(self, pods: KnownPods) -> None:
        """Create the enricher. `pods` are all known pods; the intake updates them."""
        self._pods = pods
        # Selectors by kind and namespace, then by object name.
        self._selectors: dict[tuple[str, str], dict[str, Selector]] = {}
        # Relevant controllers of pods by uid; and the uids by namespace and controller.
        self._owners: dict[str, Owner] = {}
        self._owned: dict[tuple[str, Owner], dict[str, None]] = {}
        # Requirements of the matching Services by namespace, then by pod labels.
        self._served: dict[str, dict[Labels, frozenset[Requirement]]] = {}
        self._twins: dict[tuple[PodClass, Selector, str], PodClass] = {}

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        controller = controlling_owner(pod.metadata)
        return controller is not None and controller.kind in _OWNERS

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        controller = controlling_owner(pod.metadata)
        owner = (
            (controller.kind, controller.name) if controller is not None and controller.kind in _OWNERS else None
        )
        if self._owners.get(spec.uid) != owner:
            self.pod_gone(spec)
            if owner is not None:
                self._owners[spec.uid] = owner
                self._owned.setdefault((spec.namespace, owner), {})[spec.uid] = None
        return no_changes()

    def pod_gone(self, spec: Pod) -> Changes:
        owner = self._owners.pop(spec.uid, None)
        if owner is not None:
            _discard(self._owned, (spec.namespace, owner), spec.uid)
        return no_changes()

    @property
    def idle(self) -> bool:
        return not self._selectors

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        pod_class = spec.pod_class
        if not self._selectors or pod_class.peers.spread:
            return spec
        selector = self._selector(spec.namespace, spec.labels, self._owners.get(spec.uid))
        if not selector:
            return spec
        key = (pod_class, selector, spec.namespace)
        twin = self._twins.get(key)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[key] = msgspec.structs.replace(
                pod_class, peers=_with_default_spread(pod_class.peers, PodSelection(selector, (spec.namespace,)))
            )
        return msgspec.structs.replace(spec, pod_class=twin)

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        metadata, spec = document["metadata"], document.get("spec")
        stated = spec.get("selector") if isinstance(spec, Mapping) else None
        return self._replace(kind, str(metadata.get("namespace") or ""), str(metadata["name"]), _read(kind, stated))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        return self._replace(kind, namespace, name, ())

    def unserved(self, kind: ServedKind) -> Changes:
        addresses = [
            (space, name)
            for (kind_name, space), names in self._selectors.items()
            if kind_name == kind.kind
            for name in names
        ]
        touched: set[str] = set()
        for namespace, name in addresses:
            touched |= self._replace(kind, namespace, name, ())[1]
        return [], touched

    def _replace(self, kind: ServedKind, namespace: str, name: str, selector: Selector) -> Changes:
        """Replace the pod selector of a Service or workload object; () means that it is gone."""
        known = self._selectors.setdefault((kind.kind, namespace), {})
        last = known.pop(name, ())
        if selector:
            known[name] = selector
        if not known:
            del self._selectors[kind.kind, namespace]
        if last == selector:
            return no_changes()
        if kind.kind != _SERVICE:
            return [], set(self._owned.get((namespace, (kind.kind, name)), ()))
        self._served.pop(namespace, None)
        selectors = [stated for stated in (last, selector) if stated]
        return [], {
            record.pod.uid
            for record in self._pods.of_namespace(namespace)
            if any(selects(stated, dict(record.pod.labels)) for stated in selectors)
        }

    def _selector(self, namespace: str, labels: Labels, owner: Owner | None) -> Selector:
        """Return the combined requirements of all Services that select the pod, and of its controller; () for
        none."""
        requirements = self._asked_by_services(namespace, labels)
        if owner is not None:
            kind, name = owner
            requirements |= frozenset(self._selectors.get((kind, namespace), {}).get(name, ()))
        return _sorted(requirements) if requirements else ()

    def _asked_by_services(self, namespace: str, labels: Labels) -> frozenset[Requirement]:
        services = self._selectors.get((_SERVICE, namespace))
        if not services:
            return frozenset()
        served = self._served.setdefault(namespace, {})
        requirements = served.get(labels)
        if requirements is None:
            if len(served) >= _CACHE_SIZE:
                served.clear()
            own = dict(labels)
            selectors = (selector for selector in services.values() if selects(selector, own))
            requirements = served[labels] = frozenset(
                requirement for selector in selectors for requirement in selector
            )
        return requirements


def _discard(uids: dict[K, dict[str, None]], key: K, uid: str) -> None:
    del uids[key][uid]
    if not uids[key]:
        del uids[key]


def _read(kind: ServedKind, stated: object) -> Selector:
    """Decode the pod selector of a Service or workload; an unreadable one selects no pod. Services and
    ReplicationControllers have plain pairs."""
    if kind.kind in (_SERVICE, "ReplicationController"):
        stated = {"matchLabels": stated}
    try:
        return _sorted(read_selector(stated)) if stated else ()
    except IllegibleSelectorError:
        return ()


def _sorted(requirements: Iterable[Requirement]) -> Selector:
    return tuple(
        sorted(requirements, key=lambda requirement: (requirement.key, requirement.operator, requirement.values))
    )


def _with_default_spread(peers: Peers, pods: PodSelection) -> Peers:
    spread = tuple(Spread(pods, key, skew, required=False, lenient=True) for key, skew in ((_HOST, 3), (_ZONE, 5)))
    return msgspec.structs.replace(peers, spread=spread)
