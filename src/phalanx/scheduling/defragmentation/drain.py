"""Nodes whose pods fit elsewhere: those with the cheapest contents first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.defragmentation.attempt import RelocationAttempt, StuckError, pods_on_row
from phalanx.scheduling.defragmentation.relocation import (
    EmptyNodes,
    RelocationCost,
    RelocationLimits,
    RelocationObstacle,
)
from phalanx.scheduling.session.session import Session

# How often a node of the best plan is exchanged for others to make the plan cheaper.
_EXCHANGES = 24


class NodeDrain:
    """Tries the nodes in several orders, keeps the best plan, and exchanges nodes while that makes it cheaper."""

    def __init__(
        self, session: Session, goal: EmptyNodes, limits: RelocationLimits, tell: Callable[[str], None]
    ) -> None:
        self._session = session
        self._limits = limits
        self._tell = tell
        nodes = session.state.nodes
        rows = [
            row
            for row in nodes.rows().tolist()
            if not nodes.unschedulable[row] and (goal.eligible is None or nodes.names[row] in goal.eligible)
        ]
        self.free = [row for row in rows if not self._contents(row)]
        self.obstacles: dict[int, RelocationObstacle] = {}
        self._needed = goal.count - len(self.free)
        self._candidates = self._emptiable([row for row in rows if row not in set(self.free)])

    def best_attempt(self) -> RelocationAttempt:
        """The plan that empties the most nodes (no more than are wanted), and of these the cheapest."""
        found = [self._greedy(order) for order in self._orders()]
        best = min(found, key=self._rank)
        if best.sources:
            best = self._exchanged(best)
        return best

    def reached(self, attempt: RelocationAttempt) -> bool:
        return len(attempt.sources) >= self._needed

    def _exchanged(self, best: RelocationAttempt) -> RelocationAttempt:
        left = _EXCHANGES
        for order in self._orders():
            for row in list(best.sources):
                if not left:
                    return best
                left -= 1
                other = self._greedy([each for each in order if each != row])
                if self._rank(other) < self._rank(best):
                    self._tell(f"found a cheaper way: {other.cost().evictions} pods move")
                    best = other
        return best

    def _greedy(self, order: Sequence[int]) -> RelocationAttempt:
        attempt = RelocationAttempt(self._session, self._limits)
        # What is empty already counts, so nobody moves there.
        attempt.dry_run.closed[self.free] = True
        for place, row in enumerate(order):
            if self.reached(attempt):
                break
            # Whoever moves to a node that is to be emptied next keeps it from that.
            attempt.dry_run.avoided[:] = False
            attempt.dry_run.avoided[list(order[place : place + self._needed - len(attempt.sources)])] = True
            try:
                attempt.drain_row(row)
            except StuckError as stuck:
                self.obstacles.setdefault(row, attempt.obstacle(stuck, row))
            else:
                self._tell(f"{len(attempt.sources)} of {self._needed} nodes can be emptied")
        return attempt

    def _orders(self) -> list[list[int]]:
        """By how many pods there are, by how much they hold, by how important they are."""
        keys: list[Callable[[int], tuple[float, ...]]] = [
            lambda row: (self._candidates[row][0], self._candidates[row][1], row),
            lambda row: (self._candidates[row][1], self._candidates[row][0], row),
            lambda row: (self._candidates[row][2], *self._candidates[row][:2], row),
        ]
        return [sorted(self._candidates, key=key) for key in keys]

    def _emptiable(self, rows: Iterable[int]) -> dict[int, tuple[int, float, int]]:
        """row -> (pods that would move, the part of the cluster that they hold, the highest priority of one)."""
        probe = RelocationAttempt(self._session, self._limits)
        found: dict[int, tuple[int, float, int]] = {}
        for row in rows:
            contents = self._contents(row)
            stays = ((record, reason) for record in contents if (reason := probe.why_immovable(record)) is not None)
            for record, reason in stays:
                self.obstacles[row] = probe.obstacle(StuckError(record, reason), row)
                break
            else:
                size = sum(probe.size(record) for record in contents)
                found[row] = (len(contents), size, max(record.pod.priority for record in contents))
        return found

    def _contents(self, row: int) -> list[PodRecord]:
        """What must move before the node is empty."""
        return [
            record
            for record in pods_on_row(self._session, row)
            if not record.pod.fixture and record.state is not MemberState.TERMINATING
        ]

    def _rank(self, attempt: RelocationAttempt) -> tuple[int, RelocationCost]:
        return -len(attempt.sources), attempt.cost()
