"""Victim candidates: surplus members singly or by subgroup, the rest of a gang as a whole, and single pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

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
# Members without rank sort after all members with one.
_NO_RANK = 2**31

GangPart = str | PartKey | None
"""Part of a gang: a role, a subgroup, or the whole gang (None)."""


class VictimCandidate:
    """Pods that are evicted together or not at all.

    - `broken_quorums`: number of gangs that lose a quorum that they have.
    - `pod_priorities`: sum of the pods' own priorities; `priority`: the highest priority that a preemptor must
      exceed (`Session.victim_priority`).
    - `rules`: reclaim rules by charge path; `amounts`: usage by charge path.
    - `shortfall`: part of its deserved share that a reclaimee would lack without this victim alone.
    - `exhausted_budgets`: number of its pods, by budget, under a disruption budget that allows no disruption.
    - `order_key`: sort key of the eviction order.
    - `whole`: the candidate is all members of some gangs. A single member uses up the gang's `dispensable` members;
      it counts as part of the whole candidate if both are evicted.
    - `rank`: negated rank of a single member, where other members of its gang have ranks too.
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
        "shortfall",
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
            records[0].pod.priority if len(records) == 1 else sum(pod.pod.priority for pod in records)
        )
        self.whole = False
        self.rank = 0
        self.dispensable: DispensableMembers | None = None
        self.shortfall = Fraction(0)
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
        self.preempted = any(pod.reason is EvictionReason.PREEMPTED for pod in self.rules.values())
        self.distance = max(rule.distance for rule in self.rules.values())

    def __repr__(self) -> str:
        return f"VictimCandidate({', '.join(record.pod.key for record in self.records)})"

    @property
    def excess(self) -> float:
        return min(rule.excess for rule in self.rules.values())

    @property
    def reclaimed_accounts(self) -> tuple[AccountRecord, ...]:
        """Accounts from which the victim is reclaimed, on every level; equal for victims of one queue and quota."""
        return tuple(account for rule in self.rules.values() for account in rule.reclaimed_accounts)

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
        """Highest pod priority, whatever the priority of its gang."""
        return (
            self.pod_priorities if len(self.records) == 1 else max(record.pod.priority for record in self.records)
        )

    @property
    def name(self) -> tuple[str, str]:
        first = min(self.records, key=lambda record: record.pod.key)
        return first.pod.namespace, first.pod.name


class VictimBuilder:
    """Builder of victim candidates from pods. `may_go` returns whether nothing forbids the eviction of a pod."""

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
        """Return all victim candidates that include one of the pods."""
        candidates: list[VictimCandidate] = []
        members: dict[GangRecord, list[PodRecord]] = {}
        for record in records:
            if record.gang is not None:
                members.setdefault(record.gang, []).append(record)
            elif self._may_go(record):
                candidates.append(self._victim([record]))
        gang_groups: dict[frozenset[GangKey], list[GangRecord]] = {}
        for gang in members:
            mates = gang_group_of(gang, self._state.gangs, self._composites)
            gang_groups.setdefault(frozenset(mate.key for mate in mates), mates)
        for mates in gang_groups.values():
            candidates.extend(self._of_gang_group(mates, members))
        return candidates

    def _of_gang_group(
        self, gangs: list[GangRecord], members: Mapping[GangRecord, list[PodRecord]]
    ) -> Iterator[VictimCandidate]:
        """Yield surplus members singly, then all members of the gangs together: gangs of one group need each
        other."""
        dispensable, led = {gang: DispensableMembers(gang, self._composites) for gang in gangs}, False
        for gang, own in dispensable.items():
            singles: dict[str, VictimCandidate] = {}
            for record in members.get(gang, ()) if own.free > 0 else ():
                if record.pod.uid in singles:
                    continue
                mates = own.evicted_with(record)
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
        # A gang is no victim of its own members. A gang that needs no member loses its members singly, its leader
        # excepted.
        single = all(own.all_dispensable for own in dispensable.values()) and not led
        if single or any(gang in self._own for gang in gangs):
            return
        members_left = [member for gang in gangs for member in gang.members.values() if member.state in ACTIVE]
        # A pod that is still being bound cannot be evicted.
        if not members_left or any(m.state is MemberState.ASSUMED or not self._may_go(m) for m in members_left):
            return
        broken = sum(1 for gang in gangs if holds_quorum(gang))
        victim = self._victim(sorted(members_left, key=lambda member: member.pod.key), broken)
        victim.whole = True
        yield victim

    def _victim(self, records: list[PodRecord], breaks: int = 0) -> VictimCandidate:
        priority = max(
            self._priority(record.gang, record.pod.priority) if record.gang is not None else record.pod.priority
            for record in records
        )
        return VictimCandidate(records, self._rules, priority, sum(map(self._work, records)), breaks)


def _by_rank(singles: list[VictimCandidate]) -> None:
    """Rank single members so that the highest ranks are evicted first, with equal lost work.

    Most controllers of ranked gangs scale down in this order, and any lost member loses the same work.
    """
    ranked = [victim for victim in singles if victim.records[0].pod.index < _NO_RANK]
    if len(ranked) > 1:
        work = sum(victim.lost_work for victim in ranked) / sum(len(victim.records) for victim in ranked)
        for victim in ranked:
            victim.lost_work, victim.rank = work * len(victim.records), -max(r.pod.index for r in victim.records)


