"""Pods that a gang needs now: batches of equal members, sets of batches, and their demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

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
    """Equal members of one gang: same priority, class, role, charge path and task bucket; `members` are in
    order.
    """

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

    def without(self, uids: Collection[str]) -> PodBatch:
        """Return the batch without the pods with these uids."""
        batch = PodBatch(self.priority, self.pod_class, self.role, self.charge_path, self.task_bucket)
        batch.members = [member for member in self.members if member.pod.uid not in uids]
        return batch


Order = Callable[[Session, list[PodBatch]], list[PodBatch]]


def batches_of(
    members: list[PodRecord], roles: set[str], charged: bool, buckets: TaskBuckets | None = None
) -> list[PodBatch]:
    """Return the members with a valid spec in batches.

    Only the given `roles` are distinguished. With `charged`, members are distinguished by their charge path.
    """
    batches: dict[tuple[int, ClassRecord, str, ChargePath | None, int | None], PodBatch] = {}
    last = None
    for member in members:
        pod = member.pod
        if pod.problem:
            continue
        # Mostly, members are equal to their predecessors.
        if (
            last is None
            or member.pod_class is not last.pod_class
            or member.charge_path is not last.charge_path
            or pod.priority != last.pod.priority
            or pod.role != last.pod.role
            or buckets is not None
        ):
            role, charge_path = pod.role if pod.role in roles else "", member.charge_path if charged else None
            group = buckets.group_of(member) if buckets is not None else None
            key = (-pod.priority, member.pod_class, role, charge_path, group)
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = PodBatch(*key)
            last, add = member, batch.members.append
        add(member)
    return list(batches.values())


def hardest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Sort by higher priority, fewest eligible nodes, largest share of the cluster, then members' order.

    A batch with required affinity to another one sorts after it.
    """
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
    """Sort by higher priority, smallest share of the cluster, then members' order.

    A batch with required affinity to another one sorts after it.
    """
    totals = session.totals()

    def size(entry: tuple[int, PodBatch]) -> tuple[int, float, int]:
        position, batch = entry
        amounts = batch.pod_class.footprint.amounts.items()
        share = max(amount / max(1, totals.get(name, (0, 0))[0]) for name, amount in amounts)
        return (batch.priority, share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=size)], lambda batch: (batch.pod_class,)
    )


def unplaced_of(batches: Sequence[PodBatch], used: Sequence[int]) -> list[tuple[PodBatch, int]]:
    """Return the number of unplaced members of each batch; `used` are the placed ones."""
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
    """Return the quota refusal of `count` pods of a class, restated for the whole gang.

    Members that were `tried`, and the `more` cheapest unplaced members, count as requested instead of used.
    """
    name = excess.resource
    own = sum(footprint.amounts.get(name, 0) for footprint in tried)
    cheapest = _least(
        [
            (batch.pod_class.footprint.amounts.get(name, 0), pods)
            for batch, pods in left
            if batch.charge_path is not None and excess.account in batch.charge_path.path
        ],
        more,
    )
    used, wanted = excess.used - own, excess.wanted + own + cheapest
    # A higher limit does not help a request above the total of all nodes.
    change = excess.change if used + wanted <= session.totals().get(name, (0, 0))[0] else ""
    beyond = _beyond_all_nodes(session, name, [*tried, *[pod_class.footprint] * count], left, more)
    return msgspec.structs.replace(excess, used=used, wanted=wanted, change=change, beyond=beyond)


def _beyond_all_nodes(
    session: Session, first: str, known: Sequence[Footprint], left: Sequence[tuple[PodBatch, int]], count: int
) -> tuple[str, int, int] | None:
    """Return (resource, needed, offered) of a resource of which all nodes, if empty, offer too little; None if
    enough.

    The need is that of the `known` footprints and of the `count` cheapest unplaced members. `first` is checked
    first.
    """
    totals, names, some = session.totals(), session.state.space.names, Counter(known)
    columns = {column for footprint in some for column in np.flatnonzero(footprint.usage).tolist()}
    for column in sorted(columns, key=lambda column: (names[column] != first, column)):
        costs = [(int(batch.pod_class.footprint.usage[column]), pods) for batch, pods in left]
        needed = sum(int(footprint.usage[column]) * copies for footprint, copies in some.items()) + _least(
            costs, count
        )
        offered = totals.get(names[column], (0, 0))[0]
        if needed > offered:
            return names[column], needed, offered
    return None


def _least(costs: list[tuple[int, int]], count: int) -> int:
    """Return the cost of the `count` cheapest pods; `costs` are (cost, number of pods)."""
    amount = 0
    for cost, pods in sorted(costs):
        amount += cost * min(pods, count)
        count -= min(pods, count)
    return amount


class PodSet:
    """Members that are placed together, and their topology area."""

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
        """Return the batches in an order. It is cached, as placements hardly change the eligible nodes."""
        batches = self._orders.get(order)
        if batches is None:
            batches = self._orders[order] = order(session, self.batches)
        return batches


