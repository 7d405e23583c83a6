"""Effect of other pods on the feasibility and scores of nodes for one pod class, per topology domain.

The rules are those of kube-scheduler 1.36's plugins PodTopologySpread and InterPodAffinity. Results are per domain
of a node label: arrays over domains have an additional last entry for nodes without the label, so that indexing
with the domains of rows (NOWHERE = -1 without one) gives results per row.
"""

from __future__ import annotations

import numpy as np

from phalanx.cluster.affinity.domains import DomainCounter, LabelDomains
from phalanx.cluster.affinity.selector_sets import AffinityIndex, AffinityProfile, Inclusion, required_affinity_whom
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.peers import Spread
from phalanx.model.pod import PodClass

MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
UNEVEN = "node(s) didn't match pod topology spread constraints"
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"

# Minimum of a spread constraint without eligible domains: no count exceeds it.
UNLIMITED = 2**31


class SpreadConstraint:
    """One spread constraint: `counter` counts the selected, non-terminating pods on eligible nodes; `own` is 1
    if the constraint selects the pod itself."""

    __slots__ = ("counter", "domains", "own", "rule")

    def __init__(self, rule: Spread, counter: DomainCounter, own: int) -> None:
        self.rule = rule
        self.counter = counter
        self.domains: LabelDomains = counter.region.domains
        self.own = own

    def least(self) -> int:
        """Return the lowest number of selected pods in an eligible domain."""
        present = self.counter.region.present[:-1] > 0
        eligible = int(np.count_nonzero(present))
        if eligible < self.rule.min_domains:
            return 0
        return int(self.counter.counts[:-1][present].min()) if eligible else UNLIMITED

    def most(self) -> int:
        """Return the highest number of selected pods in a domain that admits one more pod."""
        return self.rule.max_skew - self.own + self.least()

    def open(self) -> BoolArray:
        """Return bool[domains + 1]: domains that admit one more pod under this spread constraint."""
        is_open: BoolArray = self.counter.counts <= self.most()
        is_open[-1] = False
        return is_open


class RequiredAffinity:
    """Required affinity: `counters` count, per key, the pods that all terms select; `own` is True if these
    select the pod itself: then the first of a series can start anywhere."""

    __slots__ = ("counters", "own")

    def __init__(self, counters: list[DomainCounter], own: bool) -> None:
        self.counters = counters
        self.own = own

    @property
    def begins(self) -> bool:
        """Whether the pod can be the first of a series: no selected pod exists yet, and none is needed."""
        return self.own and not any(counter.counts.any() for counter in self.counters)

    def open(self) -> list[tuple[LabelDomains, BoolArray]]:
        begins = self.begins
        gates = []
        for counter in self.counters:
            mask: BoolArray = np.ones(len(counter.counts), dtype=np.bool_) if begins else counter.counts > 0
            mask[-1] = False
            gates.append((counter.region.domains, mask))
        return gates