class DispensableMembers:
    """Number of members that a gang can lose: in all (`free`), by role with a minimum, and by subgroup.

    With `all_dispensable` the gang has no quorum to break, or has already lost it.
    """

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
        """Return whether the gang can lose a member.

        `spent` counts the members lost before, by the keys of `counted_as`.
        """
        role = record.pod.role
        if spent.get(None, 0) >= self.free or (role in self._roles and spent.get(role, 0) >= self._roles[role]):
            return False
        if self._subquorum is None:
            return True
        return self._subquorum.can_lose(record, spent)

    def can_lose_all(self, records: Sequence[PodRecord], spent: Mapping[GangPart, int]) -> bool:
        """Return whether the gang can lose several members together."""
        if len(records) == 1:
            return self.can_lose(records[0], spent)
        counted = Counter(spent)
        for record in records:
            if not self.can_lose(record, counted):
                return False
            counted.update(self.counted_as(record))
        return True

    def evicted_with(self, record: PodRecord) -> list[PodRecord]:
        """Return the pods that are evicted with a member: all of a subgroup of exactly the required size, as a
        smaller one is useless."""
        if self._subquorum is None or record.gang is None or not self._subquorum.is_exact(record):
            return [record]
        part, members = self._subquorum.subgroup_of(record), record.gang.members.values()
        mates = [m for m in members if m.state in ACTIVE and self._subquorum.subgroup_of(m) == part]
        return sorted(mates, key=lambda member: member.pod.key)

    def counted_as(self, record: PodRecord) -> Iterator[GangPart]:
        """Yield the keys under which a lost member counts: the gang (None), its role, its subgroup."""
        yield None
        if record.pod.role in self._roles:
            yield record.pod.role
        if self._subquorum is not None and (part := self._subquorum.subgroup_of(record)) is not None:
            yield part


def _since(record: PodRecord) -> int:
    pod = record.pod
    return pod.started or pod.bound or pod.created


def hours_lost(record: PodRecord, now: float) -> float:
    """Return the hours since the pod's start or last checkpoint."""
    return max(0.0, now - max(_since(record), record.pod.checkpoint)) / _SECONDS


def lost_work(record: PodRecord, now: float, totals: Mapping[str, tuple[int, int]]) -> float:
    """Return the lost hours times the pod's largest share of the cluster."""
    return hours_lost(record, now) * cluster_part(record.footprint, totals)


def cluster_part(footprint: Footprint, totals: Mapping[str, tuple[int, int]]) -> float:
    """Return the pod's largest share of any resource of the cluster, 0..1."""
    parts = (amount / totals[name][0] for name, amount in footprint.amounts.items() if totals.get(name, (0,))[0])
    return max(parts, default=0.0)


class Removals:
    """Sequence of removed victims: each removal counts before accounts and gangs are asked about the next.

    `holding` returns the usage of an account before the removals; it is called once an account.
    """

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
        """Return the usage of an account without the removed victims."""
        holdings = self._holdings.get(account)
        if holdings is None:
            holdings = self._holdings[account] = dict(self._holding(account))
        return holdings

    def allows(self, victim: VictimCandidate) -> bool:
        """Return whether the reclaim rules still permit the removal of a victim."""
        rules = victim.rules.items()
        return all(
            rule.allows_removal(victim.amounts[charge_path], self.holdings_of) for charge_path, rule in rules
        ) and (self._drf is None or not _is_drf_victim(victim, self._drf) or self._drf_allows(victim, self._drf))

    def gang_can_lose(self, victim: VictimCandidate) -> bool:
        """Return whether the victim's gang can lose it; True for whole gangs."""
        dispensable = victim.dispensable
        if dispensable is None:
            return True
        return dispensable.can_lose_all(victim.records, self._spent.get(dispensable, {}))

    def add(self, victim: VictimCandidate, sign: int = 1) -> None:
        for charge_path, amounts in victim.amounts.items():
            for account in charge_path.path:
                add_amounts(self.holdings_of(account), amounts, -sign)
        for gang in victim.gangs if self._drf is not None else ():
            add_amounts(self._shrunk.setdefault(gang, {}), _amounts_of_gang(victim, gang), sign)
        if victim.dispensable is not None:
            spent = self._spent.setdefault(victim.dispensable, Counter())
            for record in victim.records:
                for key in victim.dispensable.counted_as(record):
                    spent[key] += sign

    def _drf_allows(self, victim: VictimCandidate, drf: DrfPreemption) -> bool:
        """Return whether each of the victim's gangs has a large enough share above the preemptor."""
        return all(
            drf.allows_victim(gang, _amounts_of_gang(victim, gang), self._shrunk.get(gang)) for gang in victim.gangs
        )


def _is_drf_victim(victim: VictimCandidate, drf: DrfPreemption) -> bool:
    """Return whether the victim is evicted for its gang's larger share and not for its priority."""
    if victim.priority < drf.priority or any(gang in drf.gangs for gang in victim.gangs):
        return False
    return any(rule.drf for rule in victim.rules.values())


def _amounts_of_gang(victim: VictimCandidate, gang: GangRecord) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for record in victim.records:
        if record.gang is gang:
            add_amounts(amounts, record.footprint.amounts, 1)
    return amounts