class GangPlacement:
    """Demand of one gang in a joint placement, and the members that can take part.

    `rest` are the members in no subgroup, `parts` the subgroups that could start, started ones first. `extras` are
    further members of complete subgroups, `placed` the placed members with their rows.
    """

    __slots__ = ("area", "buckets", "extras", "gang", "need", "parts", "placed", "rest", "satisfied")

    def __init__(self, session: Session, gang: GangRecord, least: int | None = None) -> None:
        """`least` is the lowest priority of members that can take part (None: all)."""
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
            # A half-bound gang is completed independent of its quota: a repair is not charged.
            roles, charged = {role for role, _ in self.need.roles}, not self.need.repair
            members = session.pending_in_order(gang) + (gang.starting_placeholders if gang.placeholders else [])
            if least is not None:
                members = [member for member in members if member.pod.priority >= least]
            self.buckets = session.task_buckets(gang)
            if not spec.subgroups:
                self.rest = PodSet(batches_of(members, roles, charged, self.buckets))
                return
            policy, repair = spec.match_policy, self.need.repair
            subgroups = subgroups_of(spec, gang.members.values(), lambda record: counted(record, policy, repair))
            waiting: dict[object, list[PodRecord]] = {}
            for member in members:
                waiting.setdefault(part_key(spec.subgroups, member), []).append(member)
            self.rest = PodSet(batches_of(waiting.get(None, []), roles, charged, self.buckets))
            for key, part in sorted(subgroups.items(), key=lambda entry: (not entry[1].there, entry[0])):
                if part.can_start or (part.waiting and not part.missing):
                    area = area_of(part.rule.topology, part.members)
                    batches = batches_of(waiting[key], roles, charged, self.buckets)
                    pod_sets = self.parts if part.missing else self.extras
                    pod_sets.append(PodSet(batches, part.missing or part.waiting, area, part))
            self._raise_part_sizes()

    def _raise_part_sizes(self) -> None:
        """Raise the sizes of subgroups if complete subgroups of minimum size do not reach the quorum."""
        members = sum(len(batch.members) for batch in self.rest.batches)
        short = self.need.total - members - sum(pod_set.total for pod_set in (*self.parts, *self.extras))
        for pod_set in self.parts:
            more = min(max(0, short), sum(len(batch.members) for batch in pod_set.batches) - pod_set.total)
            pod_set.total += more
            short -= more

    @property
    def batches(self) -> list[PodBatch]:
        """The batches of all members that can take part."""
        return [batch for pod_set in (self.rest, *self.parts, *self.extras) for batch in pod_set.batches]

    @property
    def waiting_pods(self) -> dict[ClassRecord, int] | None:
        """Number of waiting members by class, None if all of them are needed."""
        counts: dict[ClassRecord, int] = {}
        for batch in self.batches:
            counts[batch.pod_class] = counts.get(batch.pod_class, 0) + len(batch.members)
        return counts if sum(counts.values()) > self.need.total else None

    def near_enough(self, session: Session) -> bool:
        """Return whether placed members keep their topology and all required subgroups are complete."""
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
        demand = gang_demand(need, _kinds(self.batches), _reserve(self.gang))
        if self.area is None and not (self.parts or self.extras):
            return demand
        return msgspec.structs.replace(
            demand,
            area=self.area,
            parts=tuple(subgroup_demand(pod_set) for pod_set in (*self.parts, *self.extras)),
            subgroups=need.subgroups,
        )


def placed_again(session: Session, members: list[PodRecord]) -> GangPlacement:
    """Return the placement of members of one gang that are about to move: all of them are placed again."""
    gang = members[0].gang
    assert gang is not None
    assert gang.spec is not None
    placement = GangPlacement(session, gang)
    moved = set(members)
    placement.need, placement.satisfied = QuorumRequirement(len(members)), False
    placement.rest = PodSet(batches_of(members, set(), charged=True))
    placement.parts, placement.extras, placement.buckets = [], [], None
    others = [member for member in gang.members.values() if member not in moved]
    placement.area = area_of(gang.spec.topology, others)
    return placement


def subgroup_demand(pod_set: PodSet) -> SubgroupDemand:
    assert pod_set.part is not None
    portions = member_demands(_kinds(pod_set.batches), set(), pod_set.total)
    return SubgroupDemand(pod_set.part.key[0], pod_set.total, portions, pod_set.area)


def demand_of(placements: list[GangPlacement]) -> QuorumDemand:
    return QuorumDemand(tuple([placement.demand() for placement in placements]))


def copies_of(
    session: Session, placements: list[GangPlacement], demand: QuorumDemand
) -> Iterator[tuple[ChargePath, ClassRecord, int]]:
    """Yield (charge path, class, number of pods) of a choice of members: the first of each gang's demand."""
    for placement, part in zip(placements, demand.gangs, strict=True):
        remaining = part.total
        for portion in part.members:
            count = min(remaining, portion.count)
            if count > 0:
                # No limit applies to a repair, but its own queue decides which victims are evicted for it.
                charge_path = portion.charge_path or session.charge_path(placement.gang)
                remaining -= count
                yield charge_path, portion.pod_class, count


def charges_of(
    session: Session, placements: list[GangPlacement], demand: QuorumDemand
) -> dict[ChargePath, dict[str, int]]:
    """Return the amounts that each charge path would be charged."""
    charges: dict[ChargePath, dict[str, int]] = {}
    for charge_path, pod_class, count in copies_of(session, placements, demand):
        add_amounts(charges.setdefault(charge_path, {}), pod_class.footprint.amounts, count)
    return charges


def _kinds(batches: list[PodBatch]) -> list[tuple[MemberKind, int]]:
    return [((batch.pod_class, batch.role, batch.charge_path), len(batch.members)) for batch in batches]


def _reserve(gang: GangRecord) -> Requests:
    """Return the idle amounts that minResources and a slot per needed member require.

    Amounts of the gang's own placed members count as idle. Groups with admission are excluded: they were checked at
    admission.
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
