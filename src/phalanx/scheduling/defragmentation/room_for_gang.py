"""Search for pods to move so that the quorum of a waiting gang, or a waiting pod, fits."""

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

# Largest number of nodes on which room for one member is tried, the cheapest first.
_NODES = 64
# Number of pods of a plan that are kept in place one at a time to find a cheaper plan.
_REPRIEVES = 24


class RoomForGang:
    """Search for nodes for waiting members: the largest members first, each on a node with enough free resources,
    else where the fewest pods must move."""

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
        """Return the cheapest plan of moves that was found; None if there is none."""
        plans = [(plan, rows) for rows in self._domains if (plan := self._plan(self._left_alone, rows)) is not None]
        if not plans:
            return None
        best, domain = min(plans, key=lambda entry: entry[0].cost())
        left_alone = self._left_alone
        for _, record in zip(range(_REPRIEVES), sorted(best.moving, key=_most_important_first), strict=False):
            cheaper = self._plan(left_alone | {record.pod.uid}, domain)
            if cheaper is not None and cheaper.cost() < best.cost():
                self._tell(f"found a cheaper plan: {cheaper.cost().evictions} pods move")
                best, left_alone = cheaper, left_alone | {record.pod.uid}
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
        options: list[tuple[tuple[float, ...], int, list[PodRecord]]] = []
        for row in attempt.could_take(member.pod_class):
            pods_to_move = self._pods_to_move(attempt, member, row)
            if pods_to_move is not None:
                options.append(((len(pods_to_move), sum(map(attempt.size, pods_to_move)), row), row, pods_to_move))
        for _, row, pods_to_move in sorted(options, key=lambda entry: entry[0])[:_NODES]:
            try:
                attempt.exchange(row, pods_to_move, member)
            except StuckError as stuck:
                self._note(attempt, row, stuck)
            else:
                return True
        return False

    def _note(self, attempt: RelocationAttempt, row: int, stuck: StuckError) -> None:
        """Record why no pods could move from a node: an obstacle of the first plan, in which no pod is kept in
        place by choice."""
        if attempt.left_alone == self._left_alone:
            self.obstacles.setdefault(row, attempt.obstacle(stuck, row))

    def _pods_to_move(self, attempt: RelocationAttempt, member: PodRecord, row: int) -> list[PodRecord] | None:
        """Return pods of a node row without which the member fits, less important ones first; None if none
        suffice."""
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
        return self._without_needless(chosen, attempt.dry_run.lacking(member.pod_class, row))

    def _without_needless(self, chosen: list[PodRecord], missing: IntArray) -> list[PodRecord]:
        """Return the chosen pods without those that can stay, the most important one first."""
        needed_pods = list(chosen)
        for record in sorted(chosen, key=_most_important_first):
            remaining = [candidate for candidate in needed_pods if candidate is not record]
            freed = sum((candidate.footprint.usage for candidate in remaining), np.zeros_like(missing))
            if (freed >= missing).all():
                needed_pods = remaining
        return needed_pods

    def _movable(self, attempt: RelocationAttempt, row: int, missing: IntArray) -> list[PodRecord]:
        """Return the movable pods of a node row: less important ones first, of equals those that free most of the
        missing amounts."""
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
    """Return the pending pods that the quorum of a waiting gang still needs."""
    if unit.pod is not None:
        return [unit.pod]
    members: list[PodRecord] = []
    for gang in unit.required:
        placement = GangPlacement(session, gang)
        wanted = dict(placement.need.roles)
        surplus_count = placement.need.total - sum(wanted.values())
        surplus: list[PodRecord] = []
        for batch in placement.batches:
            minimum = min(wanted.get(batch.role, 0), len(batch.members))
            members += batch.members[:minimum]
            surplus += batch.members[minimum:]
            if minimum:
                wanted[batch.role] -= minimum
        members += surplus[:surplus_count]
    return members


def domains_of(session: Session, unit: QueuedUnit) -> list[BoolArray | None]:
    """Return bool[N] of each topology domain in which all members can be, the fullest match first; [None] for
    everywhere.

    Empty if members are bound to several domains: such gangs are not planned.
    """
    placements = [GangPlacement(session, gang) for gang in unit.required]
    if any(
        pod_set.area is not None and pod_set.area.rule.hard
        for placement in placements
        for pod_set in placement.parts
    ):
        return []
    bound = [placement for placement in placements if placement.area is not None and placement.area.rule.hard]
    if not bound:
        return [None]
    area, domains = bound[0].area, session.topology_domains
    if len(placements) > 1 or area is None:
        return []
    demand = bound[0].demand()
    ranked = sorted(domains.widest(area), key=lambda domain: -domains.placeable(domain, area, demand))
    return [domain.rows for domain in ranked[: domains.most_for_evictions]]


def _most_important_first(record: PodRecord) -> tuple[object, ...]:
    return -record.pod.priority, record.pod.key


def unit_of(units: Iterable[QueuedUnit], target: object) -> QueuedUnit | None:
    """Return the unit of a gang (by key) or of a pod on its own (by uid); the smallest with the gang."""
    matching = [
        unit
        for unit in units
        if unit.key == target or (unit.pod is None and any(gang.key == target for gang in unit.gangs))
    ]
    return min(matching, key=lambda unit: (len(unit.gangs), str(unit.key)), default=None)
