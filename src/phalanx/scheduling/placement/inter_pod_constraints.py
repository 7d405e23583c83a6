"""One class among its peers: which rows are open to it, how good they are, and what its own copies change there.

Preferences follow kube-scheduler 1.36 (podtopologyspread/scoring.go, interpodaffinity/scoring.go): whole numbers
from 0 to 100, normalised over the nodes that the class may use as far as labels and taints decide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from phalanx.cluster.affinity.domains import DomainCounter, LabelDomains
from phalanx.cluster.affinity.state import AffinityState, SpreadConstraint, through
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.framework.inter_pod_rules import InterPodRules

_HOSTNAME = "kubernetes.io/hostname"
# Scores of classes with preferences about others are whole multiples of this, so that sums of them are exact.
_GRAIN = 2.0**20

T = TypeVar("T")
RowArray = npt.NDArray[np.intp]
Gates = list[tuple[LabelDomains, BoolArray]]


class SoftConstraint:
    """A spread constraint that is only preferred; `weight` evens out labels with many domains and few."""

    __slots__ = ("constraint", "growth", "skew", "weight")

    def __init__(self, constraint: SpreadConstraint, growth: int, considered: BoolArray) -> None:
        self.constraint = constraint
        self.growth = growth
        self.skew = constraint.rule.max_skew
        ids = constraint.domains.ids[considered]
        domains = len(ids) if constraint.rule.key == _HOSTNAME else len(np.unique(ids[ids >= 0]))
        self.weight = log(domains + 2)


class PreferredAffinity:
    """What others in the domains of one label weigh: the sum of `parts` (each with what one of them weighs) per
    domain; one more copy of the class itself adds `growth` to its own."""

    __slots__ = ("domains", "growth", "parts")

    def __init__(self, domains: LabelDomains) -> None:
        self.domains = domains
        self.parts: list[tuple[DomainCounter, int]] = []
        self.growth = 0

    def weighed(self) -> IntArray:
        """int64[domains + 1]."""
        total = np.zeros(len(self.parts[0][0].counts), dtype=np.int64)
        for counter, weight in self.parts:
            total += counter.counts * weight
        return total


class InterPodConstraints:
    """`even` are required spread constraints on whose counts own copies tell, each with what one adds; `exclusive`
    the labels in whose domains a copy tolerates no further one. `soft_constraints` and `preferred_affinities` are
    what is preferred.
    """

    def __init__(
        self,
        nodes: NodeTable,
        pod_class: ClassRecord,
        affinity_state: AffinityState,
        rules: InterPodRules,
        static: BoolArray,
    ) -> None:
        self._nodes = nodes
        self._affinity_state = affinity_state
        self._rules = rules
        self._static = static
        self._labels = nodes.relabelled.end
        self._groupings: dict[tuple[int, ...], Grouping] = {}
        self._marks: dict[int, int] = {}
        for tally, amount in pod_class.affinity.tallies:
            self._marks[id(tally)] = self._marks.get(id(tally), 0) + amount
        self.even = [each for each in affinity_state.spread if rules.spread and self._growth(each.counter)]
        closing = [*affinity_state.anti_affinity, *affinity_state.existing_anti_affinity] if rules.affinity else []
        self.exclusive = list(dict.fromkeys(each.region.domains for each in closing if self._growth(each)))
        self.labelled: BoolArray = static.copy()
        for soft in affinity_state.soft_spread:
            if not soft.rule.lenient:
                self.labelled &= soft.domains.ids >= 0
        self.soft_constraints = (
            [SoftConstraint(each, self._growth(each.counter), self.labelled) for each in affinity_state.soft_spread]
            if rules.spread_weight
            else []
        )
        self.preferred_affinities = self._preferred_affinities() if rules.affinity_weight else []

    def holds(self, affinity_state: AffinityState, static: BoolArray) -> bool:
        """Whether it is still about these rules and nodes."""
        return (
            self._affinity_state is affinity_state
            and self._static is static
            and self._labels == self._nodes.relabelled.end
        )

    @property
    def ticks(self) -> int:
        """Grows with every change of a count that matters."""
        return self._affinity_state.ticks()

    @property
    def has_preferences(self) -> bool:
        return bool(self.soft_constraints or self.preferred_affinities)

    @property
    def self_affecting(self) -> bool:
        """Whether own copies change what is preferred."""
        return any(soft.growth for soft in self.soft_constraints) or any(
            preferred.growth for preferred in self.preferred_affinities
        )

    @property
    def begins(self) -> bool:
        """Whether the next copy is the one to which all others have to be near."""
        near = self._affinity_state.affinity
        return self._rules.affinity and near is not None and near.begins

    def open(self) -> BoolArray:
        """bool[N]: where one more copy is let in."""
        gates = self._affinity_state.gates(self._rules.spread, self._rules.affinity)
        return through(gates, slice(None)) if gates else np.ones(self._nodes.capacity, dtype=np.bool_)

    def open_whatever_comes(self) -> BoolArray:
        """bool[N]: where a copy may be let in yet, whoever is placed before it."""
        gates = [
            (each.region.domains, each.counts <= 0)
            for each in (*self._affinity_state.anti_affinity, *self._affinity_state.existing_anti_affinity)
        ]
        if not gates or not self._rules.affinity:
            return np.ones(self._nodes.capacity, dtype=np.bool_)
        return through(gates, slice(None))

    def open_but_for(self, varying: Sequence[SpreadConstraint], closing: Sequence[LabelDomains]) -> BoolArray:
        """bool[N]: where one more copy is let in, some constraints and dislikes within some labels aside."""
        affinity_state, rules = self._affinity_state, self._rules
        gates: Gates = [
            (each.domains, each.open()) for each in affinity_state.spread if rules.spread and each not in varying
        ]
        if rules.affinity:
            gates += affinity_state.affinity.open() if affinity_state.affinity is not None else []
            gates += [
                (each.region.domains, each.counts <= 0)
                for each in (*affinity_state.anti_affinity, *affinity_state.existing_anti_affinity)
                if each.region.domains not in closing
            ]
        return through(gates, slice(None)) if gates else np.ones(self._nodes.capacity, dtype=np.bool_)

    def tolerant(self, domains: LabelDomains) -> BoolArray:
        """bool[domains + 1]: which domains of a label nobody keeps closed."""
        parts = [
            each.counts <= 0
            for each in (*self._affinity_state.anti_affinity, *self._affinity_state.existing_anti_affinity)
            if each.region.domains is domains
        ]
        found: BoolArray = np.logical_and.reduce(parts)
        return found

    def limited(
        self, copies: IntArray, rows: RowArray, rising: Sequence[SpreadConstraint], lonely: Sequence[LabelDomains]
    ) -> IntArray:
        """Of `copies` int64[rows] those that constraints with one row a domain allow as things are."""
        for domains in lonely:
            copies = np.where(domains.ids[rows] >= 0, np.minimum(copies, 1), copies)
        for each in rising:
            counts, where = each.counter.counts, each.counter.region.where[rows]
            copies = np.where(where >= 0, np.minimum(copies, each.most() + 1 - counts[where]), copies)
        return copies

    def alone(self, copies: IntArray, rows: Rows) -> IntArray:
        """The same where one copy tolerates no further one on its row."""
        for domains in self.exclusive:
            copies = np.where(domains.ids[rows] >= 0, np.minimum(copies, 1), copies)
        return copies

    def most(self, potential: IntArray) -> int:
        """At most how many copies there may be on rows that take so many each."""
        found = int(potential.sum())
        for domains in self.exclusive:
            ids = domains.ids
            elsewhere = int(potential[ids < 0].sum())
            found = min(found, elsewhere + len(np.unique(ids[(ids >= 0) & (potential > 0)])))
        return found

    def grouping(self, varying: Sequence[SpreadConstraint], closing: Sequence[LabelDomains]) -> Grouping:
        """The rows that the class may use by labels and taints, in groups that its copies keep as they are."""
        key = (*(id(each) for each in varying), *(id(each) for each in closing), int(self.self_affecting))
        found = self._groupings.get(key)
        if found is None:
            columns = [each.ids for each in closing]
            constraints = [*varying, *(soft.constraint for soft in self.soft_constraints if self.self_affecting)]
            for each in constraints:
                columns += [each.domains.ids, (each.counter.region.where >= 0).astype(np.int32)]
            if self.self_affecting:
                columns += [preferred.domains.ids for preferred in self.preferred_affinities]
            distinct = list({id(column): column for column in columns}.values())
            found = Grouping(np.flatnonzero(self._static), distinct, self._nodes.capacity)
            self._groupings[key] = found
        return found

    def points(self) -> FloatArray:
        """float[N]: the preferences, weighted."""
        total = np.zeros(self._nodes.capacity)
        if self.soft_constraints:
            parts = [
                (soft.constraint.domains.ids, soft.constraint.counter.counts) for soft in self.soft_constraints
            ]
            total += self.spread_points(parts, self.labelled)
        if self.preferred_affinities:
            raw = sum(
                (preferred.weighed()[preferred.domains.ids] for preferred in self.preferred_affinities),
                start=np.zeros(1, dtype=np.int64),
            )
            total += self.affinity_points(raw, self._static)
        return total

    def spread_points(
        self, parts: Sequence[tuple[npt.NDArray[np.int32], IntArray]], considered: BoolArray
    ) -> FloatArray:
        """Per soft constraint from the domains of the units (rows, or groups of them) and how many are in each
        domain."""
        raw = np.zeros(len(considered))
        for soft, (ids, counts) in zip(self.soft_constraints, parts, strict=True):
            raw += np.where(ids >= 0, counts[ids] * soft.weight + (soft.skew - 1), 0.0)
        whole = np.floor(raw + 0.5)
        some = whole[considered]
        if not len(some):
            return np.zeros(len(considered))
        most, least = some.max(), some.min()
        points = np.full(len(considered), 100.0) if most <= 0 else np.floor(100.0 * (most + least - whole) / most)
        result: FloatArray = np.where(considered, points, 0.0) * self._rules.spread_weight
        return result

    def affinity_points(self, raw: IntArray, considered: BoolArray) -> FloatArray:
        """From what others weigh at each unit."""
        some = raw[considered]
        if not len(some):
            return np.zeros(len(considered))
        most, least = int(some.max()), int(some.min())
        if most == least:
            return np.zeros(len(considered))
        result: FloatArray = np.floor(100.0 * ((raw - least) / (most - least))) * self._rules.affinity_weight
        return result

    def _growth(self, counter: DomainCounter) -> int:
        """What one more pod of the class adds to a count."""
        return sum(sign * self._marks.get(id(tally), 0) for tally, sign in counter.parts)

    def _preferred_affinities(self) -> list[PreferredAffinity]:
        found: dict[str, PreferredAffinity] = {}
        for counter, weight, hard in self._affinity_state.preferred:
            domains = counter.region.domains
            weight = weight * self._rules.hard_weight if hard else weight
            preferred = found.setdefault(domains.key, PreferredAffinity(domains))
            preferred.parts.append((counter, weight))
            preferred.growth += self._growth(counter) * weight
        return list(found.values())


def partition(each: Sequence[T], last: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """(those of whom it does not hold, those of whom it does)."""
    return [one for one in each if not last(one)], [one for one in each if last(one)]


def node_domains(domains: LabelDomains) -> bool:
    """Whether no domain has more than one row."""
    return int(domains.rows.max(initial=0)) <= 1


def quantised(score: FloatArray) -> FloatArray:
    """Rounded so that whole numbers can be added without loss."""
    result: FloatArray = np.round(score * _GRAIN) / _GRAIN
    return result


class Grouping:
    """Rows that nothing tells apart: `of[row]` is the group, -1 for rows outside; `rows` is one row of each."""

    __slots__ = ("of", "rows")

    def __init__(self, rows: npt.NDArray[np.intp], columns: Sequence[npt.NDArray[np.int32]], capacity: int) -> None:
        """`columns` int32[N] tell rows apart; `rows` are those inside."""
        code = np.zeros(len(rows), dtype=np.int64)
        for column in columns:
            part = column[rows].astype(np.int64)
            code = code * (int(part.max(initial=0)) + 2) + (part + 1)
            if len(columns) > 2:
                code = np.unique(code, return_inverse=True)[1].astype(np.int64)
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        self.of: IntArray = np.full(capacity, -1, dtype=np.int64)
        self.of[rows] = inverse
        self.rows: npt.NDArray[np.intp] = rows[first]

    def __len__(self) -> int:
        return len(self.rows)
