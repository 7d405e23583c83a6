"""Orders in which victims are tried: the first sufficient victims are a choice, and the cheapest choice wins."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.resources import PODS
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.search.removed_victims import AffinityDependents
from phalanx.scheduling.preemption.search.victim_sequence import SearchContext, in_turns, smallest_first
from phalanx.scheduling.preemption.shortfall import NO_SHORTFALL, shortfall_of
from phalanx.scheduling.preemption.solution import EvictionCost, cost_of
from phalanx.scheduling.preemption.victims import DispensableMembers, Removals, VictimCandidate

Amounts = tuple[int, ...]

# The first parts of a victim's sort key define its kind, the other parts its position within the kind.
_KIND = 6


def victim_orderings(
    context: SearchContext, preemptor: Preemptor, candidates: list[VictimCandidate]
) -> Iterator[list[VictimCandidate]]:
    """Yield the orders in which candidates are tried.

    First node by node, then victims that block the preemptor by affinity, then the policy's order, then by size;
    where rules protect accounts' shares, also the order that frees the most.
    """
    per_node = _node_by_node(context, preemptor, candidates)
    if per_node is not None:
        yield per_node
    dependents = AffinityDependents(context.session, preemptor.classes)
    blockers = dependents.dependents_first(candidates) if dependents else candidates
    if blockers != candidates:
        yield blockers
    yield in_turns(context, candidates)
    larger = _largest_first(preemptor, candidates)
    if larger != candidates:
        yield larger
    if any(rule.must_exceed for victim in candidates for rule in victim.rules.values()):
        yield smallest_first(context, candidates)


def _largest_first(preemptor: Preemptor, candidates: list[VictimCandidate]) -> list[VictimCandidate]:
    """Sort victims of one kind by their largest share of a requested resource, so that fewer are evicted."""
    asked: dict[str, int] = {}
    for wanted in preemptor.charge_paths.values():
        add_amounts(asked, {name: amount for name, amount in wanted.items() if name != PODS}, 1)

    def part(victim: VictimCandidate) -> float:
        held: dict[str, int] = {}
        for amounts in victim.amounts.values():
            add_amounts(held, amounts, 1)
        return max((held.get(name, 0) / amount for name, amount in asked.items()), default=0.0)

    return sorted(candidates, key=lambda victim: (victim.order_key[:_KIND], -part(victim), victim.order_key))


def _node_by_node(
    context: SearchContext, preemptor: Preemptor, candidates: list[VictimCandidate]
) -> list[VictimCandidate] | None:
    """Return an order that begins with the cheapest sufficient victims on each node; None if no victims suffice."""
    per_node = PerNodeChoice(context, preemptor.classes, candidates)
    for pod_class, count in preemptor.copies:
        if not per_node.make_room_for(pod_class, count):
            return None
    return per_node.chosen_first(candidates)


class PerNodeChoice:
    """Greedy choice of victims for one copy after the other, by the free amounts of nodes; quotas are ignored.

    Victims chosen for earlier copies cost nothing more: a whole gang frees room on many nodes. They count where
    later victims would take a reclaimee below its deserved share.
    """

    def __init__(
        self, context: SearchContext, classes: Iterable[ClassRecord], candidates: Sequence[VictimCandidate]
    ) -> None:
        session = self._session = context.session
        # None if no victim is reclaimed from an account that deserves anything.
        self._reclaimed = (
            Removals(None, context.holding)
            if any(rule.deserved for victim in candidates for rule in victim.rules.values())
            else None
        )
        columns = sorted({column for pod_class in classes for column in pod_class.columns.tolist()})
        self._columns = columns
        self._victims: dict[int, list[tuple[VictimCandidate, Amounts]]] = {}
        self._parts: dict[VictimCandidate, dict[int, Amounts]] = {}
        for victim in candidates:
            parts: dict[int, Amounts] = {}
            for record in victim.records:
                if record.row >= 0:
                    freed = tuple(record.footprint.usage[columns].tolist())
                    parts[record.row] = _plus(parts[record.row], freed) if record.row in parts else freed
            self._parts[victim] = parts
            for row, freed in parts.items():
                self._victims.setdefault(row, []).append((victim, freed))
        rows = sorted(self._victims)
        idle = session.state.nodes.idle[columns][:, rows].T.tolist()
        self._room: dict[int, Amounts] = {row: tuple(room) for row, room in zip(rows, idle, strict=True)}
        self._chosen: dict[VictimCandidate, None] = {}
        self._singles: dict[GangRecord, list[VictimCandidate]] = {}
        self._whole_gangs: set[GangRecord] = set()
        self._spent: dict[DispensableMembers, int] = {}

    def make_room_for(self, pod_class: ClassRecord, count: int) -> bool:
        """Choose victims for `count` copies beside the earlier ones. Return whether all copies fit."""
        wanted = dict(zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True))
        amounts = tuple(wanted.get(column, 0) for column in self._columns)
        placer = self._session.placer
        mask = placer.open_rows(pod_class) if count == 1 else placer.class_view(pod_class).static
        alone = self._session.placer.exclusive(pod_class)
        ways: list[tuple[EvictionCost, int, int]] = []
        turns: dict[int, int] = {}
        best: dict[int, list[VictimCandidate]] = {}

        def weigh(row: int) -> None:
            turns[row] = turns.get(row, 0) + 1
            way = self._cheapest_victims(row, amounts)
            if way is not None:
                best[row] = way
                heapq.heappush(ways, (self._cost(way), row, turns[row]))

        for row in self._room:
            if mask[row]:
                weigh(row)
        while count and ways:
            cost, row, turn = heapq.heappop(ways)
            if turn != turns[row]:
                continue
            if self._reclaimed is not None and self._cost(best[row]) != cost:
                # Victims on other nodes have increased the shortfall of a reclaimee.
                weigh(row)
                continue
            touched = self._remove(best[row])
            self._room[row] = _minus(self._room[row], amounts)
            count -= 1
            if alone:
                turns[row] += 1
                touched.discard(row)
            else:
                touched.add(row)
            for neighbour in sorted(touched):
                if mask[neighbour] and neighbour in turns:
                    weigh(neighbour)
        return not count

    def chosen_first(self, candidates: Sequence[VictimCandidate]) -> list[VictimCandidate]:
        """Return the candidates with the chosen victims first."""
        return [*self._chosen, *(victim for victim in candidates if victim not in self._chosen)]

    def _remove(self, way: Iterable[VictimCandidate]) -> set[int]:
        """Remove the victims and return the rows that have more room now."""
        touched: set[int] = set()
        for victim in way:
            self._chosen[victim] = None
            if self._reclaimed is not None:
                self._reclaimed.add(victim)
            if victim.dispensable is not None:
                self._spent[victim.dispensable] = self._spent.get(victim.dispensable, 0) + len(victim.records)
            absorbed = (
                [single for gang in victim.gangs for single in self._singles.get(gang, ())] if victim.whole else []
            )
            for row, freed in self._parts[victim].items():
                for single in absorbed:
                    if row in self._parts[single]:
                        freed = _minus(freed, self._parts[single][row])
                self._room[row] = _plus(self._room[row], freed)
                touched.add(row)
            if victim.whole:
                self._whole_gangs.update(victim.gangs)
            for gang in victim.gangs if not victim.whole else ():
                self._singles.setdefault(gang, []).append(victim)
        return touched

    def _cheapest_victims(self, row: int, amounts: Amounts) -> list[VictimCandidate] | None:
        """Return the victims for one more copy on a row, in the given order or the largest first, without needless
        ones; None if no victims suffice."""
        room = self._room[row]
        if _covers(room, amounts):
            return []
        remaining = [(victim, freed) for victim, freed in self._victims[row] if self._is_available(victim)]
        way = self._sufficient(remaining, room, amounts)
        if way is None:
            return None
        # Try the fewest victims that are of no higher rank than needed.
        most = max((victim.preempted, victim.distance, victim.priority) for victim in way)
        same_rank = [each for each in remaining if (each[0].preempted, each[0].distance, each[0].priority) <= most]
        same_rank.sort(key=lambda each: (each[0].broken_quorums, -_freed_part(each[1], room, amounts)))
        larger_first = self._sufficient(same_rank, room, amounts)
        if larger_first is not None and self._cost(larger_first) < self._cost(way):
            way = larger_first
        if self._reclaimed is None or not self._cost(way).shortfall:
            return way
        # The order is stable: within one reclaimee lower priorities stay first.
        remaining.sort(key=lambda each: (each[0].preempted, self._shortfall([each[0]])))
        least_shortfall = self._sufficient(remaining, room, amounts)
        if least_shortfall is not None and self._cost(least_shortfall) < self._cost(way):
            return least_shortfall
        return way

    def _cost(self, way: Sequence[VictimCandidate]) -> EvictionCost:
        """Return the cost of the victims. Only budgets that allow no disruption now count as violated."""
        cost = cost_of(way, sum(victim.exhausted_budgets for victim in way))
        return cost if self._reclaimed is None else cost._replace(shortfall=self._shortfall(way))

    def _shortfall(self, way: Sequence[VictimCandidate]) -> Fraction:
        """Return the shortfall of reclaimees without the victims and those chosen before."""
        return shortfall_of(way, self._reclaimed.holdings_of) if self._reclaimed is not None else NO_SHORTFALL

    def _sufficient(
        self, waiting: Sequence[tuple[VictimCandidate, Amounts]], room: Amounts, amounts: Amounts
    ) -> list[VictimCandidate] | None:
        chosen: list[tuple[VictimCandidate, Amounts]] = []
        singles: dict[DispensableMembers, int] = {}
        for victim, freed in waiting:
            if _covers(room, amounts):
                break
            if victim.dispensable is not None:
                if (
                    self._spent.get(victim.dispensable, 0)
                    + singles.get(victim.dispensable, 0)
                    + len(victim.records)
                    > victim.dispensable.free
                ):
                    continue
                singles[victim.dispensable] = singles.get(victim.dispensable, 0) + len(victim.records)
            if victim.whole:
                for single, part in [each for each in chosen if not set(each[0].gangs).isdisjoint(victim.gangs)]:
                    chosen.remove((single, part))
                    room = _minus(room, part)
            chosen.append((victim, freed))
            room = _plus(room, freed)
        if not _covers(room, amounts):
            return None
        for victim, freed in reversed(chosen[:-1]):
            reduced = _minus(room, freed)
            if _covers(reduced, amounts):
                chosen.remove((victim, freed))
                room = reduced
        return [victim for victim, _ in chosen]

    def _is_available(self, victim: VictimCandidate) -> bool:
        return victim not in self._chosen and self._whole_gangs.isdisjoint(victim.gangs)


def _freed_part(freed: Amounts, room: Amounts, amounts: Amounts) -> float:
    """Return how much of the missing amounts a victim frees, in parts of each missing amount."""
    missing = [(wanted - there, part) for wanted, there, part in zip(amounts, room, freed, strict=True)]
    return sum(min(part, lack) / lack for lack, part in missing if lack > 0)


def _covers(room: Amounts, amounts: Amounts) -> bool:
    return all(there >= wanted for there, wanted in zip(room, amounts, strict=True) if wanted)


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return tuple(map(int.__add__, one, other))


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return tuple(map(int.__sub__, one, other))
