"""Plan of pod moves under construction, with undo of every step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.pod import MemberState
from phalanx.scheduling.defragmentation.dry_run_state import DryRunState
from phalanx.scheduling.defragmentation.relocation import RelocationCost, RelocationLimits, RelocationObstacle
from phalanx.scheduling.preemption.rules.min_available import whole_gang_of
from phalanx.scheduling.preemption.victims import lost_work
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.session.session import Session


class StuckError(Exception):
    """A step of the plan of moves is impossible; its changes are undone."""

    def __init__(self, record: PodRecord | None, reason: str) -> None:
        super().__init__(reason)
        self.record = record
        self.reason = reason


class RelocationAttempt:
    """Plan of moves under construction.

    `moving` is the moved pods with their new rows; `steps` is the pods of each step in order. `sources` are the
    rows on which room was made; `placed` are the rows of the preemptor's members. With a `domain` (bool[N]) all
    members are placed in it.
    """

    def __init__(
        self,
        session: Session,
        limits: RelocationLimits,
        left_alone: frozenset[str] = frozenset(),
        domain: BoolArray | None = None,
    ) -> None:
        self.dry_run = DryRunState(session)
        self.moving: dict[PodRecord, int] = {}
        self.steps: list[list[PodRecord]] = []
        self.sources: dict[int, None] = {}
        self.placed: dict[PodRecord, int] = {}
        self.whole: dict[GangRecord, None] = {}
        self._session = session
        self._limits = limits
        self.left_alone = left_alone
        self._domain = domain
        if domain is not None:
            self.dry_run.closed[domain] = True  # Pods must not move to rows on which room is made.
        self._evictions = VoluntaryEvictions(session, session.evictions)
        self._arrived: set[int] = set()
        self._totals = session.totals()

    def why_immovable(self, record: PodRecord) -> str | None:
        """Return the reason why a pod cannot be part of any plan of moves, or None; the text continues "it "."""
        if record.pod.uid in self.left_alone:
            return "is kept in place"
        if record.pod.fixture or record.state is MemberState.TERMINATING:
            return None
        if record.nomination is not None or record.state is MemberState.OTHER_SCHEDULER:
            return "has room reserved there"
        if record.state is MemberState.ASSUMED:
            return "is still being bound there"
        if not record.pod.controlled:
            return "has no controller that would recreate it"
        if record.gang is not None and stays_together(record.gang):
            return "must stay in one topology domain with its gang"
        return self._evictions.veto(record)

    def drain_row(self, row: int) -> None:
        """Move all pods off the node row, except for DaemonSet and static pods. Raise StuckError."""
        self._step(row, [record for record in pods_on_row(self._session, row) if record not in self.moving])

    def exchange(self, row: int, records: Iterable[PodRecord], member: PodRecord) -> None:
        """Move the pods off the node row and place the gang member there. Raise StuckError."""
        self._step(row, list(records), member)

    def place_member(self, member: PodRecord) -> bool:
        """Place a member on a node row with enough free resources if there is one, and close the row to moved pods.

        Return whether it was placed.
        """
        rows = self.dry_run.fitting(member.pod_class, closed_too=True)
        rows = rows[[row not in self._arrived and self._inside(row) for row in rows.tolist()]]
        closed_rows = rows[self.dry_run.closed[rows]]
        row = self.dry_run.most_allocated(member.pod_class, closed_rows if len(closed_rows) else rows)
        if row is None:
            return False
        self.dry_run.add_pod(member.pod_class, row)
        self.dry_run.closed[row] = True
        self.placed[member] = row
        return True

    def could_take(self, pod_class: ClassRecord) -> list[int]:
        """Return the node rows that pods of the class can use and to which no pod has moved."""
        rows = np.flatnonzero(self.dry_run.mask(pod_class)).tolist()
        return [row for row in rows if row not in self._arrived and self._inside(row)]

    def _inside(self, row: int) -> bool:
        return self._domain is None or bool(self._domain[row])

    def cost(self) -> RelocationCost:
        now, totals = self._session.now, self._totals
        return RelocationCost(
            len(self.moving),
            len(self.whole),
            max((record.pod.priority for record in self.moving), default=-(2**31)),
            round(sum(lost_work(record, now, totals) for record in self.moving), 6),
        )

    def size(self, record: PodRecord) -> float:
        """Return the largest share of any resource of the cluster that the pod requests."""
        parts = [
            amount / max(1, self._totals.get(name, (0,))[0]) for name, amount in record.footprint.amounts.items()
        ]
        return max(parts, default=0.0)

    def obstacle(self, stuck: StuckError, row: int) -> RelocationObstacle:
        pod = stuck.record.pod.key if stuck.record is not None else ""
        return RelocationObstacle(self._session.state.nodes.names[row], pod, stuck.reason)

    def _step(self, row: int, records: list[PodRecord], member: PodRecord | None = None) -> None:
        if row in self._arrived:
            raise StuckError(None, "other pods would have moved there")
        mark, taken = self.dry_run.mark(), self._evictions.mark()
        was_closed, before = bool(self.dry_run.closed[row]), (dict(self.moving), dict(self.whole))
        leaving: dict[PodRecord, None] = {}
        arrived: set[int] = set()
        self.dry_run.closed[row] = True
        try:
            for record in records:
                if record not in leaving:
                    leaving.update(dict.fromkeys(self._evict(record, leaving)))
            if len(self.moving) + len(leaving) > self._limits.evictions:
                raise StuckError(None, f"more than {self._limits.evictions} pods would have to move")
            for record in leaving:
                self.dry_run.remove_pod(record)
            if member is not None:
                self.dry_run.add_pod(member.pod_class, row)
            for record in sorted(leaving, key=lambda record: (-self.size(record), record.pod.key)):
                pod_class = record.pod_class
                target = self.dry_run.row_for_moved(pod_class)
                if target is None:
                    raise StuckError(record, "fits on no other node")
                self.dry_run.add_pod(pod_class, target)
                self.moving[record] = target
                arrived.add(target)
        except StuckError:
            self.dry_run.undo_to(mark)
            self.dry_run.closed[row] = was_closed
            self._evictions.undo_to(taken)
            self.moving, self.whole = before
            raise
        self._arrived |= arrived
        self.sources[row] = None
        self.steps.append(list(leaving))
        if member is not None:
            self.placed[member] = row

    def _evict(self, record: PodRecord, leaving: Iterable[PodRecord]) -> list[PodRecord]:
        """Plan the eviction of the pod, or of its whole gang where required, and return the pods.

        `leaving` are evicted in the same step.
        """
        if record.pod.fixture or record.state is MemberState.TERMINATING:
            return []
        objection = self.why_immovable(record) or self._evictions.try_add(record)
        if objection is None:
            members = [record]
        elif self._limits.whole_gangs and record.gang is not None and self.why_immovable(record) is None:
            members = self._evict_gang(record)
        else:
            raise StuckError(record, objection)
        limit = self._limits.per_gang
        if limit is not None and record.gang is not None:
            mates = {mate for mate in (*self.moving, *leaving, *members) if mate.gang is record.gang}
            if len(mates) > limit:
                raise StuckError(record, f"belongs to a gang with more than {limit} members to move")
        return members

    def _evict_gang(self, record: PodRecord) -> list[PodRecord]:
        members = whole_gang_of(record, self._session.state)
        if isinstance(members, str):
            raise StuckError(record, members)
        for member in members:
            if member in self.moving:
                raise StuckError(record, f"belongs to a gang with pod {member.pod.key}, which moves already")
            if (reason := self.why_immovable(member)) is not None:
                raise StuckError(record, f"belongs to a gang with pod {member.pod.key}, which {reason}")
        result = self._evictions.try_add_gang(record)
        if isinstance(result, str):
            raise StuckError(record, result)
        self.whole.update((member.gang, None) for member in members if member.gang is not None)
        return members


def stays_together(gang: GangRecord) -> bool:
    """Return whether the gang's members cannot move singly because a topology constraint requires them in one
    domain."""
    spec = gang.spec
    rules = [] if spec is None else [spec.topology, *(subgroup.topology for subgroup in spec.subgroups)]
    return any(rule is not None and rule.hard for rule in rules)


def pods_on_row(session: Session, row: int) -> list[PodRecord]:
    """Return the pods on a node row by name."""
    return sorted(session.state.pods.on(row), key=lambda record: record.pod.key)
