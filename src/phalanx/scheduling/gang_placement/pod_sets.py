"""What a gang needs now, and who may take part: batches of equal members, sets of them, and their demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.resources import PODS, Requests, requests_of
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.gangs.quorum import QuorumRequirement, counted
from phalanx.scheduling.gangs.subgroups import Subgroup, part_key, subgroups_of
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.placement.topology_domains import Area, area_of
from phalanx.scheduling.queue.demands import (
    GangDemand,
    MemberKind,
    QuorumDemand,
    SubgroupDemand,
    gang_demand,
    member_demands,
)
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.session.session import Session


class PodBatch:
    """Members of one gang that are alike: same priority, class, role, charge path and task bucket; `members`
    in their order."""

    __slots__ = ("charge_path", "members", "pod_class", "priority", "role", "task_bucket")

    def __init__(
        self,
        priority: int,
        pod_class: ClassRecord,
        role: str,
        charge_path: ChargePath | None,
        task_bucket: int | None = None,
    ) -> None:
        self.priority = priority
        self.pod_class = pod_class
        self.role = role
        self.charge_path = charge_path
        self.task_bucket = task_bucket
        self.members: list[PodRecord] = []


Order = Callable[[Session, list[PodBatch]], list[PodBatch]]


def batches_of(
    members: list[PodRecord], roles: set[str], charged: bool, buckets: TaskBuckets | None = None
) -> list[PodBatch]:
    """The members that can be read, in batches; `roles` are those that matter, `charged` whether anybody pays."""
    found: dict[tuple[int, ClassRecord, str, ChargePath | None, int | None], PodBatch] = {}
    for member in members:
        pod = member.pod
        if pod.problem:
            continue
        role, charge_path = pod.role if pod.role in roles else "", member.charge_path if charged else None
        key = (
            -pod.priority,
            member.pod_class,
            role,
            charge_path,
            buckets.group_of(member) if buckets is not None else None,
        )
        batch = found.get(key)
        if batch is None:
            batch = found[key] = PodBatch(*key)
        batch.members.append(member)
    return list(found.values())


def hardest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Higher priority first, then fewest eligible nodes, then largest share of the cluster, then members' order;
    but nobody before those whom it has to be near to."""
    if len(batches) <= 1:
        return batches
    totals, names = session.totals(), session.state.space.names

    def hardness(entry: tuple[int, PodBatch]) -> tuple[int, int, float, int]:
        position, batch = entry
        pod_class = batch.pod_class
        share = max(
            amount / max(1, totals.get(names[column], (0, 0))[0])
            for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True)
        )
        return (batch.priority, int(session.placer.class_view(pod_class).mask.sum()), -share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=hardness)], lambda batch: (batch.pod_class,)
    )


