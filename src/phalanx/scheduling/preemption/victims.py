"""Who goes together: surplus singly or by subgroups, then the rest of a gang as a whole; lone pods one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.classes import Footprint
from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.scheduling.gangs.subgroups import PartKey
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption
from phalanx.scheduling.preemption.rules.min_available import (
    SubgroupQuorum,
    dispensable_members,
    gang_group_of,
    holds_quorum,
    is_leader,
)
from phalanx.scheduling.preemption.rules.rule import ReclaimRule, future_holdings

_SECONDS = 3600.0
# Who states no rank comes after all that do.
_NO_RANK = 2**31

GangPart = str | PartKey | None
"""Of a gang: a role, a subgroup, or all of it (None)."""


class VictimCandidate:
    """Pods that go together or stay together.

    `broken_quorums` counts the gangs that lose a quorum that they have. `pod_priorities` is the sum of the pods'
    own priorities, `priority` the highest that must be exceeded (`Session.victim_priority`). `rules` are those of
    the charge paths, with what each holds in `amounts`. `exhausted_budgets` counts how often its pods stand under a
    disruption budget that has nothing left. `order_key` puts victims in the order in which they are taken. A
    `whole` victim is everybody of some gangs; a single member of a gang draws on the gang's `dispensable` members,
    and goes as a part of the whole if both go. `rank` is that of a single member, negated, where the others of its
    gang have one too.
    """

    __slots__ = (
        "amounts",
        "broken_quorums",
        "dispensable",
        "distance",
        "exhausted_budgets",
        "gangs",
        "lost_work",
        "order_key",
        "pod_priorities",
        "preempted",
        "priority",
        "rank",
        "records",
        "rules",
        "whole",
    )

    def __init__(
        self,
        records: list[PodRecord],
        rules: Mapping[ChargePath, ReclaimRule],
        priority: int,
        work: float,
        breaks: int = 0,
    ) -> None:
        self.records = records
        self.priority = priority
        self.lost_work = work
        self.broken_quorums = breaks
        self.pod_priorities = (
            records[0].pod.priority if len(records) == 1 else sum(each.pod.priority for each in records)
        )
        self.whole = False
        self.rank = 0
        self.dispensable: DispensableMembers | None = None
        self.exhausted_budgets = 0
        self.order_key: tuple[object, ...] = ()
        self.gangs: tuple[GangRecord, ...]
        self.amounts: dict[ChargePath, dict[str, int]]
        if len(records) == 1:
            (record,) = records
            assert record.charge_path is not None
            rule = rules[record.charge_path]
            self.gangs = (record.gang,) if record.gang is not None else ()
            self.amounts = {record.charge_path: record.footprint.amounts}
            self.rules = {record.charge_path: rule}
            self.preempted, self.distance = rule.reason is EvictionReason.PREEMPTED, rule.distance
            return
        self.gangs = tuple({r.gang: None for r in records if r.gang is not None})
        self.amounts = {}
        for record in records:
            assert record.charge_path is not None
            add_amounts(self.amounts.setdefault(record.charge_path, {}), record.footprint.amounts, 1)
        self.rules = {charge_path: rules[charge_path] for charge_path in self.amounts}
        self.preempted = any(each.reason is EvictionReason.PREEMPTED for each in self.rules.values())
        self.distance = max(rule.distance for rule in self.rules.values())

    def __repr__(self) -> str:
        return f"VictimCandidate({', '.join(record.pod.key for record in self.records)})"

    @property
    def excess(self) -> float:
        return min(rule.excess for rule in self.rules.values())

    @property
    def reason(self) -> EvictionReason:
        return EvictionReason.PREEMPTED if self.preempted else EvictionReason.RECLAIMED

    @property
    def rows(self) -> Iterator[int]:
        return (record.row for record in self.records)

    @property
    def latest_start(self) -> int:
        return max(_since(record) for record in self.records)

    @property
    def highest_priority(self) -> int:
        """The highest priority of a pod, whatever its gang's."""
        return (
            self.pod_priorities if len(self.records) == 1 else max(record.pod.priority for record in self.records)
        )

    @property
    def name(self) -> tuple[str, str]:
        first = min(self.records, key=lambda record: record.pod.key)
        return first.pod.namespace, first.pod.name


