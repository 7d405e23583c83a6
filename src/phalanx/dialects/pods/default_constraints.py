"""Pods that say nothing about spread, but belong to a Service or a workload: kube-scheduler's system defaults.

Wished for, not required: over hosts with a skew of 3, over zones with a skew of 5, among the pods that the Services
which select the pod and its controller select (helper.DefaultSelector, PodTopologySpread's defaultingType System).
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
# Those whose selector says whom their pods are to be spread with.
_KINDS = (
    WantedKind("", "services", _SERVICE, ("v1",)),
    WantedKind("", "replicationcontrollers", "ReplicationController", ("v1",)),
    WantedKind("apps", "replicasets", "ReplicaSet", ("v1",)),
    WantedKind("apps", "statefulsets", "StatefulSet", ("v1",)),
)
_OWNERS = frozenset(kind.kind for kind in _KINDS if kind.kind != _SERVICE)
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# Pairs of a class and its twin; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000


Labels = tuple[tuple[str, str], ...]
# The kind and name of a controller.
Owner = tuple[str, str]
K = TypeVar("K", bound=Hashable)


class DefaultConstraints(PodEnricher):
    """Shows pods without spread constraints of their own with those that are usual."""

    kinds = _KINDS

    def __init__(self, pods: KnownPods) -> None:
        """`pods` are all that are known; the intake keeps them."""
        self._pods = pods
        # By kind and namespace: the selector of each object by its name.
        self._selectors: dict[tuple[str, str], dict[str, Selector]] = {}
        # The controllers of pods by uid, as far as they matter; and the uids by namespace and controller.
        self._owners: dict[str, Owner] = {}
        self._owned: dict[tuple[str, Owner], dict[str, None]] = {}
        # By namespace: what the Services that select pods with these labels ask for.
        self._served: dict[str, dict[Labels, frozenset[Requirement]]] = {}
        self._twins: dict[tuple[PodClass, Selector, str], PodClass] = {}

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
                pod_class, peers=_with_usual(pod_class.peers, PodSelection(selector, (spec.namespace,)))
            )
        return msgspec.structs.replace(spec, pod_class=twin)

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        metadata, spec = document["metadata"], document.get("spec")
        stated = spec.get("selector") if isinstance(spec, Mapping) else None
        return self._replace(kind, str(metadata.get("namespace") or ""), str(metadata["name"]), _read(kind, stated))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        return self._replace(kind, namespace, name, ())

    def unserved(self, kind: ServedKind) -> Changes:
        gone = [
            (space, name) for (word, space), names in self._selectors.items() if word == kind.kind for name in names
        ]
        touched: set[str] = set()
        for namespace, name in gone:
            touched |= self._replace(kind, namespace, name, ())[1]
        return [], touched

    def _replace(self, kind: ServedKind, namespace: str, name: str, selector: Selector) -> Changes:
        """An object selects these now; () are none."""
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
        concerned = [each for each in (last, selector) if each]
        return [], {
            known.pod.uid
            for known in self._pods.of_namespace(namespace)
            if any(selects(each, dict(known.pod.labels)) for each in concerned)
        }

    def _selector(self, namespace: str, labels: Labels, owner: Owner | None) -> Selector:
        """All that the Services that select a pod and its controller ask for; () if there are none."""
        found = self._asked_by_services(namespace, labels)
        if owner is not None:
            kind, name = owner
            found |= frozenset(self._selectors.get((kind, namespace), {}).get(name, ()))
        return _sorted(found) if found else ()

    def _asked_by_services(self, namespace: str, labels: Labels) -> frozenset[Requirement]:
        services = self._selectors.get((_SERVICE, namespace))
        if not services:
            return frozenset()
        served = self._served.setdefault(namespace, {})
        found = served.get(labels)
        if found is None:
            if len(served) >= _CACHE_SIZE:
                served.clear()
            own = dict(labels)
            asked = (selector for selector in services.values() if selects(selector, own))
            found = served[labels] = frozenset(requirement for selector in asked for requirement in selector)
        return found


def _discard(uids: dict[K, dict[str, None]], key: K, uid: str) -> None:
    del uids[key][uid]
    if not uids[key]:
        del uids[key]


def _read(kind: ServedKind, stated: object) -> Selector:
    """What cannot be read selects nobody; Services and ReplicationControllers have plain pairs."""
    if kind.kind in (_SERVICE, "ReplicationController"):
        stated = {"matchLabels": stated}
    try:
        return _sorted(read_selector(stated)) if stated else ()
    except IllegibleSelectorError:
        return ()


def _sorted(requirements: Iterable[Requirement]) -> Selector:
    return tuple(sorted(requirements, key=lambda each: (each.key, each.operator, each.values)))


def _with_usual(peers: Peers, whom: PodSelection) -> Peers:
    usual = tuple(Spread(whom, key, skew, required=False, lenient=True) for key, skew in ((_HOST, 3), (_ZONE, 5)))
    return msgspec.structs.replace(peers, spread=usual)