def leanest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Higher priority first, then the smallest share of the cluster, then members' order, with the same
    exception."""
    totals = session.totals()

    def size(entry: tuple[int, PodBatch]) -> tuple[int, float, int]:
        position, batch = entry
        amounts = batch.pod_class.footprint.amounts.items()
        share = max(amount / max(1, totals.get(name, (0, 0))[0]) for name, amount in amounts)
        return (batch.priority, share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=size)], lambda batch: (batch.pod_class,)
    )


def left_of(batches: Sequence[PodBatch], used: Sequence[int]) -> list[tuple[PodBatch, int]]:
    """How many of each batch are without a node, where so many are not."""
    return [(batch, len(batch.members) - count) for batch, count in zip(batches, used, strict=True)]


def of_whole_gang(
    session: Session,
    excess: OverQuota,
    pod_class: ClassRecord,
    count: int,
    tried: list[Footprint],
    left: Sequence[tuple[PodBatch, int]],
    more: int,
) -> OverQuota:
    """What is over a quota when `count` pods of a class are asked for, told of the whole gang: members that were
    `tried` are part of what it wants, not of what is in use, and so are `more` of those who are left, the least."""
    name = excess.resource
    own = sum(footprint.amounts.get(name, 0) for footprint in tried)
    least = _least(
        [
            (batch.pod_class.footprint.amounts.get(name, 0), there)
            for batch, there in left
            if batch.charge_path is not None and excess.account in batch.charge_path.path
        ],
        more,
    )
    used, wanted = excess.used - own, excess.wanted + own + least
    # A higher ceiling does not help who asks for more than there is.
    change = excess.change if used + wanted <= session.totals().get(name, (0, 0))[0] else ""
    beyond = _beyond_all_nodes(session, name, [*tried, *[pod_class.footprint] * count], left, more)
    return msgspec.structs.replace(excess, used=used, wanted=wanted, change=change, beyond=beyond)


def _beyond_all_nodes(
    session: Session, first: str, known: Sequence[Footprint], left: Sequence[tuple[PodBatch, int]], count: int
) -> tuple[str, int, int] | None:
    """(resource, needed, offered) of which all nodes together, were they empty, offer less than members of known
    footprints and `count` of those who are left need; None where there is enough. `first` is looked at first."""
    totals, names, some = session.totals(), session.state.space.names, Counter(known)
    columns = {column for each in some for column in np.flatnonzero(each.usage).tolist()}
    for column in sorted(columns, key=lambda column: (names[column] != first, column)):
        costs = [(int(batch.pod_class.footprint.usage[column]), there) for batch, there in left]
        needed = sum(int(each.usage[column]) * copies for each, copies in some.items()) + _least(costs, count)
        offered = totals.get(names[column], (0, 0))[0]
        if needed > offered:
            return names[column], needed, offered
    return None


def _least(costs: list[tuple[int, int]], count: int) -> int:
    """The sum over so many of those of whom (cost, how many there are) is known, the cheapest first."""
    amount = 0
    for cost, there in sorted(costs):
        amount += cost * min(there, count)
        count -= min(there, count)
    return amount


class PodSet:
    """Members who are placed together, and the area in which they have to be."""

    __slots__ = ("_orders", "area", "batches", "part", "total")

    def __init__(
        self, batches: list[PodBatch], total: int = 0, area: Area | None = None, part: Subgroup | None = None
    ) -> None:
        self.batches = batches
        self.total = total
        self.area = area
        self.part = part
        self._orders: dict[Order, list[PodBatch]] = {}

    @property
    def uids(self) -> set[str]:
        return {member.pod.uid for batch in self.batches for member in batch.members}

    def in_order(self, session: Session, order: Order) -> list[PodBatch]:
        """The batches in an order; found once, as tries take and give back room but hardly change who may go
        where."""
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = order(session, self.batches)
        return found


class GangPlacement:
    """One gang of those that are placed together: what it needs now, and who may take part.

    `rest` are the members that are in no subgroup, `parts` the subgroups that could start, those first that have
    started already, `extras` further members of subgroups that are whole, `placed` who has been placed where.
    """

    __slots__ = ("area", "buckets", "extras", "gang", "need", "parts", "placed", "rest", "satisfied")

    def __init__(self, session: Session, gang: GangRecord, least: int | None = None) -> None:
        """`least` is the lowest priority of members that may take part (None: all)."""
        self.gang = gang
        self.need: QuorumRequirement = session.requirement(gang)
        self.satisfied = self.need.satisfied
        self.rest = PodSet([])
        self.parts: list[PodSet] = []
        self.extras: list[PodSet] = []
        self.placed: list[tuple[PodRecord, int]] = []
        self.area: Area | None = None
        self.buckets: TaskBuckets | None = None
        if not self.satisfied:
            spec = gang.spec
            assert spec is not None
            self.area = area_of(spec.topology, gang.members.values()) if spec.topology is not None else None
            # What is half bound is finished whatever its accounts say meanwhile: nobody pays for a repair.
            roles, charged = {role for role, _ in self.need.roles}, not self.need.repair
            members = session.pending_in_order(gang) + (gang.starting_placeholders if gang.placeholders else [])
            if least is not None:
                members = [member for member in members if member.pod.priority >= least]
            self.buckets = session.task_buckets(gang)
            if not spec.subgroups:
                self.rest = PodSet(batches_of(members, roles, charged, self.buckets))
                return
            policy, repair = spec.match_policy, self.need.repair
            found = subgroups_of(spec, gang.members.values(), lambda each: counted(each, policy, repair))
            waiting: dict[object, list[PodRecord]] = {}
            for member in members:
                waiting.setdefault(part_key(spec.subgroups, member), []).append(member)
            self.rest = PodSet(batches_of(waiting.get(None, []), roles, charged, self.buckets))
            for key, part in sorted(found.items(), key=lambda entry: (not entry[1].there, entry[0])):
                if part.can_start or (part.waiting and not part.missing):
                    area = area_of(part.rule.topology, part.members)
                    batches = batches_of(waiting[key], roles, charged, self.buckets)
                    pod_sets = self.parts if part.missing else self.extras
                    pod_sets.append(PodSet(batches, part.missing or part.waiting, area, part))
            self._enlarge()

    def _enlarge(self) -> None:
        """Where whole subgroups of their size are not enough for the quorum, more of their members start."""
        there = sum(len(batch.members) for batch in self.rest.batches)
        short = self.need.total - there - sum(pod_set.total for pod_set in (*self.parts, *self.extras))
        for pod_set in self.parts:
            more = min(max(0, short), sum(len(batch.members) for batch in pod_set.batches) - pod_set.total)
            pod_set.total += more
            short -= more

    @property
    def batches(self) -> list[PodBatch]:
        """All who may take part."""
        return [batch for pod_set in (self.rest, *self.parts, *self.extras) for batch in pod_set.batches]

    @property
    def everybody(self) -> dict[ClassRecord, int] | None:
        """How many of each class wait, where they are more than are needed."""
        found: dict[ClassRecord, int] = {}
        for batch in self.batches:
            found[batch.pod_class] = found.get(batch.pod_class, 0) + len(batch.members)
        return found if sum(found.values()) > self.need.total else None

    def near_enough(self, session: Session) -> bool:
        """Whether those who are placed keep to their domains, and all subgroups that must start are whole."""
        if self.area is not None and not session.topology_domains.holds(self.area, [row for _, row in self.placed]):
            return False
        started: dict[int, int] = {}
        for pod_set in self.parts:
            assert pod_set.part is not None
            rows = [row for record, row in self.placed if record.pod.uid in pod_set.uids]
            if pod_set.area is not None and rows and not session.topology_domains.holds(pod_set.area, rows):
                return False
            if 0 < len(rows) < pod_set.total:
                return False
            number = pod_set.part.key[0]
            started[number] = started.get(number, 0) + (len(rows) >= pod_set.total)
        return all(started.get(number, 0) >= least for number, least in enumerate(self.need.subgroups))

    def demand(self) -> GangDemand:
        need = self.need
        if self.satisfied:
            return gang_demand(need, (), ())
        found = gang_demand(need, _kinds(self.batches), _reserve(self.gang))
        if self.area is None and not (self.parts or self.extras):
            return found
        return msgspec.structs.replace(
            found,
            area=self.area,
            parts=tuple(subgroup_demand(pod_set) for pod_set in (*self.parts, *self.extras)),
            subgroups=need.subgroups,
        )


def subgroup_demand(pod_set: PodSet) -> SubgroupDemand:
    assert pod_set.part is not None
    portions = member_demands(_kinds(pod_set.batches), set(), pod_set.total)
    return SubgroupDemand(pod_set.part.key[0], pod_set.total, portions, pod_set.area)


def demand_of(placements: list[GangPlacement]) -> QuorumDemand:
    return QuorumDemand(tuple([placement.demand() for placement in placements]))


def copies_of(
    session: Session, placements: list[GangPlacement], demand: QuorumDemand
) -> Iterator[tuple[ChargePath, ClassRecord, int]]:
    """How many pods of which class who pays for, if the first of the portions will do."""
    for placement, part in zip(placements, demand.gangs, strict=True):
        left = part.total
        for portion in part.members:
            count = min(left, portion.count)
            if count > 0:
                # Nobody's limits hold a repair back, but others go for it on its own queue's grounds only.
                charge_path = portion.charge_path or session.charge_path(placement.gang)
                left -= count
                yield charge_path, portion.pod_class, count


def charges_of(
    session: Session, placements: list[GangPlacement], demand: QuorumDemand
) -> dict[ChargePath, dict[str, int]]:
    """What each charge path would be charged."""
    charges: dict[ChargePath, dict[str, int]] = {}
    for charge_path, pod_class, count in copies_of(session, placements, demand):
        add_amounts(charges.setdefault(charge_path, {}), pod_class.footprint.amounts, count)
    return charges


def _kinds(batches: list[PodBatch]) -> list[tuple[MemberKind, int]]:
    return [((batch.pod_class, batch.role, batch.charge_path), len(batch.members)) for batch in batches]


def _reserve(gang: GangRecord) -> Requests:
    """What minResources and a slot per needed member ask to be idle, the gang's own members counted as idle.

    Only for groups without an admission of their own: those were counted when they were admitted.
    """
    spec = gang.spec
    assert spec is not None
    if spec.admission or not spec.min_resources:
        return ()
    wanted = dict(spec.min_resources)
    wanted.setdefault(PODS, spec.min_member)
    for member in gang.members.values():
        if member.row >= 0:
            for name, amount in (*member.pod.usage, (PODS, 1)):
                wanted[name] = wanted.get(name, 0) - amount
    return requests_of({name: amount for name, amount in wanted.items() if amount > 0})