class VictimBuilder:
    """Turns pods into victims. `may_go` tells of a pod whether anything forbids its eviction."""

    def __init__(
        self,
        state: ClusterState,
        rules: Mapping[ChargePath, ReclaimRule],
        may_go: Callable[[PodRecord], bool],
        priority: Callable[[GangRecord | None, int], int],
        work: Callable[[PodRecord], float],
        own: tuple[GangRecord, ...] = (),
    ) -> None:
        self._state = state
        self._composites = state.gangs.composites
        self._rules = rules
        self._may_go = may_go
        self._priority = priority
        self._work = work
        self._own = own

    def victims_of(self, records: Iterable[PodRecord]) -> list[VictimCandidate]:
        """All victims that the pods are part of."""
        found: list[VictimCandidate] = []
        members: dict[GangRecord, list[PodRecord]] = {}
        for record in records:
            if record.gang is not None:
                members.setdefault(record.gang, []).append(record)
            elif self._may_go(record):
                found.append(self._victim([record]))
        gang_groups: dict[frozenset[GangKey], list[GangRecord]] = {}
        for gang in members:
            mates = gang_group_of(gang, self._state.gangs, self._composites)
            gang_groups.setdefault(frozenset(mate.key for mate in mates), mates)
        for mates in gang_groups.values():
            found.extend(self._of_gang_group(mates, members))
        return found

    def _of_gang_group(
        self, gangs: list[GangRecord], members: Mapping[GangRecord, list[PodRecord]]
    ) -> Iterator[VictimCandidate]:
        """Gangs that need each other lose members above their minima singly, or everybody together."""
        dispensable, led = {gang: DispensableMembers(gang, self._composites) for gang in gangs}, False
        for gang, own in dispensable.items():
            singles: dict[str, VictimCandidate] = {}
            for record in members.get(gang, ()) if own.free > 0 else ():
                if record.pod.uid in singles:
                    continue
                mates = own.goes_with(record)
                if not (own.can_lose_all(mates, {}) and all(map(self._may_go, mates))):
                    continue
                if any(map(is_leader, mates)):
                    led = True
                    continue
                victim = self._victim(mates)
                victim.dispensable = own
                singles.update((mate.pod.uid, victim) for mate in mates)
            singly = list(dict.fromkeys(singles.values()))
            _by_rank(singly)
            yield from singly
        # A gang does not fall for itself, and one that needs nobody loses its members one by one (but its leader).
        single = all(own.all_dispensable for own in dispensable.values()) and not led
        if single or any(gang in self._own for gang in gangs):
            return
        there = [member for gang in gangs for member in gang.members.values() if member.state in ACTIVE]
        # What is on its way to a node cannot be told to leave yet.
        if not there or any(m.state is MemberState.ASSUMED or not self._may_go(m) for m in there):
            return
        broken = sum(1 for gang in gangs if holds_quorum(gang))
        victim = self._victim(sorted(there, key=lambda member: member.pod.key), broken)
        victim.whole = True
        yield victim

    def _victim(self, records: list[PodRecord], breaks: int = 0) -> VictimCandidate:
        priority = max(
            self._priority(record.gang, record.pod.priority) if record.gang is not None else record.pod.priority
            for record in records
        )
        return VictimCandidate(records, self._rules, priority, sum(map(self._work, records)), breaks)


def _by_rank(singles: list[VictimCandidate]) -> None:
    """Of members that have ranks the highest go first: most who make such gangs take them away in this order, and
    what is lost with one is lost with any."""
    ranked = [each for each in singles if each.records[0].pod.index < _NO_RANK]
    if len(ranked) > 1:
        work = sum(each.lost_work for each in ranked) / sum(len(each.records) for each in ranked)
        for each in ranked:
            each.lost_work, each.rank = work * len(each.records), -max(r.pod.index for r in each.records)


class DispensableMembers:
    """How many members a gang can do without, in all (`free`), of each role that has a minimum, and of subgroups.
    `all_dispensable`: it has nothing to break, or lacks some of its minimum already."""

    __slots__ = ("_roles", "_subquorum", "all_dispensable", "free")

    def __init__(self, gang: GangRecord, composites: Composites) -> None:
        self.free, self._roles = dispensable_members(gang, composites)
        self._subquorum: SubgroupQuorum | None = None
        active = gang.active
        if self.free < 0:
            self.free, self._roles, self.all_dispensable = active, Counter(), True
            return
        assert gang.spec is not None or not self.free
        if self.free and gang.spec is not None and gang.spec.subgroups:
            self._subquorum = SubgroupQuorum(gang, gang.spec)
        self.all_dispensable = not self._roles and self._subquorum is None and self.free >= active

    def can_lose(self, record: PodRecord, spent: Mapping[GangPart, int]) -> bool:
        """Whether the gang can do without a member; `spent` counts those before by what `counted_as` says of
        each."""
        role = record.pod.role
        if spent.get(None, 0) >= self.free or (role in self._roles and spent.get(role, 0) >= self._roles[role]):
            return False
        if self._subquorum is None:
            return True
        return self._subquorum.can_lose(record, spent)

    def can_lose_all(self, records: Sequence[PodRecord], spent: Mapping[GangPart, int]) -> bool:
        """The same for members that go together."""
        if len(records) == 1:
            return self.can_lose(records[0], spent)
        counted = Counter(spent)
        for record in records:
            if not self.can_lose(record, counted):
                return False
            counted.update(self.counted_as(record))
        return True

    def goes_with(self, record: PodRecord) -> list[PodRecord]:
        """Who goes if a member does: of a subgroup that is as large as it must be everybody, as what is left of it
        is of no use."""
        if self._subquorum is None or record.gang is None or not self._subquorum.is_exact(record):
            return [record]
        part, members = self._subquorum.subgroup_of(record), record.gang.members.values()
        mates = [m for m in members if m.state in ACTIVE and self._subquorum.subgroup_of(m) == part]
        return sorted(mates, key=lambda member: member.pod.key)

    def counted_as(self, record: PodRecord) -> Iterator[GangPart]:
        """What a member that goes counts for: the gang (None), its role, its subgroup."""
        yield None
        if record.pod.role in self._roles:
            yield record.pod.role
        if self._subquorum is not None and (part := self._subquorum.subgroup_of(record)) is not None:
            yield part


