"""Topology domains for gangs: candidate domains and their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import USUAL_LEVELS, Ladder, Level, Topology
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.pod import ACTIVE
from phalanx.model.resources import PODS
from phalanx.model.topology import TopologyRule
from phalanx.scheduling.placement.placer import Placer

# Domains with enough room by counts usually accept the placement. After this many refusals on a level the next
# level is tried. It is counted, not timed, so that equal inputs get equal results.
_MOST_TRIES = 64


class Area(msgspec.Struct, frozen=True, cache_hash=True):
    """Domains where members can be placed: a rule, and the rows of placed members (ascending).

    Members of a subgroup must also stay in the area of the whole gang, `outer`.
    """

    rule: TopologyRule
    pins: tuple[int, ...] = ()
    outer: Area | None = None


def area_of(rule: TopologyRule | None, members: Iterable[PodRecord]) -> Area | None:
    """Return the area of a gang or a part of it; members on nodes pin it. None without a rule."""
    if rule is None:
        return None
    rows = {member.row for member in members if member.state in ACTIVE and member.row != NO_NODE}
    return Area(rule, tuple(sorted(rows)))


class DomainMember(Protocol):
    """`count` equal members of a role."""

    @property
    def pod_class(self) -> ClassRecord: ...
    @property
    def role(self) -> str: ...
    @property
    def count(self) -> int: ...


class DomainDemand(Protocol):
    """Demand of `total` members of these kinds, of which `roles[role]` of each named role."""

    @property
    def total(self) -> int: ...
    @property
    def roles(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def members(self) -> Sequence[DomainMember]: ...


class Domain(NamedTuple):
    """A domain of a level, restricted to `limit` (bool[N]). `placeable` is the number of members that fit by
    counts.
    """

    level: Level
    number: int
    placeable: int = 0
    limit: BoolArray | None = None

    @property
    def rows(self) -> BoolArray:
        rows = self.level.rows(self.number)
        return rows if self.limit is None else rows & self.limit

    @property
    def name(self) -> str:
        return self.level.names[self.number]


class TopologyDomains:
    """Domains of a cluster with the room of a placer.

    `levels` are node labels of the network, the widest first (empty: the usual labels, fewer domains are wider).
    `names` are the policy's own names for labels. Victims are searched in at most `most_for_evictions` domains. All
    counts are within the placer's scope, as of now.
    """

    def __init__(
        self,
        topology: Topology,
        placer: Placer,
        levels: tuple[str, ...] = (),
        names: Mapping[str, str] | None = None,
        most_for_evictions: int = 8,
    ) -> None:
        self.most_for_evictions = most_for_evictions
        self._topology = topology
        self._placer = placer
        self._levels = levels
        self._names = names or {}

    def ladder(self, rule: TopologyRule) -> Ladder:
        if self._names and not rule.hypernodes:
            rule = msgspec.structs.replace(
                rule,
                required=tuple(self._names.get(key, key) for key in rule.required),
                preferred=self._names.get(rule.preferred, rule.preferred),
            )
        return self._topology.ladder(rule, self._levels or USUAL_LEVELS, bool(self._levels))

    def tries(
        self, area: Area, want: DomainDemand, waiting_pods: Mapping[ClassRecord, int] | None = None
    ) -> Iterator[Domain]:
        """Yield the domains with room for all members by counts, best first.

        Order: the narrowest level; the most room for `waiting_pods` (by class, if more wait than are
        needed); the fullest by share; the tightest (room for the fewest copies); the first node seen. Placed
        members restrict each level to the domain that contains them all.
        """
        limit = self.rows(area.outer) if area.outer is not None else None
        copies = self._copies(want, limit)
        for level in self.ladder(area.rule).levels:
            placeable, room, fits = self._count(level, area, want, copies)
            numbers = np.flatnonzero(fits)
            keys: list[FloatArray] = []
            if len(numbers) > 1:
                keys = [_without_room(level, copies, waiting_pods)] if waiting_pods else []
                keys += [self._idle(level, want), room]
            for number in _best(numbers, keys, level.first):
                yield Domain(level, number, int(placeable[number]), limit)

    def fits(self, area: Area, want: DomainDemand) -> bool:
        """Return whether all members fit into a domain by counts."""
        limit = self.rows(area.outer) if area.outer is not None else None
        copies = self._copies(want, limit)
        return any(self._count(level, area, want, copies)[2].any() for level in self.ladder(area.rule).levels)

    def promising(self, area: Area, want: DomainDemand) -> list[Domain]:
        """Return the widest domains with room for all members by counts, in the order of their first nodes."""
        levels = self.ladder(area.rule).levels
        if not levels:
            return []
        limit = self.rows(area.outer) if area.outer is not None else None
        placeable, _, fits = self._count(levels[-1], area, want, self._copies(want, limit))
        numbers = np.flatnonzero(fits)
        numbers = numbers[np.argsort(levels[-1].first[numbers], kind="stable")]
        return [Domain(levels[-1], int(number), int(placeable[number]), limit) for number in numbers]

    def widest(self, area: Area) -> list[Domain]:
        """Return all eligible widest domains, in the order of their first nodes."""
        levels = self.ladder(area.rule).levels
        numbers = np.flatnonzero(self._allowed(levels[-1], area)) if levels else np.zeros(0, dtype=np.intp)
        order = np.argsort(levels[-1].first[numbers], kind="stable") if len(numbers) else numbers
        limit = self.rows(area.outer) if area.outer is not None else None
        return [Domain(levels[-1], number, 0, limit) for number in numbers[order].tolist()]

    def placeable(self, domain: Domain, area: Area, want: DomainDemand) -> int:
        """Return the number of members that fit into a domain."""
        placeable, _, _ = self._count(domain.level, area, want, self._copies(want, domain.limit))
        return int(placeable[domain.number])

    def nearest(self, area: Area, want: DomainDemand) -> Domain | None:
        """Return the eligible widest domain that fits the most members; None if there is none."""
        levels = self.ladder(area.rule).levels
        if not levels:
            return None
        level = levels[-1]
        limit = self.rows(area.outer) if area.outer is not None else None
        placeable, room, _ = self._count(level, area, want, self._copies(want, limit))
        numbers = np.flatnonzero(self._allowed(level, area))
        if not len(numbers):
            return None
        best = numbers[np.lexsort((level.first[numbers], -room[numbers], -placeable[numbers]))[0]]
        return Domain(level, int(best), int(placeable[best]), limit)

    def bound(self, area: Area, want: DomainDemand) -> int:
        """Return an upper bound on the number of times that all members fit, without other placements."""
        levels, total = self.ladder(area.rule).levels, want.total
        if not levels or not total:
            return 0
        copies = self._copies(want, self.rows(area.outer) if area.outer is not None else None)
        level = levels[-1]
        room = np.where(
            self._allowed(level, area), sum(_sums(level, copies_by_row) for copies_by_row in copies.values()), 0
        )
        return int((room // total).sum())

    def finer(self, area: Area, domain: Domain) -> tuple[Level, ...]:
        """Return the levels below a domain, the widest first, without levels of single nodes."""
        levels = self.ladder(area.rule).levels
        below = levels[: levels.index(domain.level)] if domain.level in levels else ()
        return tuple(level for level in reversed(below) if level.count < int((level.ids > 0).sum()))

    def part(self, level: Level, pod_class: ClassRecord, count: int, spent: Collection[int]) -> int:
        """Return the domain of a level, within the placer's scope, for the next members of a class.

        The tightest that fits them all, else the roomiest; 0 if only `spent` domains have room.
        """
        copies, scope = self._placer.potential(pod_class), self._placer.scope
        room = _sums(level, copies if scope is None else np.where(scope, copies, 0))
        room[[0, *spent]] = 0
        fitting = np.flatnonzero(room >= count)
        if len(fitting):
            return next(_best(fitting, [room], level.first))
        best = int(np.lexsort((level.first, -room))[0])
        return best if room[best] > 0 else 0

    def home(self, rule: TopologyRule, rows: Sequence[int]) -> str:
        """Return the users' name of the smallest domain that contains all the rows; "" if there is none."""
        for level in self.ladder(rule).levels if rows else ():
            if number := level.shared(rows):
                return f"{level.names[number]} ({level.title})" if level.title != "cluster" else ""
        return ""

    def holds(self, area: Area, rows: Iterable[int]) -> bool:
        """Return whether members on these rows, with the placed ones, satisfy the rule."""
        ladder = self.ladder(area.rule)
        if not ladder.cap:
            return True
        return bool(ladder.levels) and ladder.levels[-1].shared([*area.pins, *rows]) > 0

    def rows(self, area: Area) -> BoolArray | None:
        """Return bool[N]: the rows where the rule allows further members beside the placed ones; None for all
        rows.
        """
        outer, own = self.rows(area.outer) if area.outer is not None else None, self._pinned(area)
        return outer if own is None else own if outer is None else own & outer

    def _pinned(self, area: Area) -> BoolArray | None:
        ladder = self.ladder(area.rule)
        if not ladder.cap or not area.pins:
            return None
        level = ladder.levels[-1] if ladder.levels else None
        number = level.shared(area.pins) if level is not None else 0
        return (
            level.rows(number)
            if level is not None and number
            else np.zeros(self._topology.capacity, dtype=np.bool_)
        )

    def _allowed(self, level: Level, area: Area) -> BoolArray:
        allowed: BoolArray = level.first < len(level.ids)
        allowed[0] = False
        if area.pins:
            shared, allowed = level.shared(area.pins), np.zeros_like(allowed)
            allowed[shared] = shared > 0
        return allowed

    def _copies(self, want: DomainDemand, limit: BoolArray | None = None) -> dict[ClassRecord, IntArray]:
        """Return int64[N] by class: the number of members that fit on each row."""
        placer, scope = self._placer, self._placer.scope
        if limit is not None:
            scope = limit if scope is None else scope & limit
        copies_by_class: dict[ClassRecord, IntArray] = {}
        for portion in want.members:
            if portion.pod_class not in copies_by_class:
                copies = placer.potential(portion.pod_class)
                copies_by_class[portion.pod_class] = copies if scope is None else np.where(scope, copies, 0)
        return copies_by_class

    def _idle(self, level: Level, want: DomainDemand) -> FloatArray:
        """Return the idle part of each domain after a placement of the members: the mean over their resources.

        It is kube-scheduler's MostAllocated with the opposite sign.
        """
        nodes, share = self._placer.nodes, np.zeros(len(level.names))
        usage: dict[int, int] = {}
        counted = 0
        for portion in want.members:
            count = min(portion.count, want.total - counted)
            counted += count
            for column, amount in zip(
                portion.pod_class.columns.tolist(), portion.pod_class.amounts.tolist(), strict=True
            ):
                usage[column] = usage.get(column, 0) + amount * count
        columns = [column for column in usage if nodes.space.names[column] != PODS] or list(usage)
        for column in columns:
            offered = _sums(level, nodes.allocatable[column])
            used = _sums(level, nodes.used[column] + nodes.reserved[column])
            share += np.where(offered > 0, (used + usage[column]) / np.maximum(offered, 1.0), 0.0)
        return -share / max(1, len(columns))

    def _count(
        self, level: Level, area: Area, want: DomainDemand, copies: Mapping[ClassRecord, IntArray]
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return per domain (number of members that fit, number of copies with room, whether all fit)."""
        sums = {pod_class: _sums(level, copies_by_row) for pod_class, copies_by_row in copies.items()}
        counts: dict[ClassRecord, int] = {}
        for portion in want.members:
            counts[portion.pod_class] = counts.get(portion.pod_class, 0) + portion.count
        nothing: FloatArray = np.zeros(len(level.names))
        placeable = sum((np.minimum(sums[pod_class], count) for pod_class, count in counts.items()), nothing)
        room = sum(sums.values(), nothing)
        fits = self._allowed(level, area) & (placeable >= want.total)
        for role, minimum in want.roles:
            of_role = [portion for portion in want.members if portion.role == role]
            fits &= (
                sum(
                    (np.minimum(sums[copies_by_row.pod_class], copies_by_row.count) for copies_by_row in of_role),
                    nothing,
                )
                >= minimum
            )
        return np.minimum(placeable, want.total), room, fits


def _without_room(
    level: Level, copies: Mapping[ClassRecord, IntArray], waiting_pods: Mapping[ClassRecord, int]
) -> FloatArray:
    """Return per domain the number of pods of `waiting_pods` without room by counts."""
    unplaced: FloatArray = np.zeros(len(level.names))
    for pod_class, count in waiting_pods.items():
        if pod_class in copies:
            unplaced += count - np.minimum(_sums(level, copies[pod_class]), count)
    return unplaced


def _best(numbers: IntArray, keys: Sequence[FloatArray], first: IntArray) -> Iterator[int]:
    """Yield the domains with the smallest keys, ties by the first seen node.

    They are computed one by one, as the first one usually suffices.
    """
    for _ in range(_MOST_TRIES):
        if not len(numbers):
            return
        equal = numbers
        for key in keys:
            values = key[equal]
            equal = equal[values == values.min()]
        best = int(equal[first[equal].argmin()])
        yield best
        numbers = numbers[numbers != best]


def _sums(level: Level, copies: IntArray) -> FloatArray:
    """Return the sum per domain of a level; it is exact, as sums stay far below 2**53."""
    sums: FloatArray = np.bincount(level.ids, copies, len(level.names)).astype(np.float64)
    return sums
