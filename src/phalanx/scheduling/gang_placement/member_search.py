"""Search for the nodes of members: scarce members first, and their nodes and allocations one after the other."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice, product

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.gang_placement.limited_search import Agenda, LimitedSearch
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, PodBatch
from phalanx.scheduling.placement.domain_greedy import NOWHERE

# Maximum number of different allocations of one pod on one node that the search tries.
_MOST_ALLOCATIONS = 64


class Option(msgspec.Struct, frozen=True):
    """A batch that can provide the next member: its rows with room, and the number of copies that fit there.

    `forced` members of the batch are needed, whatever members of other batches are placed.
    """

    number: int
    rows: tuple[int, ...]
    copies: int
    forced: int


class MemberTask(msgspec.Struct, frozen=True):
    """Task: place `free` members of the batches, and `roles[role]` of each named role, on rows of `scope` (None:
    all).

    `used` are the members of each batch that are placed or passed over.
    """

    placement: GangPlacement
    batches: Sequence[PodBatch]
    free: int
    roles: Mapping[str, int]
    scope: BoolArray | None = None
    used: tuple[int, ...] = ()

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        if not self.free and not any(self.roles.values()):
            return search.solve(later)
        task = self if self.used else msgspec.structs.replace(self, used=(0,) * len(self.batches))
        options = task._options(search)
        if not options:
            return False
        if search.ordered:
            return any(task._place_next(search, option, options, later) for option in search.choices(options))
        # The order of placements is irrelevant: the scarcest batch provides the next member, or no further one.
        first = options[0]
        for passes in search.choices((False,) if first.forced else (False, True)):
            if task._pass_over(search, first, later) if passes else task._place_next(search, first, options, later):
                return True
        return False

    def _pass_over(self, search: LimitedSearch, option: Option, later: Agenda) -> bool:
        """Place no further member of the batch."""
        used = list(self.used)
        used[option.number] = len(self.batches[option.number].members)
        return search.solve((msgspec.structs.replace(self, used=tuple(used)), later))

    def _options(self, search: LimitedSearch) -> list[Option]:
        """Return the batches that can provide a member now, the scarcest first; [] if the need cannot be met."""
        session, needed = search.session, self.free + sum(self.roles.values())
        remaining = [
            min(len(batch.members) - used, self.roles.get(batch.role, 0) + self.free)
            for batch, used in zip(self.batches, self.used, strict=True)
        ]
        options: list[tuple[tuple[int, int, int], Option]] = []
        placeable = 0
        with session.placer.within(self.scope) if self.scope is not None else nullcontext():
            for number, batch in enumerate(self.batches):
                if remaining[number] <= 0:
                    continue
                forced = self._forced(number, needed, remaining)
                pod_class = batch.pod_class
                allowed = session.quota_check.room(batch.charge_path, pod_class.footprint)
                rows = _rows_with_room(search, pod_class) if allowed else ()
                if not rows:
                    if pod_class.affinity.may_be_unblocked and allowed:
                        placeable += remaining[number]
                    elif forced:
                        return []
                    continue
                copies = int(session.placer.copies(pod_class, np.array(rows, dtype=np.intp)).sum())
                if copies < forced and not pod_class.dynamic:
                    return []
                placeable += remaining[number]
                option = Option(number, rows, copies, forced)
                options.append(((copies - remaining[number], len(rows), number), option))
        if placeable < needed:
            return []
        return [option for _, option in sorted(options, key=lambda entry: entry[0])]

    def _forced(self, number: int, needed: int, remaining: Sequence[int]) -> int:
        """Return the number of further members of a batch that the need contains in any case."""
        role = self.batches[number].role
        others = sum(remaining) - remaining[number]
        of_role = sum(
            len(batch.members) - used
            for place, (batch, used) in enumerate(zip(self.batches, self.used, strict=True))
            if place != number and batch.role == role
        )
        return max(0, needed - others, self.roles.get(role, 0) - of_role)

    def _place_next(self, search: LimitedSearch, option: Option, options: Sequence[Option], later: Agenda) -> bool:
        """Place one member of the batch on one of its rows, then all that remains."""
        batch = self.batches[option.number]
        member = batch.members[self.used[option.number]]
        roles, free = dict(self.roles), self.free
        if roles.get(batch.role):
            roles[batch.role] -= 1
        elif free:
            free -= 1
        else:
            return False
        used = list(self.used)
        used[option.number] += 1
        rest = MemberTask(self.placement, self.batches, free, roles, self.scope, tuple(used))
        for row, allocated in search.choices(self._places(search, option, options, member)):
            search.count_try()
            mark = search.transaction.mark()
            search.transaction.place(batch.pod_class, [member], [row], allocated)
            self.placement.placed.append((member, row))
            if search.solve((rest, later)):
                return True
            self.placement.placed.pop()
            search.transaction.back_to(mark)
        return False

    def _places(
        self, search: LimitedSearch, option: Option, options: Sequence[Option], member: PodRecord
    ) -> Iterator[tuple[int, Mapping[str, object]]]:
        """Yield the rows of a member with its allocations there: first the rows that fewer other batches can use,
        then the better scores.
        """
        pod_class, placer = self.batches[option.number].pod_class, search.session.placer
        score = placer.class_view(pod_class).score
        rivals: dict[int, int] = {}
        for other in options:
            for row in other.rows if other is not option else ():
                rivals[row] = rivals.get(row, 0) + 1
        rows = sorted(option.rows, key=lambda row: (rivals.get(row, 0), -float(score[row]), row))
        for row in _different_first(search, rows):
            if placer.accepts(pod_class, row):
                for allocated in _allocations(search, pod_class, member, row):
                    yield row, allocated


def _different_first(search: LimitedSearch, rows: Sequence[int]) -> Iterator[int]:
    """Yield the first of equal rows. With allocators the equality is a guess by counts, so the others follow."""
    if search.ordered or search.has_peers:
        yield from rows
        return
    session = search.session
    views = [session.placer.class_view(pod_class) for pod_class in search.classes]
    tried: set[Hashable] = set()
    alike: list[int] = []
    for row in rows:
        key = (
            tuple(session.state.nodes.idle[:, row].tolist()),
            tuple(bool(view.static[row]) for view in views),
            tuple(int(view.limit[row]) for view in views if view.limit is not None),
            tuple(int(level.ids[row]) for level in search.levels),
        )
        if key in tried:
            alike.append(row)
            continue
        tried.add(key)
        yield row
    if search.has_allocators:
        yield from alike


def _rows_with_room(search: LimitedSearch, pod_class: ClassRecord) -> tuple[int, ...]:
    """Return the rows within the placer's scope that fit one copy now."""
    placer = search.session.placer
    fits = placer.class_view(pod_class).score > NOWHERE
    return tuple(np.flatnonzero(fits if placer.scope is None else fits & placer.scope).tolist())


def _allocations(
    search: LimitedSearch, pod_class: ClassRecord, member: PodRecord, row: int
) -> Iterator[Mapping[str, object]]:
    """Yield the allocations that a pod can get on a row, by allocator; {} where there is no choice."""
    names: list[str] = []
    alternatives: list[Sequence[object]] = []
    for allocator in search.session.placer.allocators(pod_class):
        found = allocator.alternatives(member.pod, row, _MOST_ALLOCATIONS)
        search.incomplete |= not found.complete
        if len(found.allocations) > 1:
            names.append(allocator.name)
            alternatives.append(found.allocations)
    search.incomplete |= math.prod(map(len, alternatives)) > _MOST_ALLOCATIONS
    for chosen in islice(product(*alternatives), _MOST_ALLOCATIONS):
        yield dict(zip(names, chosen, strict=True))
