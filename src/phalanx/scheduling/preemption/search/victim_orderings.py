"""Orders in which victims are tried: the first sufficient victims are a choice, and the cheapest choice wins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.resources import PODS
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.search.cheapest_ways import CheapestWays, Way, own_cost
from phalanx.scheduling.preemption.search.removed_victims import AffinityDependents
from phalanx.scheduling.preemption.search.victim_sequence import SearchContext, in_turns, smallest_first
from phalanx.scheduling.preemption.shortfall import NO_SHORTFALL, Shortfalls
from phalanx.scheduling.preemption.victims import DispensableMembers, VictimCandidate

Amounts = tuple[int, ...]
Accounts = tuple[AccountRecord, ...]

_Freed = tuple[VictimCandidate, Amounts]
"""A victim, and what it frees on one node."""

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
        shortfalls = self._shortfalls = (
            Shortfalls(context.holding)
            if any(rule.deserved for victim in candidates for rule in victim.rules.values())
            else None
        )
        columns = sorted({column for pod_class in classes for column in pod_class.columns.tolist()})
        self._columns = columns
        self._victims: dict[int, list[_Freed]] = {}
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
        self._removals = 0
        # Reclaimees on rows with victims of which the shortfall depends.
        self._various: dict[int, list[Accounts]] = {}
        for row, victims in self._victims.items():
            if shortfalls is not None and len({shortfalls.key_of([victim]) for victim, _ in victims}) > 1:
                self._various[row] = list(dict.fromkeys(victim.reclaimed_accounts for victim, _ in victims))
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
        ways = CheapestWays(self._shortfalls)
        weighed: dict[int, int] = {}

        def weigh(row: int) -> None:
            weighed[row] = self._removals
            ways.weigh(row, self._cheapest_victims(row, amounts))

        for row in self._room:
            if mask[row]:
                weigh(row)
        while count and (cheapest := ways.pop()) is not None:
            row, victims = cheapest
            if weighed[row] != self._removals and self._shortfall(victims) and row in self._various:
                # Victims on other nodes have increased the shortfall of a reclaimee.
                weigh(row)
                continue
            touched = self._remove(victims)
            self._room[row] = _minus(self._room[row], amounts)
            count -= 1
            touched.add(row)
            if alone:
                touched.discard(row)
                del weighed[row]
            for neighbour in sorted(touched):
                if neighbour in weighed:
                    weigh(neighbour)
        return not count

    def chosen_first(self, candidates: Sequence[VictimCandidate]) -> list[VictimCandidate]:
        """Return the candidates with the chosen victims first."""
        return [*self._chosen, *(victim for victim in candidates if victim not in self._chosen)]

    def _remove(self, way: Way) -> set[int]:
        """Remove the victims and return the rows that have more room now."""
        touched: set[int] = set()
        self._removals += 1
        for victim in way:
            self._chosen[victim] = None
            if self._shortfalls is not None:
                self._shortfalls.add(victim)
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

    def _cheapest_victims(self, row: int, amounts: Amounts) -> list[Way]:
        """Return choices of victims for one more copy on a row, without needless victims; [] if none suffice.

        The first choices are in the given order and the largest first. Of several reclaimees each can come first:
        later victims on other nodes decide which of them is spared.
        """
        room = self._room[row]
        if _covers(room, amounts):
            return [[]]
        remaining = [(victim, freed) for victim, freed in self._victims[row] if self._is_available(victim)]
        way = self._sufficient(remaining, room, amounts)
        if way is None:
            return []
        ways = [way]
        # Try the fewest victims that are of no higher rank than needed.
        most = max((victim.preempted, victim.distance, victim.priority) for victim in way)
        same_rank = [each for each in remaining if (each[0].preempted, each[0].distance, each[0].priority) <= most]
        same_rank.sort(key=lambda each: (each[0].broken_quorums, -_freed_part(each[1], room, amounts)))
        larger_first = self._sufficient(same_rank, room, amounts)
        if larger_first is not None and larger_first != way:
            ways.append(larger_first)
        if self._shortfalls is None:
            return [min(ways, key=own_cost)]
        reclaimees = self._various.get(row)
        if reclaimees is not None:
            # The order is stable: within one reclaimee lower priorities stay first.
            remaining.sort(key=lambda each: (each[0].preempted, self._shortfall([each[0]])))
            orders = [remaining]
            if len(reclaimees) > 1:
                orders += [_reclaimee_first(remaining, reclaimee) for reclaimee in reclaimees]
            for order in orders:
                reclaimed = self._sufficient(order, room, amounts)
                if reclaimed is not None and reclaimed not in ways:
                    ways.append(reclaimed)
        return ways

    def _shortfall(self, way: Way) -> Fraction:
        """Return the shortfall of reclaimees without the victims and those chosen before."""
        return (
            self._shortfalls.of(way, self._shortfalls.key_of(way)) if self._shortfalls is not None else NO_SHORTFALL
        )

    def _sufficient(self, waiting: Sequence[_Freed], room: Amounts, amounts: Amounts) -> Way | None:
        chosen: list[_Freed] = []
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


def _reclaimee_first(victims: Iterable[_Freed], reclaimee: Accounts) -> list[_Freed]:
    """Return the victims in their order, those of a reclaimee before those of others, preempted ones last."""
    return sorted(victims, key=lambda each: (each[0].preempted, each[0].reclaimed_accounts != reclaimee))


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
