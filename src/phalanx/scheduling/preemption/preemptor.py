"""Preemptors: the quorums of a gang group, one pod, or several equal pods; and their order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.framework.queue_policies import barred_from_eviction
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, charges_of, copies_of, demand_of
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.gang_placement.surplus_domains import (
    SurplusSubgroup,
    kind_of,
    place_in_domain,
)
from phalanx.scheduling.placement.topology_domains import Area, DomainDemand
from phalanx.scheduling.preemption.solution import Placement
from phalanx.scheduling.queue.demands import (
    Demand,
)
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.session import Session


class Preemptor(Protocol):
    """Pods that are placed together, or not at all, where victims make room for them."""

    placed: list[Placement]
    """Pods and rows of the last successful `place`."""
    priority: int
    """The priority that victims must not reach."""
    preempts: bool
    """Whether the preemption policies of all pods and of their queues permit preemption."""
    barred_by: str
    """The queue whose policy forbids evictions for the pods; "" if none does."""
    surplus: bool
    """Whether the pods are surplus that reclaims its share only: it evicts surplus of other gangs, and a whole gang
    only if the gang's accounts keep their shares."""

    @property
    def unit(self) -> QueuedUnit:
        """The unit of the pods."""

    @property
    def demand(self) -> Demand:
        """The demand for which room is nominated until the victims have terminated."""

    @property
    def gangs(self) -> tuple[GangRecord, ...]:
        """The gangs of the pods. Victims among their members are compared with `pod_priority`."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def pod_priority(self) -> int:
        """The lowest priority among the pods."""

    @property
    def nominated(self) -> list[PodRecord]:
        """The pods that are nominated already."""

    @property
    def classes(self) -> tuple[ClassRecord, ...]:
        """The classes of the pods."""

    @property
    def total(self) -> int:
        """The number of pods that are needed."""

    @property
    def copies(self) -> list[tuple[ClassRecord, int]]:
        """The number of pods of each class, if the first that may take part are placed."""

    @property
    def charge_paths(self) -> dict[ChargePath, dict[str, int]]:
        """The amounts that each charge path would be charged."""

    @property
    def required_domain(self) -> tuple[Area, DomainDemand] | None:
        """The area of the first gang and its demand there; None for everywhere."""

    def place(self, session: Session, transaction: Transaction) -> GangFault | None:
        """Place all pods in the transaction and return None; or place no pod and return the fit error."""


class QuorumPreemptor:
    """Quorums of all gangs of a gang group; with `least`, of members with at least that priority."""

    surplus = False

    def __init__(self, session: Session, unit: QueuedUnit, least: int | None = None) -> None:
        self.unit = unit
        self.placements = [GangPlacement(session, gang, least) for gang in unit.gangs]
        self._quorums = demand_of(self.placements)
        self.demand: Demand = self._quorums
        self.gangs = unit.gangs
        unsatisfied = [placement for placement in self.placements if not placement.satisfied]
        names = [placement.gang.title for placement in unsatisfied]
        self.name = f"gang {names[0]}" if len(names) == 1 else f"gangs {', '.join(names)}"
        # The lowest priority of several gangs is the priority of the gang group.
        self._composites = composites = session.state.gangs.composites
        self.priority = min(_preempting_priority(placement, composites, least) for placement in unsatisfied)
        members = [member for placement in unsatisfied for batch in placement.batches for member in batch.members]
        self.pod_priority = min((member.pod.priority for member in members), default=0)
        self.barred_by = _barred_by(session, members)
        self.preempts = (
            not self.barred_by
            and all(member.pod.preempts for member in members)
            and all(map(composites.preempts, unit.gangs))
        )
        self.nominated = nominated_members(unit)
        self.classes = self._quorums.classes
        self.total = sum(placement.need.total for placement in unsatisfied)
        self.charge_paths = charges_of(session, self.placements, self._quorums)
        self.copies = [
            (pod_class, count) for _, pod_class, count in copies_of(session, self.placements, self._quorums)
        ]
        self.placed: list[Placement] = []

    @property
    def unstated_priorities(self) -> set[int]:
        """Priorities of the members of unsatisfied gangs without a priority of their PodGroups."""
        composites = self._composites
        return {
            member.pod.priority
            for placement in self.placements
            if not placement.satisfied and stated_priority(placement.gang, composites) is None
            for batch in placement.batches
            for member in batch.members
        }

    @property
    def required_domain(self) -> tuple[Area, DomainDemand] | None:
        """Required area of the first gang and its demand there; None for everywhere."""
        for gang in self._quorums.gangs:
            if gang.area is not None and gang.area.rule.hard and gang.total:
                return gang.area, gang
        return None

    def place(self, session: Session, transaction: Transaction) -> GangFault | None:
        facts = place_gangs(session, self.placements, self._quorums, transaction)
        self.placed = (
            [] if facts is not None else [entry for placement in self.placements for entry in placement.placed]
        )
        return facts


def _preempting_priority(placement: GangPlacement, composites: Composites, least: int | None) -> int:
    """Return the priority with which a gang preempts: its own, else the lowest among the members that would be
    placed. A member of low priority evicts no pod of its own rank."""
    stated = stated_priority(placement.gang, composites)
    if stated is not None:
        return stated
    priorities = sorted(
        (member.pod.priority for batch in placement.batches for member in batch.members), reverse=True
    )
    highest = min(priorities[: placement.need.total], default=0)
    return highest if least is None else min(highest, least)


def stated_priority(gang: GangRecord, composites: Composites) -> int | None:
    above = composites.priority(gang)
    return above if above is not None or gang.spec is None else gang.spec.priority


class PodPreemptor:
    """One pod (on its own, or a surplus member), or several equal ones: pods on their own, each with its own unit,
    or `surplus` members of one gang.
    """

    def __init__(
        self, session: Session, units: Sequence[QueuedUnit], *records: PodRecord, surplus: bool = False
    ) -> None:
        self.surplus = surplus
        first = records[0]
        self.unit = units[0]
        self.units = units
        self.records = records
        self.kind = kind_of(session, first)
        self.demand: Demand = self.kind
        self.gangs = (first.gang,) if first.gang is not None else ()
        self.name = f"pod {first.pod.key}"
        spec = first.gang.spec if first.gang is not None else None
        stated = spec.priority if spec is not None else None
        self.pod_priority = first.pod.priority
        self.priority = stated if stated is not None else self.pod_priority
        self.barred_by = _barred_by(session, [first])
        self.preempts = first.pod.preempts and not self.barred_by
        self.nominated = [record for record in records if record.nomination is not None]
        self.classes = (first.pod_class,)
        self.total = len(records)
        self.copies = [(first.pod_class, self.total)]
        self.charge_paths: dict[ChargePath, dict[str, int]] = {}
        if first.charge_path is not None:
            add_amounts(
                self.charge_paths.setdefault(first.charge_path, {}), first.pod_class.footprint.amounts, self.total
            )
        self.placed: list[Placement] = []

    @property
    def required_domain(self) -> tuple[Area, DomainDemand] | None:
        """Required area of the pod beside the members of its gang; None for everywhere."""
        area = self.kind.area
        return (area, self.kind) if area is not None and area.rule.hard else None

    def place(self, session: Session, transaction: Transaction) -> GangFault | None:
        pod_class, placed = self.kind.pod_class, list[Placement]()
        self.placed = []
        allowed = session.quota_check.room(self.kind.charge_path, pod_class.footprint)
        if self.kind.area is not None:
            placed, allowed = place_in_domain(session, transaction, SurplusSubgroup(self.kind, self.records, ())), 0
        while allowed >= self.total and len(placed) < self.total:
            rows = session.placer.place(pod_class, self.total - len(placed))
            if not rows:
                break
            chosen = self.records[len(placed) : len(placed) + len(rows)]
            transaction.place(pod_class, list(chosen), rows)
            placed += zip(chosen, rows, strict=True)
        if len(placed) == self.total:
            self.placed = placed
            return None
        facts = session.fit_errors.facts_now(self.kind)
        transaction.unplace()
        return facts


def in_order(session: Session, units: Iterable[QueuedUnit]) -> Iterator[list[QueuedUnit]]:
    """Yield units that wait for room in queue order, those that wait for surplus last in each band; consecutive
    equal pods on their own as one batch."""
    waits = session.unschedulable
    ordered = sorted(units, key=lambda unit: (unit.band, waits[unit.key][0].for_surplus, unit.rank))
    for kind, consecutive in groupby(ordered, key=lambda unit: _kind(session, unit)):
        equal_units = list(consecutive)
        if kind is not None:
            yield equal_units
        else:
            yield from ([unit] for unit in equal_units)


def _kind(session: Session, unit: QueuedUnit) -> Hashable:
    """Return a key that is equal for pods on their own with one preemption question; None for a unit without
    equals."""
    demand, record = session.unschedulable[unit.key][0], unit.pod
    if record is None or not demand.for_room or record.nomination is not None:
        return None
    return demand, record.pod.priority, record.pod.preempts


def joint_preemptors(session: Session, alike: Sequence[QueuedUnit]) -> Iterator[PodPreemptor]:
    """Yield preemptors of the first 1/1, 1/2, 1/4 … of equal units, down to two."""
    count = len(alike)
    while count > 1:
        yield PodPreemptor(session, alike[:count], *(unit.pod for unit in alike[:count] if unit.pod is not None))
        count //= 2


def _barred_by(session: Session, members: Iterable[PodRecord]) -> str:
    """Return the queue whose policy forbids evictions for one of the members; "" if none does."""
    policies = session.plugin_runtime.policy.queues
    if not policies:
        return ""
    barred = (barred_from_eviction(policies, session.charge_path(member).queue) for member in members)
    return next(filter(None, barred), "")


def never_evicts(preemptor: Preemptor) -> str:
    """Return the reason why no pod is evicted for a preemptor that must not preempt."""
    if preemptor.barred_by:
        return f"the policy forbids evictions for queue {preemptor.barred_by} (phalanx.queues)"
    return "the preemptor has the preemptionPolicy Never"
