"""What a pod asks of other pods: near whom, far from whom, and how evenly (affinity and topology spread)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement

Selector = tuple[Requirement, ...]


class PodSelection(msgspec.Struct, frozen=True, cache_hash=True):
    """Who is meant: pods of whose labels all of `selector` holds (None: nobody, (): everybody), in one of
    `namespaces` or in one of whose labels all of `namespace_selector` holds (None: no further one, (): all).
    """

    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None

    def reaches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether pods of a namespace with these labels may be meant."""
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and selects(self.namespace_selector, labels)


class PeerTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """Somebody who is meant, in the same domain of the node label `key`."""

    whom: PodSelection
    key: str


class PreferredPeers(msgspec.Struct, frozen=True, cache_hash=True):
    """`weight` runs from 1 to 100 near those who are meant, from -1 to -100 far from them."""

    term: PeerTerm
    weight: int


class Spread(msgspec.Struct, frozen=True, cache_hash=True):
    """How evenly those who are meant are spread over the domains of the node label `key`.

    The domain of a new pod may hold at most `max_skew` more than the emptiest eligible one; where fewer than
    `min_domains` are eligible the emptiest counts as having none. `required` is DoNotSchedule, otherwise it is a
    wish. With `affinity` nodes that the pod's node selector or affinity rules out are not counted, with `taints`
    those with taints that it does not tolerate (nodeAffinityPolicy and nodeTaintsPolicy: Honor). A `lenient` wish
    does not mind nodes without the label.
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
    """All that a pod's spec says about other pods: `affinity` and `anti` are required, each term of them."""

    affinity: tuple[PeerTerm, ...] = ()
    anti: tuple[PeerTerm, ...] = ()
    preferred: tuple[PreferredPeers, ...] = ()
    spread: tuple[Spread, ...] = ()


NO_PEERS = Peers()


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether all requirements hold of the labels (In, NotIn, Exists, DoesNotExist)."""
    return all(_holds(requirement, labels) for requirement in selector)


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """An absent key is not in any list."""
    match requirement.operator:
        case "In":
            return requirement.key in labels and labels[requirement.key] in requirement.values
        case "NotIn":
            return labels.get(requirement.key) not in requirement.values
        case "Exists":
            return requirement.key in labels
    return requirement.key not in labels
