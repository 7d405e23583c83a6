"""Tasks of a limited search: gangs, their subgroups, composites, and the topology domains of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.gang_placement.composite_tree import CompositeTree
from phalanx.scheduling.gang_placement.domain_trials import together
from phalanx.scheduling.gang_placement.limited_search import Agenda, LimitedSearch, Task, intersection
from phalanx.scheduling.gang_placement.member_search import MemberTask
from phalanx.scheduling.gang_placement.pod_sets import (
    GangPlacement,
    PodBatch,
    PodSet,
    hardest_first,
    subgroup_demand,
)
from phalanx.scheduling.placement.topology_domains import Area, DomainDemand, area_of

# Builds a task that places pods on the given rows only (None: all).
Within = Callable[[BoolArray | None], Task]


class InDomain(msgspec.Struct, frozen=True):
    """Task: do the `inner` task in one domain of the area with room for the demand, the best domain first."""

    area: Area
    want: DomainDemand
    inner: Within
    scope: BoolArray | None

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        session = search.session
        with session.placer.within(self.scope) if self.scope is not None else nullcontext():
            domains = list(session.topology_domains.tries(self.area, self.want))
        return any(
            search.solve((self.inner(intersection(self.scope, domain.rows)), later))
            for domain in search.choices(domains)
        )


class GangTask(msgspec.Struct, frozen=True):
    """Task: place the quorum of one gang."""

    placement: GangPlacement
    scope: BoolArray | None = None

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        placement = self.placement
        if placement.satisfied or placement.placed:
            return search.solve(later)
        if placement.area is None:
            return search.solve((self._inner(search, self.scope), later))
        task = InDomain(placement.area, placement.demand(), lambda scope: self._inner(search, scope), self.scope)
        return search.solve((task, later))

    def _inner(self, search: LimitedSearch, scope: BoolArray | None) -> Task:
        placement, need = self.placement, self.placement.need
        if placement.parts or placement.extras:
            return Subgroups(placement, scope, need.subgroups, tuple(placement.parts))
        return MemberTask(
            placement,
            _batches(search, placement.rest),
            need.total - sum(_least(need.roles)),
            dict(need.roles),
            scope,
        )


class Subgroups(msgspec.Struct, frozen=True):
    """Task: place `lacking[rule]` of the remaining subgroups of each rule, then members in no subgroup, then
    further subgroups and further members of complete ones, until the quorum of the gang is reached.
    """

    placement: GangPlacement
    scope: BoolArray | None
    lacking: Sequence[int]
    remaining: tuple[PodSet, ...]
    ungrouped: bool = False

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        required = [pod_set for pod_set in self.remaining if self.lacking[_rule(pod_set)]]
        if any(self.lacking):
            return any(self._start(search, pod_set, later) for pod_set in search.choices(_distinct(required)))
        if not self.ungrouped:
            rest = msgspec.structs.replace(self, ungrouped=True)
            return search.solve((self._ungrouped(search), (rest, later)))
        if not self._lacks_members():
            return search.solve(later)
        further = [*_distinct(self.remaining), *_distinct(self.placement.extras)]
        return any(self._start(search, pod_set, later) for pod_set in search.choices(further))

    def _start(self, search: LimitedSearch, pod_set: PodSet, later: Agenda) -> bool:
        """Place a subgroup as a whole, or one more member of a complete subgroup."""
        whole = pod_set in self.remaining
        lacking = list(self.lacking)
        if whole:
            lacking[_rule(pod_set)] = max(0, lacking[_rule(pod_set)] - 1)
        rest = msgspec.structs.replace(
            self, lacking=lacking, remaining=tuple(part for part in self.remaining if part is not pod_set)
        )
        placed = {record.pod.uid for record, _ in self.placement.placed}
        batches = [batch.without(placed) for batch in _batches(search, pod_set)]
        total, demand = (pod_set.total if whole else 1), subgroup_demand(pod_set)

        def inner(scope: BoolArray | None) -> Task:
            return MemberTask(self.placement, batches, total, {}, scope)

        if pod_set.area is None:
            return search.solve((inner(self.scope), (rest, later)))
        if not whole:
            demand = msgspec.structs.replace(demand, total=1)
        return search.solve((InDomain(pod_set.area, demand, inner, self.scope), (rest, later)))

    def _ungrouped(self, search: LimitedSearch) -> MemberTask:
        placement, need = self.placement, self.placement.need
        available: dict[str, int] = {}
        for batch in placement.rest.batches:
            available[batch.role] = available.get(batch.role, 0) + len(batch.members)
        missing = {role: least - self._placed(role) for role, least in need.roles}
        roles = {role: min(count, available.get(role, 0)) for role, count in missing.items() if count > 0}
        total = min(need.total - len(placement.placed), sum(available.values()))
        free = max(0, total - sum(roles.values()))
        return MemberTask(placement, _batches(search, placement.rest), free, roles, self.scope)

    def _lacks_members(self) -> bool:
        need = self.placement.need
        return len(self.placement.placed) < need.total or any(
            self._placed(role) < least for role, least in need.roles
        )

    def _placed(self, role: str) -> int:
        return sum(1 for record, _ in self.placement.placed if record.pod.role == role)


class TreeTask(msgspec.Struct, frozen=True):
    """Task: place enough of the `children` of a composite (None: all of its children that can take part)."""

    tree: CompositeTree
    placements: Mapping[GangRecord, GangPlacement]
    scope: BoolArray | None = None

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        tree = self.tree
        if tree.topology is None:
            return search.solve((self._children(self.scope), later))
        area = composite_area(tree, self.placements)
        asking = [
            placement.demand()
            for gang in tree.gangs()
            if (placement := self.placements.get(gang)) is not None
            and not (placement.satisfied or placement.placed)
        ]
        if not asking:
            return search.solve((self._children(self.scope), later))
        present = sum(1 for gang in tree.gangs() if gang in self.placements)
        want = together(asking, max(1, tree.least - (present - len(asking))))
        return search.solve((InDomain(area, want, self._children, self.scope), later))

    def _children(self, scope: BoolArray | None) -> Children:
        return Children(self.placements, tuple(self.tree.children), max(1, self.tree.least), scope)


class Children(msgspec.Struct, frozen=True):
    """Task: place `least` of the children of a composite; satisfied children count."""

    placements: Mapping[GangRecord, GangPlacement]
    children: tuple[CompositeTree | GangRecord, ...]
    least: int
    scope: BoolArray | None

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        if self.least <= 0:
            return search.solve(later)
        if len(self.children) < self.least:
            return False
        child, *others = self.children
        rest = msgspec.structs.replace(self, children=tuple(others), least=self.least - 1)
        omitted = msgspec.structs.replace(self, children=tuple(others))
        options: tuple[Agenda, ...] = ((omitted, later),)
        if isinstance(child, CompositeTree):
            options = ((TreeTask(child, self.placements, self.scope), (rest, later)), *options)
        elif child in self.placements:
            options = ((GangTask(self.placements[child], self.scope), (rest, later)), *options)
        return any(search.solve(agenda) for agenda in search.choices(options))


def composite_area(tree: CompositeTree, placements: Mapping[GangRecord, GangPlacement]) -> Area:
    """Return the area of a composite with a topology; running members and placed ones pin it."""
    area = area_of(tree.topology, [member for gang in tree.gangs() for member in gang.members.values()])
    assert area is not None
    rows = {row for gang in tree.gangs() if gang in placements for _, row in placements[gang].placed}
    return Area(area.rule, tuple(sorted({*area.pins, *rows})))


def _batches(search: LimitedSearch, pod_set: PodSet) -> list[PodBatch]:
    return pod_set.in_order(search.session, hardest_first)


def _least(roles: Sequence[tuple[str, int]]) -> list[int]:
    return [least for _, least in roles]


def _rule(pod_set: PodSet) -> int:
    assert pod_set.part is not None
    return pod_set.part.key[0]


def _distinct(pod_sets: Sequence[PodSet]) -> list[PodSet]:
    """Return the first of subgroups with equal demands."""
    by_demand: dict[Hashable, PodSet] = {}
    for pod_set in pod_sets:
        by_demand.setdefault(subgroup_demand(pod_set), pod_set)
    return list(by_demand.values())
