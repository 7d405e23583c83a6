"""Constraints of a pod relative to other pods: affinity, anti-affinity and topology spread."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement

Selector = tuple[Requirement, ...]


class PodSelection(msgspec.Struct, frozen=True, cache_hash=True):
    """Selection of pods in a pod affinity term: labels that match `selector` (None: no pod, (): all pods), in
    selected namespaces.

    The namespace is one of `namespaces`, or its labels match `namespace_selector` (None: no further namespace,
    (): all namespaces).
    """

    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None

    def reaches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the selection includes pods with these labels in a namespace with its labels."""
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and selects(self.namespace_selector, labels)


class PeerTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """Required pod affinity or anti-affinity term: presence or absence of a selected pod in the same domain of the
    node label `key`."""

    whom: PodSelection
    key: str


class PreferredPeers(msgspec.Struct, frozen=True, cache_hash=True):
    """Preferred pod affinity term, with a `weight` from 1 to 100, or anti-affinity term, from -1 to -100."""

    term: PeerTerm
    weight: int


class Spread(msgspec.Struct, frozen=True, cache_hash=True):
    """Topology spread constraint: even spread of the selected pods over the domains of the node label `key`.

    After placement, the domain of a new pod has at most `max_skew` more selected pods than the emptiest eligible
    domain; with fewer than `min_domains` eligible domains the minimum counts as 0. `required` is DoNotSchedule,
    otherwise ScheduleAnyway. With `affinity`, nodes excluded by the pod's node selector or affinity are not
    counted; with `taints`, nodes with untolerated taints are not counted (nodeAffinityPolicy and
    nodeTaintsPolicy: Honor). A `lenient` preference ignores nodes without the label.
    """

    whom: PodSelection
    key: str
    max_skew: int = 1
    min_domains: int = 1
    required: bool = True
    affinity: bool = True
    taints: bool = False
    lenient: bool = False


class Peers(msgspec.Struct, frozen=True, cache_hash=True):
    """All constraints of a pod relative to other pods; each term of `affinity` and `anti` is required."""

    affinity: tuple[PeerTerm, ...] = ()
    anti: tuple[PeerTerm, ...] = ()
    preferred: tuple[PreferredPeers, ...] = ()
    spread: tuple[Spread, ...] = ()


NO_PEERS = Peers()


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy all requirements of a label selector (In, NotIn, Exists, DoesNotExist)."""
    return all(_holds(requirement, labels) for requirement in selector)


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy one requirement; an absent key satisfies neither In nor Exists."""
    match requirement.operator:
        case "In":
            return requirement.key in labels and labels[requirement.key] in requirement.values
        case "NotIn":
            return labels.get(requirement.key) not in requirement.values
        case "Exists":
            return requirement.key in labels
    return requirement.key not in labels
