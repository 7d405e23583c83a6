"""Numbers of pods, gangs and nodes by state for metrics, computed per scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.model.verdict import Verdict
from phalanx.scheduling.queue.unit import awaits_admission
from phalanx.scheduling.scheduler import Scheduler
from phalanx.views.gang_state import GangState, gang_state
from phalanx.views.record_facts import gang_facts

#: Maximum number of series of pending gangs, by queue and reason; further ones count as OTHER.
MOST_SERIES = 200
OTHER = "other"
#: States that follow from pods and PodGroups; all other states are those of jobs, which the scheduler does not
#: read.
COUNTED = tuple(
    state for state in GangState if state not in (GangState.CANCELLED, GangState.SUSPENDED, GangState.DELETED)
)


class ClusterCounts(msgspec.Struct, frozen=True):
    """Numbers of pods, gangs and nodes in a cluster.

    `pods` counts by kube-scheduler's queues (active, backoff, unschedulable, gated), `gangs` by state, `waiting`
    the pending gangs by (queue, code of the published reason), `nodes` by state (schedulable, unschedulable).
    `oldest` is the age of the oldest pending gang in seconds, by queue.
    """

    pods: dict[str, int]
    gangs: dict[str, int]
    waiting: dict[tuple[str, str], int]
    oldest: dict[str, float]
    nodes: dict[str, int]


class CountedGang(NamedTuple):
    """State of a gang for metrics; `waits` is (queue, code of the published reason) of a pending gang."""

    state: GangState
    waits: tuple[str, str] | None = None
    created: int = 0


class GangTally:
    """Numbers of gangs by state and reason, updated gang by gang."""

    def __init__(self) -> None:
        self.states: dict[GangState, int] = dict.fromkeys(COUNTED, 0)
        self.reasons: dict[tuple[str, str], int] = {}
        self._gangs: dict[GangKey, CountedGang] = {}
        # Creation times of pending gangs by queue, and the cached oldest of each queue.
        self._created: dict[str, dict[GangKey, int]] = {}
        self._eldest: dict[str, int] = {}

    def __contains__(self, key: GangKey) -> bool:
        return key in self._gangs

    def put(self, key: GangKey, gang: CountedGang | None) -> None:
        """Count a gang under this state from now on; with None do not count it."""
        old = self._gangs.pop(key, None)
        if old is not None:
            self._count(key, old, -1)
        if gang is not None:
            self._gangs[key] = gang
            self._count(key, gang, 1)

    def eldest(self) -> dict[str, int]:
        """Return the creation time of the oldest pending gang by queue."""
        for queue, created in self._created.items():
            if queue not in self._eldest:
                self._eldest[queue] = min(created.values())
        return self._eldest

    def _count(self, key: GangKey, gang: CountedGang, step: int) -> None:
        self.states[gang.state] += step
        if gang.waits is None:
            return
        number = self.reasons.get(gang.waits, 0) + step
        if number:
            self.reasons[gang.waits] = number
        else:
            del self.reasons[gang.waits]
        if not gang.created:
            return
        queue = gang.waits[0]
        self._eldest.pop(queue, None)
        if step > 0:
            self._created.setdefault(queue, {})[key] = gang.created
            return
        created = self._created[queue]
        del created[key]
        if not created:
            del self._created[queue]


class CountedCluster:
    """Counter of gangs that examines only those that changed since the last scrape or got another verdict
    (`touch`)."""

    def __init__(
        self,
        state: ClusterState,
        scheduler: Callable[[], Scheduler],
        verdict_of: Callable[[GangKey], Verdict | None],
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._verdict_of = verdict_of
        self._gangs = GangTally()
        self._touched: set[GangKey] = set()
        self._rebuilds = -1
        self._pods_version = (-1, -1, -1)
        self._assumed = 0

    def touch(self, key: GangKey) -> None:
        """Mark a gang whose published verdict has changed, so that the next scrape counts it again.

        A gang that was not pending at the last count is counted again anyway once it is pending.
        """
        if key in self._gangs:
            self._touched.add(key)

    def lines(self, now: float, leads: bool = True) -> Iterator[str]:
        """Return the metric lines as of `now` (seconds since the epoch).

        A standby (`leads` is False) has no lines about pending pods and reasons: a sum over the replicas would
        count them twice.
        """
        counts, state = self.count(now), self._state
        pods = ((labels(queue=queue), count) for queue, count in counts.pods.items())
        yield from lines_of("scheduler_pending_pods", pods if leads else ())
        gangs = ((labels(state=state), count) for state, count in counts.gangs.items())
        yield from lines_of("phalanx_gangs", gangs)
        waiting = ((labels(queue=queue, reason=code), count) for (queue, code), count in counts.waiting.items())
        yield from lines_of("phalanx_pending_gangs", waiting if leads else ())
        oldest = ((labels(queue=queue), round(seconds, 3)) for queue, seconds in counts.oldest.items())
        yield from lines_of("phalanx_oldest_waiting_gang_seconds", oldest)
        nodes = ((labels(state=state), count) for state, count in counts.nodes.items())
        yield from lines_of("phalanx_nodes", nodes)
        sizes = {"nodes": len(state.nodes), "pods": len(state.pods), "assumed_pods": self._assumed}
        yield from lines_of("scheduler_cache_size", ((labels(type=kind), size) for kind, size in sizes.items()))

    def count(self, now: float) -> ClusterCounts:
        self._recount_gangs()
        state = self._state
        # A placement changes the first version, a failed or confirmed binding one of the other two.
        version = state.version, state.capacity_version, state.bound_version
        if version != self._pods_version:
            self._pods_version = version
            self._assumed = sum(pod.state is MemberState.ASSUMED for pod in state.pods.values())
        gangs = self._gangs
        eldest = gangs.eldest()
        return ClusterCounts(
            self._scheduler().queue.pending_counts(),
            {state.name.lower(): number for state, number in gangs.states.items()},
            _capped(gangs.reasons),
            {queue: max(0.0, now - created) for queue, created in sorted(eldest.items())[:MOST_SERIES]},
            self._count_nodes(),
        )

    def _recount_gangs(self) -> None:
        ledger, gangs = self._state.ledger, self._state.gangs
        ledger.refresh()
        changed = gangs.take_touched()
        # After a change of accounts, the queue of any gang is possibly different.
        if changed is None or self._rebuilds != ledger.rebuilds:
            self._rebuilds, self._gangs = ledger.rebuilds, GangTally()
            for key, gang in gangs.items():
                self._gangs.put(key, self._examined(gang))
        else:
            for key in changed | self._touched:
                record = gangs.get(key)
                self._gangs.put(key, self._examined(record) if record is not None else None)
        self._touched.clear()

    def _examined(self, gang: GangRecord) -> CountedGang:
        state = gang_state(gang_facts(gang))
        # A gang that is not admitted has no pods yet, and its reason is published on its object.
        if not gang.pending and not awaits_admission(gang):
            return CountedGang(state)
        verdict = self._verdict_of(gang.key)
        created = gang.spec.created if gang.spec is not None else 0
        return CountedGang(state, (_queue_of(gang), verdict.code if verdict is not None else ""), created)

    def _count_nodes(self) -> dict[str, int]:
        closed = sum(1 for node in self._state.nodes.nodes if node is not None and node.unschedulable)
        return {"schedulable": len(self._state.nodes) - closed, "unschedulable": closed}


def _queue_of(gang: GangRecord) -> str:
    """Return the queue that the pending members of a gang are charged to, else the one that the gang names."""
    record = next(iter(gang.pending.values()), None)
    if record is None:
        return gang.spec.queue if gang.spec is not None else ""
    path = record.charge_path
    return path.queue.key.name if path is not None and path.queue is not None else ""


def _capped(counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the most frequent metric series, and the sum of the rest as OTHER."""
    frequent = dict(sorted(Counter(counts).most_common(MOST_SERIES)))
    uncounted = sum(counts.values()) - sum(frequent.values())
    return frequent | ({(OTHER, OTHER): uncounted} if uncounted else {})