class AffinityState:
    """All data of one pod class about other pods, valid for the index's `shape`."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "existing_anti_affinity",
        "preferred",
        "shape",
        "soft_spread",
        "spread",
    )

    def __init__(self, index: AffinityIndex, profile: AffinityProfile, pod_class: PodClass) -> None:
        peers = profile.peers
        matching = set(profile.matching_sets)
        self.shape = index.shape
        self.spread = [
            _spread_constraint(index, profile, pod_class, rule, _keys(peers.spread, required=True))
            for rule in peers.spread
            if rule.required
        ]
        self.soft_spread = [
            _spread_constraint(index, profile, pod_class, rule, _keys(peers.spread, required=False))
            for rule in peers.spread
            if not rule.required
        ]
        self.affinity: RequiredAffinity | None = None
        if peers.affinity:
            match_set = profile.stated_sets[required_affinity_whom(peers)]
            keys = dict.fromkeys(term.key for term in peers.affinity)
            self.affinity = RequiredAffinity(
                [index.counter(key, (match_set.present, 1)) for key in keys], match_set in matching
            )
        self.anti_affinity = [
            index.counter(term.key, (profile.stated_sets[term.whom,].present, 1)) for term in peers.anti
        ]
        # Both directions detect that one pod of the class repels the next one.
        self.existing_anti_affinity = [
            index.counter(key, (tally, 1))
            for match_set in profile.matching_sets
            for key, tally in match_set.repelling.items()
        ]
        # (counter, weight of one pod, whether the term is a required affinity of other pods)
        self.preferred: list[tuple[DomainCounter, int, bool]] = []
        for preferred in peers.preferred:
            match_set = profile.stated_sets[preferred.term.whom,]
            self.preferred.append(
                (index.counter(preferred.term.key, (match_set.present, 1)), preferred.weight, False)
            )
        for match_set in profile.matching_sets:
            for key, tally in match_set.leaning.items():
                self.preferred.append((index.counter(key, (tally, 1)), 1, False))
            for key, tally in match_set.drawing.items():
                self.preferred.append((index.counter(key, (tally, 1)), 1, True))

    def counters(self) -> list[DomainCounter]:
        """Return all counters of pods that the state depends on."""
        counters = [constraint.counter for constraint in (*self.spread, *self.soft_spread)]
        counters += self.affinity.counters if self.affinity is not None else []
        return [
            *counters,
            *self.anti_affinity,
            *self.existing_anti_affinity,
            *(counter for counter, _, _ in self.preferred),
        ]

    def ticks(self) -> int:
        """Return the sum of the counters' `ticks`: it changes with every change of a count."""
        return sum(counter.ticks for counter in self.counters())

    def gates(self, spread: bool = True, affinity: bool = True) -> list[tuple[LabelDomains, BoolArray]]:
        """Return (domains of a label, bool[domains + 1] open to one more pod); a row must be open in all of
        them."""
        gates: list[tuple[LabelDomains, BoolArray]] = []
        if spread:
            gates += [(constraint.domains, constraint.open()) for constraint in self.spread]
        if affinity:
            gates += self.affinity.open() if self.affinity is not None else []
            gates += [
                (counter.region.domains, shunned(counter))
                for counter in (*self.anti_affinity, *self.existing_anti_affinity)
            ]
        return gates

    def explain(self, rows: Rows, spread: bool = True, affinity: bool = True) -> list[tuple[str, BoolArray]]:
        """Return (kube-scheduler's reason, bool[rows] excluded by it), each as if it were the only one."""
        parts: list[tuple[str, list[tuple[LabelDomains, BoolArray]]]] = []
        if spread:
            known = [(constraint.domains, _labelled(constraint)) for constraint in self.spread]
            parts += [
                (MISSING_LABEL, known),
                (UNEVEN, [(constraint.domains, _even(constraint)) for constraint in self.spread]),
            ]
        if affinity:
            parts.append((NOT_NEAR, self.affinity.open() if self.affinity is not None else []))
            parts.append((TOO_NEAR, [(counter.region.domains, shunned(counter)) for counter in self.anti_affinity]))
            parts.append(
                (UNWELCOME, [(counter.region.domains, shunned(counter)) for counter in self.existing_anti_affinity])
            )
        return [(reason, ~through(gates, rows)) for reason, gates in parts if gates]


def through(gates: list[tuple[LabelDomains, BoolArray]], rows: Rows) -> BoolArray:
    """Return bool[rows]: node rows that are open in all of the gates, of which there is at least one."""
    (domains, mask), *further_gates = gates
    is_open: BoolArray = mask[domains.ids[rows]]
    for domains, mask in further_gates:
        is_open = is_open & mask[domains.ids[rows]]
    return is_open


def shunned(counter: DomainCounter) -> BoolArray:
    """Return bool[domains + 1]: domains without a counted pod, as anti-affinity requires; nodes without a domain
    are open."""
    return counter.counts <= 0


def _spread_constraint(
    index: AffinityIndex, profile: AffinityProfile, pod_class: PodClass, rule: Spread, keys: tuple[str, ...]
) -> SpreadConstraint:
    inclusion = Inclusion(
        keys,
        pod_class.node_selector if rule.affinity else (),
        pod_class.affinity if rule.affinity else None,
        pod_class.tolerations if rule.taints else None,
    )
    match_set = profile.stated_sets[rule.whom,]
    counter = index.counter(rule.key, (match_set.present, 1), (match_set.leaving, -1), inclusion=inclusion)
    return SpreadConstraint(rule, counter, int(match_set in profile.matching_sets))


def _keys(rules: tuple[Spread, ...], required: bool) -> tuple[str, ...]:
    """Return the node labels that the constraints of one kind require: a node counts only if it has all of them."""
    return tuple(sorted({rule.key for rule in rules if rule.required is required and not rule.lenient}))


def _labelled(constraint: SpreadConstraint) -> BoolArray:
    mask = np.ones(len(constraint.counter.counts), dtype=np.bool_)
    mask[-1] = False
    return mask


def _even(constraint: SpreadConstraint) -> BoolArray:
    """Return the domains in which one more pod keeps the skew acceptable; nodes without the label have another
    reason."""
    mask = constraint.open()
    mask[-1] = True
    return mask
