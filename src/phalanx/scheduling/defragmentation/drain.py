"""Nodes to empty: nodes with pods that fit elsewhere at the least cost."""

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

# Number of times that a node of the best plan is left out to find a cheaper plan.
_EXCHANGES = 24


class NodeDrain:
    """Greedy search for nodes to empty, over several orders of nodes; then nodes of the best plan are exchanged
    while that is cheaper."""

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
        """Return the plan that empties the most nodes, at most the wanted number, and of these the cheapest."""
        attempts = [self._greedy(order) for order in self._orders()]
        best = min(attempts, key=self._rank)
        if best.sources:
            best = self._exchanged(best)
        return best

    def reached(self, attempt: RelocationAttempt) -> bool:
        return len(attempt.sources) >= self._needed

    def _exchanged(self, best: RelocationAttempt) -> RelocationAttempt:
        exchanges_left = _EXCHANGES
        for order in self._orders():
            for row in list(best.sources):
                if not exchanges_left:
                    return best
                exchanges_left -= 1
                alternative = self._greedy([candidate for candidate in order if candidate != row])
                if self._rank(alternative) < self._rank(best):
                    self._tell(f"found a cheaper plan: {alternative.cost().evictions} pods move")
                    best = alternative
        return best

    def _greedy(self, order: Sequence[int]) -> RelocationAttempt:
        attempt = RelocationAttempt(self._session, self._limits)
        # Empty nodes count already, so no pod moves there.
        attempt.dry_run.closed[self.free] = True
        for place, row in enumerate(order):
            if self.reached(attempt):
                break
            # A pod that moves to a node that is emptied next blocks that step.
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
        """Return the nodes in three orders: by number of pods, by the pods' share of the cluster, and by the pods'
        highest priority."""
        keys: list[Callable[[int], tuple[float, ...]]] = [
            lambda row: (self._candidates[row][0], self._candidates[row][1], row),
            lambda row: (self._candidates[row][1], self._candidates[row][0], row),
            lambda row: (self._candidates[row][2], *self._candidates[row][:2], row),
        ]
        return [sorted(self._candidates, key=key) for key in keys]

    def _emptiable(self, rows: Iterable[int]) -> dict[int, tuple[int, float, int]]:
        """Return for each node row that can be emptied (number of pods to move, their share of the cluster, the
        highest priority)."""
        probe = RelocationAttempt(self._session, self._limits)
        contents_of: dict[int, tuple[int, float, int]] = {}
        for row in rows:
            contents = self._contents(row)
            immovable = (
                (record, reason) for record in contents if (reason := probe.why_immovable(record)) is not None
            )
            for record, reason in immovable:
                self.obstacles[row] = probe.obstacle(StuckError(record, reason), row)
                break
            else:
                size = sum(probe.size(record) for record in contents)
                contents_of[row] = (len(contents), size, max(record.pod.priority for record in contents))
        return contents_of

    def _contents(self, row: int) -> list[PodRecord]:
        """Return the pods that must move before the node is empty."""
        return [
            record
            for record in pods_on_row(self._session, row)
            if not record.pod.fixture and record.state is not MemberState.TERMINATING
        ]

    def _rank(self, attempt: RelocationAttempt) -> tuple[int, RelocationCost]:
        return -len(attempt.sources), attempt.cost()