def _since(record: PodRecord) -> int:
    pod = record.pod
    return pod.started or pod.bound or pod.created


def hours_lost(record: PodRecord, now: float) -> float:
    """Hours since the pod began, or since its last checkpoint."""
    return max(0.0, now - max(_since(record), record.pod.checkpoint)) / _SECONDS


def lost_work(record: PodRecord, now: float, totals: Mapping[str, tuple[int, int]]) -> float:
    """The same times the largest part of the cluster that it holds."""
    return hours_lost(record, now) * cluster_part(record.footprint, totals)


def cluster_part(footprint: Footprint, totals: Mapping[str, tuple[int, int]]) -> float:
    """The largest part of any resource of the cluster that a pod holds, 0..1."""
    parts = (amount / totals[name][0] for name, amount in footprint.amounts.items() if totals.get(name, (0,))[0])
    return max(parts, default=0.0)


class Removals:
    """Which victims go, and whether accounts and gangs allow the next: every removal counts before the next is
    judged. `holding` tells what an account holds before; it is asked once."""

    def __init__(
        self,
        drf: DrfPreemption | None = None,
        holding: Callable[[AccountRecord], Mapping[str, int]] = future_holdings,
    ) -> None:
        self._holding = holding
        self._holdings: dict[AccountRecord, dict[str, int]] = {}
        self._spent: dict[DispensableMembers, Counter[GangPart]] = {}
        self._drf = drf
        self._shrunk: dict[GangRecord, dict[str, int]] = {}

    def holdings_of(self, account: AccountRecord) -> dict[str, int]:
        """What an account holds without those who go."""
        found = self._holdings.get(account)
        if found is None:
            found = self._holdings[account] = dict(self._holding(account))
        return found

    def allows(self, victim: VictimCandidate) -> bool:
        """Whether a rule still allows it."""
        rules = victim.rules.items()
        return all(
            rule.allows_removal(victim.amounts[charge_path], self.holdings_of) for charge_path, rule in rules
        ) and (self._drf is None or not _goes_by_drf(victim, self._drf) or self._drf_allows(victim, self._drf))

    def gang_can_lose(self, victim: VictimCandidate) -> bool:
        """Whether its gang can do without it, if it does not go as a whole."""
        dispensable = victim.dispensable
        if dispensable is None:
            return True
        return dispensable.can_lose_all(victim.records, self._spent.get(dispensable, {}))

    def add(self, victim: VictimCandidate, sign: int = 1) -> None:
        for charge_path, amounts in victim.amounts.items():
            for account in charge_path.path:
                add_amounts(self.holdings_of(account), amounts, -sign)
        for gang in victim.gangs if self._drf is not None else ():
            add_amounts(self._shrunk.setdefault(gang, {}), _of_gang(victim, gang), sign)
        if victim.dispensable is not None:
            spent = self._spent.setdefault(victim.dispensable, Counter())
            for record in victim.records:
                for key in victim.dispensable.counted_as(record):
                    spent[key] += sign

    def _drf_allows(self, victim: VictimCandidate, drf: DrfPreemption) -> bool:
        """Whether the victim's gangs hold enough more than the preemptor."""
        return all(drf.allows_victim(gang, _of_gang(victim, gang), self._shrunk.get(gang)) for gang in victim.gangs)


def _goes_by_drf(victim: VictimCandidate, drf: DrfPreemption) -> bool:
    """Whether the victim goes because others hold less, not for its priority."""
    if victim.priority < drf.priority or any(gang in drf.gangs for gang in victim.gangs):
        return False
    return any(rule.drf for rule in victim.rules.values())


def _of_gang(victim: VictimCandidate, gang: GangRecord) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for record in victim.records:
        if record.gang is gang:
            add_amounts(amounts, record.footprint.amounts, 1)
    return amounts
