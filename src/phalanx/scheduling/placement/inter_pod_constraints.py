"""Rules of one class about other pods: open rows, preferences, and the effect of its own copies.

Preferences follow kube-scheduler 1.36 (podtopologyspread/scoring.go, interpodaffinity/scoring.go): integers from 0
to 100, normalised over the nodes that labels and taints allow for the class.
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
# Scores of classes with preferences are multiples of 1 / _GRAIN, so that their sums are exact.
_GRAIN = 2.0**20

T = TypeVar("T")
RowArray = npt.NDArray[np.intp]
Gates = list[tuple[LabelDomains, BoolArray]]


class SoftConstraint:
    """Preferred spread constraint; `weight` balances labels with many and with few domains."""

    __slots__ = ("constraint", "growth", "skew", "weight")

    def __init__(self, constraint: SpreadConstraint, growth: int, considered: BoolArray) -> None:
        self.constraint = constraint
        self.growth = growth
        self.skew = constraint.rule.max_skew
        ids = constraint.domains.ids[considered]
        domains = len(ids) if constraint.rule.key == _HOSTNAME else len(np.unique(ids[ids >= 0]))
        self.weight = log(domains + 2)


class PreferredAffinity:
    """Preferred affinity by domains of one label: the sum of `parts` (counter, weight per pod) per domain.

    One more copy of the class itself adds `growth` to its domain.
    """

    __slots__ = ("domains", "growth", "parts")

    def __init__(self, domains: LabelDomains) -> None:
        self.domains = domains
        self.parts: list[tuple[DomainCounter, int]] = []
        self.growth = 0

    def weighed(self) -> IntArray:
        """Return int64[domains + 1]."""
        total = np.zeros(len(self.parts[0][0].counts), dtype=np.int64)
        for counter, weight in self.parts:
            total += counter.counts * weight
        return total


class InterPodConstraints:
    """Rules of a class about other pods. `even` are required spread constraints whose counts its own copies change.
    `exclusive` are the labels in whose domains only one copy is allowed. `soft_constraints` and
    `preferred_affinities` are the preferences.
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
        self.even = [
            constraint for constraint in affinity_state.spread if rules.spread and self._growth(constraint.counter)
        ]
        closing = [*affinity_state.anti_affinity, *affinity_state.existing_anti_affinity] if rules.affinity else []
        self.exclusive = list(
            dict.fromkeys(constraint.region.domains for constraint in closing if self._growth(constraint))
        )
        self.labelled: BoolArray = static.copy()
        for soft in affinity_state.soft_spread:
            if not soft.rule.lenient:
                self.labelled &= soft.domains.ids >= 0
        self.soft_constraints = (
            [
                SoftConstraint(constraint, self._growth(constraint.counter), self.labelled)
                for constraint in affinity_state.soft_spread
            ]
            if rules.spread_weight
            else []
        )
        self.preferred_affinities = self._preferred_affinities() if rules.affinity_weight else []

    def holds(self, affinity_state: AffinityState, static: BoolArray) -> bool:
        """Return whether the constraints are still valid for this state and these nodes."""
        return (
            self._affinity_state is affinity_state
            and self._static is static
            and self._labels == self._nodes.relabelled.end
        )

    @property
    def ticks(self) -> int:
        """A number that grows with every change of a relevant count."""
        return self._affinity_state.ticks()

    @property
    def has_preferences(self) -> bool:
        return bool(self.soft_constraints or self.preferred_affinities)

    @property
    def self_affecting(self) -> bool:
        """True if copies of the class change its own preferences."""
        return any(soft.growth for soft in self.soft_constraints) or any(
            preferred.growth for preferred in self.preferred_affinities
        )

    @property
    def begins(self) -> bool:
        """True if the next copy is the first one that all later copies must be near."""
        near = self._affinity_state.affinity
        return self._rules.affinity and near is not None and near.begins

    def open(self) -> BoolArray:
        """Return bool[N]: the rows that are open to one more copy."""
        gates = self._affinity_state.gates(self._rules.spread, self._rules.affinity)
        return through(gates, slice(None)) if gates else np.ones(self._nodes.capacity, dtype=np.bool_)

    def open_whatever_comes(self) -> BoolArray:
        """Return bool[N]: the rows that can be open to a copy after further placements."""
        gates = [
            (counter.region.domains, counter.counts <= 0)
            for counter in (*self._affinity_state.anti_affinity, *self._affinity_state.existing_anti_affinity)
        ]
        if not gates or not self._rules.affinity:
            return np.ones(self._nodes.capacity, dtype=np.bool_)
        return through(gates, slice(None))

    def open_but_for(self, varying: Sequence[SpreadConstraint], closing: Sequence[LabelDomains]) -> BoolArray:
        """Return bool[N]: the rows open to one more copy, without the constraints `varying` and anti-affinity by
        labels `closing`.
        """
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
        """Return bool[domains + 1]: the domains of a label that no anti-affinity closes."""
        parts = [
            counter.counts <= 0
            for counter in (*self._affinity_state.anti_affinity, *self._affinity_state.existing_anti_affinity)
            if counter.region.domains is domains
        ]
        tolerant_domains: BoolArray = np.logical_and.reduce(parts)
        return tolerant_domains

    def limited(
        self, copies: IntArray, rows: RowArray, rising: Sequence[SpreadConstraint], lonely: Sequence[LabelDomains]
    ) -> IntArray:
        """Return the copies int64[rows] that constraints with one row per domain allow now, at most `copies`."""
        for domains in lonely:
            copies = np.where(domains.ids[rows] >= 0, np.minimum(copies, 1), copies)
        for constraint in rising:
            counts, where = constraint.counter.counts, constraint.counter.region.where[rows]
            copies = np.where(where >= 0, np.minimum(copies, constraint.most() + 1 - counts[where]), copies)
        return copies

    def alone(self, copies: IntArray, rows: Rows) -> IntArray:
        """Return the copies, at most one on rows where the class allows a single copy."""
        for domains in self.exclusive:
            copies = np.where(domains.ids[rows] >= 0, np.minimum(copies, 1), copies)
        return copies

    def most(self, potential: IntArray) -> int:
        """Return an upper bound on the total copies; `potential` is the number per row."""
        bound = int(potential.sum())
        for domains in self.exclusive:
            ids = domains.ids
            unlabelled = int(potential[ids < 0].sum())
            bound = min(bound, unlabelled + len(np.unique(ids[(ids >= 0) & (potential > 0)])))
        return bound

    def grouping(self, varying: Sequence[SpreadConstraint], closing: Sequence[LabelDomains]) -> Grouping:
        """Return the rows that labels and taints allow, in groups that copies of the class do not split."""
        key = (
            *(id(constraint) for constraint in varying),
            *(id(constraint) for constraint in closing),
            int(self.self_affecting),
        )
        grouping = self._groupings.get(key)
        if grouping is None:
            columns = [constraint.ids for constraint in closing]
            constraints = [*varying, *(soft.constraint for soft in self.soft_constraints if self.self_affecting)]
            for constraint in constraints:
                columns += [constraint.domains.ids, (constraint.counter.region.where >= 0).astype(np.int32)]
            if self.self_affecting:
                columns += [preferred.domains.ids for preferred in self.preferred_affinities]
            distinct = list({id(column): column for column in columns}.values())
            grouping = Grouping(np.flatnonzero(self._static), distinct, self._nodes.capacity)
            self._groupings[key] = grouping
        return grouping

    def points(self) -> FloatArray:
        """Return float[N]: the weighted preferences."""
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
        """Return the points of preferred spread for rows or groups; `parts` are (domains, counts) per soft
        constraint.
        """
        raw = np.zeros(len(considered))
        for soft, (ids, counts) in zip(self.soft_constraints, parts, strict=True):
            raw += np.where(ids >= 0, counts[ids] * soft.weight + (soft.skew - 1), 0.0)
        whole = np.floor(raw + 0.5)
        considered_scores = whole[considered]
        if not len(considered_scores):
            return np.zeros(len(considered))
        highest, lowest = considered_scores.max(), considered_scores.min()
        points = (
            np.full(len(considered), 100.0)
            if highest <= 0
            else np.floor(100.0 * (highest + lowest - whole) / highest)
        )
        result: FloatArray = np.where(considered, points, 0.0) * self._rules.spread_weight
        return result

    def affinity_points(self, raw: IntArray, considered: BoolArray) -> FloatArray:
        """Return the points of preferred affinity from the raw weights of rows or groups."""
        considered_weights = raw[considered]
        if not len(considered_weights):
            return np.zeros(len(considered))
        highest, lowest = int(considered_weights.max()), int(considered_weights.min())
        if highest == lowest:
            return np.zeros(len(considered))
        result: FloatArray = np.floor(100.0 * ((raw - lowest) / (highest - lowest))) * self._rules.affinity_weight
        return result

    def _growth(self, counter: DomainCounter) -> int:
        """Return the number that one more pod of the class adds to a count."""
        return sum(sign * self._marks.get(id(tally), 0) for tally, sign in counter.parts)

    def _preferred_affinities(self) -> list[PreferredAffinity]:
        by_label: dict[str, PreferredAffinity] = {}
        for counter, weight, hard in self._affinity_state.preferred:
            domains = counter.region.domains
            weight = weight * self._rules.hard_weight if hard else weight
            preferred = by_label.setdefault(domains.key, PreferredAffinity(domains))
            preferred.parts.append((counter, weight))
            preferred.growth += self._growth(counter) * weight
        return list(by_label.values())


def partition(items: Sequence[T], last: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return (items for which `last` is False, items for which it is True)."""
    return [item for item in items if not last(item)], [item for item in items if last(item)]


def node_domains(domains: LabelDomains) -> bool:
    """Return whether every domain has at most one row."""
    return int(domains.rows.max(initial=0)) <= 1


def quantised(score: FloatArray) -> FloatArray:
    """Round the scores so that integers can be added without loss."""
    result: FloatArray = np.round(score * _GRAIN) / _GRAIN
    return result


class Grouping:
    """Groups of equal rows: `of[row]` is the group, -1 for rows outside; `rows` has one row of each group."""

    __slots__ = ("of", "rows")

    def __init__(self, rows: npt.NDArray[np.intp], columns: Sequence[npt.NDArray[np.int32]], capacity: int) -> None:
        """`columns` int32[N] distinguish rows; `rows` are the rows inside."""
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
