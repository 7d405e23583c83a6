"""Constraints of a pod on other pods: affinity, anti-affinity and topology spread constraints.

The API server merges `matchLabelKeys` and `mismatchLabelKeys` into the selectors of admitted pods. For pods where
it has not (an older server, or a manifest that was never sent to one), they are merged here; merging twice is
harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phalanx.dialects.core import LabelSelector, PodAffinity, PodAffinityTerm, PodObject, TopologySpreadConstraint
from phalanx.dialects.label_selectors import IllegibleSelectorError, requirements_of
from phalanx.dialects.lenient import DecodingFault
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, PreferredPeers, Selector, Spread
from phalanx.model.selectors import Requirement
from phalanx.model.text.decoding import quoted

_AFFINITY, _ANTI = "spec.affinity.podAffinity", "spec.affinity.podAntiAffinity"
_SPREAD = "spec.topologySpreadConstraints"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POLICIES = {"": None, "Honor": True, "Ignore": False}


def context_of(pod: PodObject) -> object:
    """Return all inputs beside the spec that `peers_of` depends on; None for a pod without constraints on other
    pods."""
    affinity, spreads = pod.spec.affinity, pod.spec.topology_spread_constraints
    parts = [part for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if part] if affinity else []
    if not parts and not spreads:
        return None
    terms = [
        term
        for part in parts
        for term in (*part.required, *(preferred.pod_affinity_term for preferred in part.preferred))
    ]
    keys = {key for term in terms for key in (*term.match_label_keys, *term.mismatch_label_keys)}
    keys.update(key for spread in spreads for key in spread.match_label_keys)
    labels = pod.metadata.labels
    faults = [str(fault) for fault in pod.faults if fault.path.startswith((_AFFINITY, _ANTI, _SPREAD))]
    return pod.metadata.namespace, sorted((key, labels[key]) for key in keys if key in labels), faults


def peers_of(pod: PodObject) -> tuple[Peers, tuple[DecodingFault, ...]]:
    """Return the pod's constraints on other pods, and a fault for each unreadable one.

    One unreadable term voids all terms of its kind: half a selector would match other pods than the owner intends.
    kube-scheduler does the same.
    """
    affinity, spec = pod.spec.affinity, pod.spec
    near = affinity.pod_affinity if affinity else None
    far = affinity.pod_anti_affinity if affinity else None
    if near is None and far is None and not spec.topology_spread_constraints:
        return NO_PEERS, ()
    # Beside an unknown field, the known terms still define which pods a running pod keeps away.
    broken = [fault.path for fault in pod.faults if not fault.unknown]
    peers, faults = Peers(), []
    if not any(path.startswith((_AFFINITY, _ANTI)) for path in broken):
        reading = _Reading(pod)
        stated = Peers(
            affinity=tuple(reading.required(near, _AFFINITY)),
            anti=tuple(reading.required(far, _ANTI)),
            preferred=(*reading.preferred(near, _AFFINITY, 1), *reading.preferred(far, _ANTI, -1)),
        )
        faults += reading.faults
        peers = stated if not reading.faults else peers
    if not any(path.startswith(_SPREAD) for path in broken):
        reading = _Reading(pod)
        spread = tuple(reading.spreads(spec.topology_spread_constraints))
        faults += reading.faults
        if not reading.faults:
            peers = Peers(peers.affinity, peers.anti, peers.preferred, spread)
    return peers if peers != NO_PEERS else NO_PEERS, tuple(faults)


class _Reading:
    """Decodes the affinity and spread terms of one pod; unreadable ones are listed in `faults`."""

    def __init__(self, pod: PodObject) -> None:
        self.faults: list[DecodingFault] = []
        self._namespace = pod.metadata.namespace
        self._labels = pod.metadata.labels

    def required(self, stated: PodAffinity | None, path: str) -> Iterator[PeerTerm]:
        terms = [
            self._term(wire, f"{path}.{_REQUIRED}[{place}]")
            for place, wire in enumerate(stated.required if stated else ())
        ]
        yield from dict.fromkeys(terms)

    def preferred(self, stated: PodAffinity | None, path: str, sign: int) -> Iterator[PreferredPeers]:
        for place, wire in enumerate(stated.preferred if stated else ()):
            here = f"{path}.{_PREFERRED}[{place}]"
            if not 1 <= wire.weight <= 100:
                self._fault(f"{here}.weight", f"{wire.weight} is not between 1 and 100")
            yield PreferredPeers(self._term(wire.pod_affinity_term, f"{here}.podAffinityTerm"), sign * wire.weight)

    def spreads(self, stated: Sequence[TopologySpreadConstraint]) -> Iterator[Spread]:
        for place, wire in enumerate(stated):
            here = f"{_SPREAD}[{place}]"
            if wire.max_skew < 1:
                self._fault(f"{here}.maxSkew", f"{wire.max_skew} is not above 0")
            if wire.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
                self._fault(
                    f"{here}.whenUnsatisfiable",
                    f"{quoted(wire.when_unsatisfiable)} is not DoNotSchedule or ScheduleAnyway",
                )
            required = wire.when_unsatisfiable == "DoNotSchedule"
            if wire.min_domains is not None and (wire.min_domains < 1 or not required):
                text = f"{wire.min_domains} is not above 0" if required else "is only for DoNotSchedule"
                self._fault(f"{here}.minDomains", text)
            yield Spread(
                PodSelection(
                    self._selector(wire.label_selector, f"{here}.labelSelector", wire.match_label_keys, ()),
                    (self._namespace,),
                ),
                self._key(wire.topology_key, here),
                wire.max_skew,
                wire.min_domains or 1,
                required,
                self._policy(wire.node_affinity_policy, f"{here}.nodeAffinityPolicy", True),
                self._policy(wire.node_taints_policy, f"{here}.nodeTaintsPolicy", False),
            )

    def _policy(self, text: str, path: str, default: bool) -> bool:
        if text not in _POLICIES:
            self._fault(path, f"{quoted(text)} is not Honor or Ignore")
        honored = _POLICIES.get(text)
        return default if honored is None else honored

    def _term(self, wire: PodAffinityTerm, path: str) -> PeerTerm:
        spaces = wire.namespace_selector
        selector = self._selector(
            wire.label_selector, f"{path}.labelSelector", wire.match_label_keys, wire.mismatch_label_keys
        )
        selection = PodSelection(
            selector,
            tuple(sorted(set(wire.namespaces))) or (() if spaces is not None else (self._namespace,)),
            self._selector(spaces, f"{path}.namespaceSelector", (), ()),
        )
        return PeerTerm(selection, self._key(wire.topology_key, path))

    def _key(self, key: str, path: str) -> str:
        if not key:
            self._fault(f"{path}.topologyKey", "is empty")
        return key

    def _selector(
        self, stated: LabelSelector | None, path: str, same: Sequence[str], other: Sequence[str]
    ) -> Selector | None:
        """Return the sorted, distinct requirements of a term's label selector; None for a missing selector, which
        matches no pod."""
        if stated is None:
            return None
        try:
            requirements = set(map(_plain, requirements_of(stated)))
        except IllegibleSelectorError as error:
            self._fault(path, str(error))
            return None
        requirements.update(_of_labels(same, self._labels, "In"))
        requirements.update(_of_labels(other, self._labels, "NotIn"))
        return tuple(
            sorted(
                requirements, key=lambda requirement: (requirement.key, requirement.operator, requirement.values)
            )
        )

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(DecodingFault(path, message))


def _of_labels(keys: Sequence[str], labels: Mapping[str, str], operator: str) -> Iterator[Requirement]:
    """Return the requirements that matchLabelKeys or mismatchLabelKeys derive from the pod's own labels; keys that
    the pod lacks are skipped."""
    return (Requirement(key, operator, (labels[key],)) for key in keys if key in labels)


def _plain(requirement: Requirement) -> Requirement:
    return Requirement(requirement.key, requirement.operator, tuple(sorted(set(requirement.values))))
