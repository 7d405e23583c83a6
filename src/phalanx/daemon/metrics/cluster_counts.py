"""What waits and what runs, counted when somebody asks."""

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

#: Series of gangs that wait, by queue and reason; the rest count as OTHER.
MOST_SERIES = 200
OTHER = "other"
#: States that follow from pods and PodGroups; the others are those of jobs, which the scheduler does not read.
COUNTED = tuple(
    state for state in GangState if state not in (GangState.CANCELLED, GangState.SUSPENDED, GangState.DELETED)
)


class ClusterCounts(msgspec.Struct, frozen=True):
    """Counts of a cluster: `pods` by kube-scheduler's queues (active, backoff, unschedulable, gated), `gangs` by
    state, `waiting` gangs by (queue, code of the published reason), `oldest` how many seconds the eldest waits, by
    queue; `nodes` by state (schedulable, unschedulable)."""

    pods: dict[str, int]
    gangs: dict[str, int]
    waiting: dict[tuple[str, str], int]
    oldest: dict[str, float]
    nodes: dict[str, int]


class CountedGang(NamedTuple):
    """What a gang counts as; one that waits for anything has its queue and the code of its published reason."""

    state: GangState
    waits: tuple[str, str] | None = None
    created: int = 0


class GangTally:
    """How many gangs there are of each kind, kept up to date gang by gang."""

    def __init__(self) -> None:
        self.states: dict[GangState, int] = dict.fromkeys(COUNTED, 0)
        self.reasons: dict[tuple[str, str], int] = {}
        self._gangs: dict[GangKey, CountedGang] = {}
        # When those that wait were created, by queue, and the eldest of each whose answer still holds.
        self._created: dict[str, dict[GangKey, int]] = {}
        self._eldest: dict[str, int] = {}

    def __contains__(self, key: GangKey) -> bool:
        return key in self._gangs

    def put(self, key: GangKey, gang: CountedGang | None) -> None:
        """The gang counts as this from now on; None: it does not count."""
        old = self._gangs.pop(key, None)
        if old is not None:
            self._count(key, old, -1)
        if gang is not None:
            self._gangs[key] = gang
            self._count(key, gang, 1)

    def eldest(self) -> dict[str, int]:
        """queue -> when the eldest that waits was created, where that is known."""
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
    """Looks again at the gangs that have changed since the last count, or were told something else (`touch`)."""

    def __init__(
        self, state: ClusterState, scheduler: Callable[[], Scheduler], told: Callable[[GangKey], Verdict | None]
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._told = told
        self._gangs = GangTally()
        self._touched: set[GangKey] = set()
        self._rebuilds = -1
        self._pods_version = (-1, -1, -1)
        self._assumed = 0

    def touch(self, key: GangKey) -> None:
        """What the gang was told has changed. One that did not wait when it was last counted is counted again
        anyway as soon as it does."""
        if key in self._gangs:
            self._touched.add(key)

    def lines(self, now: float, leads: bool = True) -> Iterator[str]:
        """The exposition, as of `now` (seconds since the epoch). A standby (`leads` is False) says nothing of who
        has a turn and why others wait: it decides neither, and a sum over the replicas would count them twice."""
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
        # A pod that is placed is a change of the first kind, one whose binding has failed or is confirmed is not.
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
        # Where accounts have changed, any gang may stand in a queue that is there now or is not any more.
        if changed is None or self._rebuilds != ledger.rebuilds:
            self._rebuilds, self._gangs = ledger.rebuilds, GangTally()
            for key, gang in gangs.items():
                self._gangs.put(key, self._look(gang))
        else:
            for key in changed | self._touched:
                record = gangs.get(key)
                self._gangs.put(key, self._look(record) if record is not None else None)
        self._touched.clear()

    def _look(self, gang: GangRecord) -> CountedGang:
        state = gang_state(gang_facts(gang))
        # A gang that is not admitted has no pods yet, and its reason is published on its object.
        if not gang.pending and not awaits_admission(gang):
            return CountedGang(state)
        verdict = self._told(gang.key)
        created = gang.spec.created if gang.spec is not None else 0
        return CountedGang(state, (_queue_of(gang), verdict.code if verdict is not None else ""), created)

    def _count_nodes(self) -> dict[str, int]:
        closed = sum(1 for node in self._state.nodes.nodes if node is not None and node.unschedulable)
        return {"schedulable": len(self._state.nodes) - closed, "unschedulable": closed}


def _queue_of(gang: GangRecord) -> str:
    """Return the queue that the waiting members are charged to, else the one that the gang names."""
    record = next(iter(gang.pending.values()), None)
    if record is None:
        return gang.spec.queue if gang.spec is not None else ""
    path = record.charge_path
    return path.queue.key.name if path is not None and path.queue is not None else ""


def _capped(counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The most frequent series; what is left is summed up."""
    kept = dict(sorted(Counter(counts).most_common(MOST_SERIES)))
    rest = sum(counts.values()) - sum(kept.values())
    return kept | ({(OTHER, OTHER): rest} if rest else {})
