"""Room for a gang that waits, or for one pod: others move so that every member that it needs fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.pod import MemberState
from phalanx.scheduling.defragmentation.attempt import RelocationAttempt, StuckError, pods_on_row
from phalanx.scheduling.defragmentation.relocation import RelocationLimits, RelocationObstacle
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session

# On how many nodes at most room is tried to be made for one member, cheapest first.
_NODES = 64
# How often one of the pods of a plan is left where it is, to see whether the plan gets cheaper.
_REPRIEVES = 24


class RoomForGang:
    """Members are placed hardest first: where there is room, else where the fewest pods must move for them."""

    def __init__(
        self,
        session: Session,
        unit: QueuedUnit,
        limits: RelocationLimits,
        tell: Callable[[str], None],
        left_alone: frozenset[str] = frozenset(),
    ) -> None:
        self._session = session
        self._left_alone = left_alone
        self._limits = limits
        self._tell = tell
        self.members = needed(session, unit)
        self._domains = domains_of(session, unit)
        self.obstacles: dict[int, RelocationObstacle] = {}

    def best_attempt(self) -> RelocationAttempt | None:
        """The cheapest plan that was found; None if there is none."""
        found = [(plan, rows) for rows in self._domains if (plan := self._plan(self._left_alone, rows)) is not None]
        if not found:
            return None
        best, domain = min(found, key=lambda entry: entry[0].cost())
        left_alone = self._left_alone
        for _, record in zip(range(_REPRIEVES), sorted(best.moving, key=_most_important_first), strict=False):
            other = self._plan(left_alone | {record.pod.uid}, domain)
            if other is not None and other.cost() < best.cost():
                self._tell(f"found a cheaper way: {other.cost().evictions} pods move")
                best, left_alone = other, left_alone | {record.pod.uid}
        return best

    def _plan(self, left_alone: frozenset[str], domain: BoolArray | None) -> RelocationAttempt | None:
        attempt = RelocationAttempt(self._session, self._limits, left_alone, domain)
        hardest = sorted(self.members, key=lambda member: (-attempt.size(member), member.order))
        waiting = [member for member in hardest if not attempt.place_member(member)]
        for number, member in enumerate(waiting):
            if not attempt.place_member(member) and not self._make_room(attempt, member):
                return None
            self._tell(f"room for {len(hardest) - len(waiting) + number + 1} of {len(hardest)} members")
        return attempt

    def _make_room(self, attempt: RelocationAttempt, member: PodRecord) -> bool:
        ways: list[tuple[tuple[float, ...], int, list[PodRecord]]] = []
        for row in attempt.could_take(member.pod_class):
            way = self._way(attempt, member, row)
            if way is not None:
                ways.append(((len(way), sum(map(attempt.size, way)), row), row, way))
        for _, row, way in sorted(ways, key=lambda entry: entry[0])[:_NODES]:
            try:
                attempt.exchange(row, way, member)
            except StuckError as stuck:
                self._note(attempt, row, stuck)
            else:
                return True
        return False

    def _note(self, attempt: RelocationAttempt, row: int, stuck: StuckError) -> None:
        """Of the first plan, in which nobody is left alone by choice."""
        if attempt.left_alone == self._left_alone:
            self.obstacles.setdefault(row, attempt.obstacle(stuck, row))

    def _way(self, attempt: RelocationAttempt, member: PodRecord, row: int) -> list[PodRecord] | None:
        """The pods of a row without which the member fits: the less important first, and none in vain."""
        missing = attempt.dry_run.lacking(member.pod_class, row)
        chosen: list[PodRecord] = []
        for record in self._movable(attempt, row, missing):
            if not missing.any():
                break
            if (record.footprint.usage[missing > 0] > 0).any():
                chosen.append(record)
                missing = np.maximum(missing - record.footprint.usage, 0)
        if missing.any():
            return None
        return self._needed_only(chosen, attempt.dry_run.lacking(member.pod_class, row))

    def _needed_only(self, chosen: list[PodRecord], missing: IntArray) -> list[PodRecord]:
        """Without those that can stay, the most important one first."""
        kept = list(chosen)
        for record in sorted(chosen, key=_most_important_first):
            rest = [other for other in kept if other is not record]
            freed = sum((other.footprint.usage for other in rest), np.zeros_like(missing))
            if (freed >= missing).all():
                kept = rest
        return kept

    def _movable(self, attempt: RelocationAttempt, row: int, missing: IntArray) -> list[PodRecord]:
        """Less important pods first, of equals those that free the most of what is missing."""
        movable: list[tuple[tuple[object, ...], PodRecord]] = []
        for record in pods_on_row(self._session, row):
            if record in attempt.moving or record.pod.fixture or record.state is MemberState.TERMINATING:
                continue
            reason = attempt.why_immovable(record)
            if reason is not None:
                self._note(attempt, row, StuckError(record, reason))
                continue
            lacking = missing > 0
            covered = float((np.minimum(record.footprint.usage, missing)[lacking] / missing[lacking]).sum())
            movable.append(((record.pod.priority, -covered, record.pod.key), record))
        return [record for _, record in sorted(movable, key=lambda entry: entry[0])]


def needed(session: Session, unit: QueuedUnit) -> list[PodRecord]:
    """The pending pods that must be placed for the unit to get what it needs."""
    if unit.pod is not None:
        return [unit.pod]
    found: list[PodRecord] = []
    for gang in unit.required:
        placement = GangPlacement(session, gang)
        wanted = dict(placement.need.roles)
        rest = placement.need.total - sum(wanted.values())
        spare: list[PodRecord] = []
        for batch in placement.batches:
            least = min(wanted.get(batch.role, 0), len(batch.members))
            found += batch.members[:least]
            spare += batch.members[least:]
            if least:
                wanted[batch.role] -= least
        found += spare[:rest]
    return found


def domains_of(session: Session, unit: QueuedUnit) -> list[BoolArray | None]:
    """The rows on which all members have to be, domain by domain, those first that take most of them already; None
    for everywhere. Empty where members have to be in several domains: that is not planned."""
    placements = [GangPlacement(session, gang) for gang in unit.required]
    if any(
        pod_set.area is not None and pod_set.area.rule.hard
        for placement in placements
        for pod_set in placement.parts
    ):
        return []
    near = [placement for placement in placements if placement.area is not None and placement.area.rule.hard]
    if not near:
        return [None]
    area, domains = near[0].area, session.topology_domains
    if len(placements) > 1 or area is None:
        return []
    demand = near[0].demand()
    ranked = sorted(domains.widest(area), key=lambda domain: -domains.placeable(domain, area, demand))
    return [domain.rows for domain in ranked[: domains.most_for_evictions]]


def _most_important_first(record: PodRecord) -> tuple[object, ...]:
    return -record.pod.priority, record.pod.key


def unit_of(units: Iterable[QueuedUnit], target: object) -> QueuedUnit | None:
    """The unit of a gang (by key) or of a pod on its own (by uid); the smallest in which a gang takes part."""
    found = [
        unit
        for unit in units
        if unit.key == target or (unit.pod is None and any(gang.key == target for gang in unit.gangs))
    ]
    return min(found, key=lambda unit: (len(unit.gangs), str(unit.key)), default=None)
