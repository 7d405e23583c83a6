"""What the places of other pods mean for the pods of one class: which domains are closed to them, and which better.

The rules are those of kube-scheduler 1.36's plugins PodTopologySpread and InterPodAffinity. Everything is said per
domain of a node label: arrays over domains have one place more, at the end, for nodes without the label, so that
indexing them with the domains of rows (NOWHERE = -1 where there is none) says it per row.
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

# What a spread constraint has where no domain is eligible: nothing exceeds it.
UNLIMITED = 2**31


class SpreadConstraint:
    """One spread constraint: `counter` counts those who are meant and stay, on eligible nodes; `own` is 1 where the
    pod itself is meant."""

    __slots__ = ("counter", "domains", "own", "rule")

    def __init__(self, rule: Spread, counter: DomainCounter, own: int) -> None:
        self.rule = rule
        self.counter = counter
        self.domains: LabelDomains = counter.region.domains
        self.own = own

    def least(self) -> int:
        """What the emptiest eligible domain has."""
        present = self.counter.region.present[:-1] > 0
        eligible = int(np.count_nonzero(present))
        if eligible < self.rule.min_domains:
            return 0
        return int(self.counter.counts[:-1][present].min()) if eligible else UNLIMITED

    def most(self) -> int:
        """What a domain may have at most for one more pod to be let in."""
        return self.rule.max_skew - self.own + self.least()

    def open(self) -> BoolArray:
        """bool[domains + 1]."""
        found: BoolArray = self.counter.counts <= self.most()
        found[-1] = False
        return found


class RequiredAffinity:
    """Required affinity: `counters` count, per key, those whom all terms mean; `own` tells whether they mean the
    pod itself: then the first of a series may begin anywhere."""

    __slots__ = ("counters", "own")

    def __init__(self, counters: list[DomainCounter], own: bool) -> None:
        self.counters = counters
        self.own = own

    @property
    def begins(self) -> bool:
        """Whether there is nobody yet to be near to, and none is needed."""
        return self.own and not any(counter.counts.any() for counter in self.counters)

    def open(self) -> list[tuple[LabelDomains, BoolArray]]:
        begins = self.begins
        found = []
        for counter in self.counters:
            mask: BoolArray = np.ones(len(counter.counts), dtype=np.bool_) if begins else counter.counts > 0
            mask[-1] = False
            found.append((counter.region.domains, mask))
        return found


class AffinityState:
    """All of it for one class. `shape` is the index's as of which it holds."""

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
        # Whether one pod of the class keeps the next one away is told by both.
        self.existing_anti_affinity = [
            index.counter(key, (tally, 1))
            for match_set in profile.matching_sets
            for key, tally in match_set.repelling.items()
        ]
        # (what is counted, what one of it weighs, whether it is the required affinity of others)
        self.preferred: list[tuple[DomainCounter, int, bool]] = []
        for each in peers.preferred:
            match_set = profile.stated_sets[each.term.whom,]
            self.preferred.append((index.counter(each.term.key, (match_set.present, 1)), each.weight, False))
        for match_set in profile.matching_sets:
            for key, tally in match_set.leaning.items():
                self.preferred.append((index.counter(key, (tally, 1)), 1, False))
            for key, tally in match_set.drawing.items():
                self.preferred.append((index.counter(key, (tally, 1)), 1, True))

    def counters(self) -> list[DomainCounter]:
        """Everything that it depends on."""
        found = [each.counter for each in (*self.spread, *self.soft_spread)]
        found += self.affinity.counters if self.affinity is not None else []
        return [
            *found,
            *self.anti_affinity,
            *self.existing_anti_affinity,
            *(counter for counter, _, _ in self.preferred),
        ]

    def ticks(self) -> int:
        """Grows with every change of a count."""
        return sum(counter.ticks for counter in self.counters())

    def gates(self, spread: bool = True, affinity: bool = True) -> list[tuple[LabelDomains, BoolArray]]:
        """(domains of a label, bool[domains + 1] open to one more pod); a row must be open by all of them."""
        found: list[tuple[LabelDomains, BoolArray]] = []
        if spread:
            found += [(each.domains, each.open()) for each in self.spread]
        if affinity:
            found += self.affinity.open() if self.affinity is not None else []
            found += [
                (counter.region.domains, shunned(counter))
                for counter in (*self.anti_affinity, *self.existing_anti_affinity)
            ]
        return found

    def explain(self, rows: Rows, spread: bool = True, affinity: bool = True) -> list[tuple[str, BoolArray]]:
        """(reason in kube-scheduler's words, bool[rows] kept out for it), each as if it were the only one."""
        parts: list[tuple[str, list[tuple[LabelDomains, BoolArray]]]] = []
        if spread:
            known = [(each.domains, _labelled(each)) for each in self.spread]
            parts += [(MISSING_LABEL, known), (UNEVEN, [(each.domains, _even(each)) for each in self.spread])]
        if affinity:
            parts.append((NOT_NEAR, self.affinity.open() if self.affinity is not None else []))
            parts.append((TOO_NEAR, [(counter.region.domains, shunned(counter)) for counter in self.anti_affinity]))
            parts.append(
                (UNWELCOME, [(counter.region.domains, shunned(counter)) for counter in self.existing_anti_affinity])
            )
        return [(reason, ~through(gates, rows)) for reason, gates in parts if gates]


def through(gates: list[tuple[LabelDomains, BoolArray]], rows: Rows) -> BoolArray:
    """bool[rows]: open by all of the gates, of which there is one at least."""
    (domains, mask), *others = gates
    found: BoolArray = mask[domains.ids[rows]]
    for domains, mask in others:
        found = found & mask[domains.ids[rows]]
    return found


def shunned(counter: DomainCounter) -> BoolArray:
    """bool[domains + 1]: nobody is there; who has no domain is nobody's neighbour."""
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
    """A node counts only if it has the labels of all constraints of a kind."""
    return tuple(sorted({rule.key for rule in rules if rule.required is required and not rule.lenient}))


def _labelled(each: SpreadConstraint) -> BoolArray:
    mask = np.ones(len(each.counter.counts), dtype=np.bool_)
    mask[-1] = False
    return mask


def _even(each: SpreadConstraint) -> BoolArray:
    """Nodes without the label are told so."""
    mask = each.open()
    mask[-1] = True
    return mask
