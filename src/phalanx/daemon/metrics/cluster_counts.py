"""What waits and what runs, counted when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.model.verdict import Verdict
from phalanx.scheduling.scheduler import Scheduler

#: Series of gangs that wait, by queue and reason; the rest count as OTHER.
MOST_SERIES = 200
OTHER = "other"


class ClusterCounts(msgspec.Struct, frozen=True):
    """`pods` by kube-scheduler's queues (active, backoff, unschedulable, gated), `gangs` by state (waiting,
    partly_bound, running, evicting), `waiting` gangs by (queue, code of what was told), `oldest` how many seconds
    the eldest waits, by queue; `nodes` by state (open, closed)."""

    pods: dict[str, int]
    gangs: dict[str, int]
    waiting: dict[tuple[str, str], int]
    oldest: dict[str, float]
    nodes: dict[str, int]


class CountedCluster:
    """Counts anew only when something has changed."""

    def __init__(
        self, state: ClusterState, scheduler: Callable[[], Scheduler], told: Callable[[GangKey], Verdict | None]
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._told = told
        self._version = -1
        self._assumed = 0
        self._gangs: tuple[dict[str, int], dict[tuple[str, str], int], dict[str, int]] = ({}, {}, {})

    def lines(self, now: float, leads: bool = True) -> Iterator[str]:
        """The exposition, as of `now` (seconds since the epoch). A standby (`leads` is False) says nothing of who
        has a turn and why others wait: it decides neither, and a sum over the replicas would count them twice."""
        counts, state = self.count(now), self._state
        pods = ((labels(queue=queue), count) for queue, count in counts.pods.items())
        yield from lines_of("scheduler_pending_pods", pods if leads else ())
        gangs = ((labels(state=state), count) for state, count in counts.gangs.items())
        yield from lines_of("phalanx_gangs", gangs)
        waiting = ((labels(queue=queue, reason=code), count) for (queue, code), count in counts.waiting.items())
        yield from lines_of("phalanx_gangs_waiting", waiting if leads else ())
        oldest = ((labels(queue=queue), round(seconds, 3)) for queue, seconds in counts.oldest.items())
        yield from lines_of("phalanx_oldest_waiting_gang_seconds", oldest)
        nodes = ((labels(state=state), count) for state, count in counts.nodes.items())
        yield from lines_of("phalanx_nodes", nodes)
        sizes = {"nodes": len(state.nodes), "pods": len(state.pods), "assumed_pods": self._assumed}
        yield from lines_of("scheduler_cache_size", ((labels(type=kind), size) for kind, size in sizes.items()))

    def count(self, now: float) -> ClusterCounts:
        if self._version != self._state.version:
            self._version = self._state.version
            self._gangs = self._count_gangs()
            self._assumed = sum(pod.state is MemberState.ASSUMED for pod in self._state.pods.values())
        by_state, waiting, eldest = self._gangs
        return ClusterCounts(
            self._scheduler().queue.pending_counts(),
            by_state,
            waiting,
            {queue: max(0.0, now - created) for queue, created in eldest.items()},
            self._count_nodes(),
        )

    def _count_gangs(self) -> tuple[dict[str, int], dict[tuple[str, str], int], dict[str, int]]:
        by_state = dict.fromkeys(("waiting", "partly_bound", "running", "evicting"), 0)
        reasons: Counter[tuple[str, str]] = Counter()
        eldest: dict[str, int] = {}
        for key, gang in self._state.gangs.items():
            state = _state_of(gang)
            if not state:
                continue
            by_state[state] += 1
            if not gang.pending:
                continue
            queue, verdict = _queue_of(gang), self._told(key)
            reasons[queue, verdict.code if verdict is not None else ""] += 1
            created = gang.spec.created if gang.spec is not None else 0
            if created:
                eldest[queue] = min(created, eldest.get(queue, created))
        return by_state, _capped(reasons), dict(sorted(eldest.items())[:MOST_SERIES])

    def _count_nodes(self) -> dict[str, int]:
        closed = sum(1 for node in self._state.nodes.nodes if node is not None and node.unschedulable)
        return {"open": len(self._state.nodes) - closed, "closed": closed}


def _state_of(gang: GangRecord) -> str:
    counts = gang.counts()
    if gang.pending and not counts.active:
        return "waiting"
    if gang.pending and gang.spec is not None and counts.active < gang.spec.min_member:
        return "partly_bound"
    if counts.terminating:
        return "evicting"
    return "running" if counts.active else ""


def _queue_of(gang: GangRecord) -> str:
    record = next(iter(gang.pending.values()))
    path = record.charge_path
    return path.queue.key.name if path is not None and path.queue is not None else ""


def _capped(counts: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The most frequent series; what is left is summed up."""
    kept = dict(sorted(counts.most_common(MOST_SERIES)))
    rest = counts.total() - sum(kept.values())
    return kept | ({(OTHER, OTHER): rest} if rest else {})
