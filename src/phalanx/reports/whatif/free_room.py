"""Largest gang of equal pods that can start now without evictions (like Moab's showbf)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.policy_file import dialect_options
from phalanx.model.events import ClusterEvent, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod
from phalanx.model.resources import PODS
from phalanx.model.text.duration import format_moment
from phalanx.reports.whatif.answer import FreeRoom, FreeRow
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import load_promises, reservation_plan
from phalanx.simulation.capture import Capture
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import FileObject, take_in
from phalanx.simulation.errors import InputError

_NAME = "what-if-free-room"
# The search excludes all actions that evict.
_EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim", "shuffle")
_MOST_CYCLES = 20
# Default grace period in seconds.
_GRACE = 30
_MOST_LENGTHS = 4
_replace = msgspec.structs.replace


class FreeRoomQuestion(msgspec.Struct, frozen=True):
    """Question for the number of pods in a namespace and queue that can start now.

    Each pod requests `amounts` ({}: one device of each kind, and one CPU) and runs for at most `seconds` (0: each
    run time that changes the answer).
    """

    cluster: SimulatedCluster
    policy: Policy
    namespace: str = "default"
    queue: str = ""
    amounts: dict[str, str] = {}
    seconds: int = 0


def free_room(question: FreeRoomQuestion) -> FreeRoom:
    """Return the number of pods that can start now, per pod size. Raises InputError."""
    cluster, capture = question.cluster, question.cluster.capture
    if capture is None:
        raise InputError(f"{cluster.name}: not a capture; create one with phalanx capture -o FILE")
    policy = _replace(
        question.policy, actions=tuple(name for name in question.policy.actions if name not in _EVICTING)
    )
    queue = question.queue or "default"
    queues = {str(entry.document["metadata"]["name"]) for entry in cluster.entries if entry.kind == "Queue"}
    if queue != "default" and queue not in queues:
        raise InputError(f"--queue {queue}: unknown queue; existing queues: {', '.join(sorted(queues)) or 'none'}")
    shapes = [question.amounts] if question.amounts else _usual_shapes(cluster)
    rows: list[FreeRow] = []
    for shape in shapes:
        search = _Search(cluster, capture, policy, question.namespace, queue, shape)
        lengths = [question.seconds] if question.seconds else [0, *search.lengths()]
        last_count = -1
        for seconds in lengths:
            pods, nodes = search.largest(seconds)
            if pods != last_count:
                rows.append(FreeRow(_written(shape), seconds, pods, nodes))
            last_count = pods
    notes = []
    if policy.reservations is not None and not question.seconds and any(row.seconds for row in rows):
        notes.append("pods that end in time run before reserved starts")
    return FreeRoom(format_moment(capture.moment), queue, rows, notes, list(capture.missing))


def _usual_shapes(cluster: SimulatedCluster) -> list[dict[str, str]]:
    """Return the usual pod sizes: one device of each kind that nodes offer (names with a domain), and one CPU."""
    offered: set[str] = set()
    for entry in cluster.entries:
        if entry.kind == "Node":
            status = entry.document.get("status") or {}
            offered.update(name for name, amount in (status.get("allocatable") or {}).items() if amount != "0")
    devices = sorted(name for name in offered if "/" in name and not name.startswith("kubernetes.io/"))
    return [*({name: "1"} for name in devices), {"cpu": "1"}]


class _Search:
    """Search for the largest gang of equal pods that starts now, each size tried on a copy of the cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        capture: Capture,
        policy: Policy,
        namespace: str,
        queue: str,
        amounts: dict[str, str],
    ) -> None:
        self._capture, self._policy, self._queue = capture, policy, queue
        self._key = GangKey(namespace, _NAME)
        self._intake, self._events = cluster.open(dialect_options(policy))
        self._amounts = amounts
        self._kept: list[int] = []
        self._looked = False

    def lengths(self) -> list[int]:
        """Return the run times of pods in seconds that end just before a reserved start."""
        if not self._looked:
            self._state_with(0, 0)
        settings = self._policy.reservations
        # The time until the pod is deleted includes its start delay and its grace period.
        around = self._capture.moment + _GRACE + (settings.start_delay if settings is not None else 0)
        longest = sorted({start - around for start in self._kept}, reverse=True)
        return [length for length in longest if length > 0][:_MOST_LENGTHS]

    def largest(self, seconds: int) -> tuple[int, int]:
        """Return (size of the largest gang that starts now, number of its nodes) for pods that end within
        `seconds`."""
        fits, node_count = 0, 0
        limit = self._most()
        while fits < limit:
            middle = (fits + limit + 1) // 2
            nodes = self._state_with(middle, seconds)
            if nodes is None:
                limit = middle - 1
            else:
                fits, node_count = middle, nodes
        return fits, node_count

    def _most(self) -> int:
        """Return an upper bound of the gang's size: the free resources of all nodes, each resource by itself."""
        pod = self._pod(0)
        state = _state(self._events, self._capture)
        wanted = {**dict(pod.pod_class.requests), PODS: 1}
        offered: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, NodeUpdated):
                for name, amount in event.node.allocatable:
                    offered[name] = offered.get(name, 0) + amount
        for record in state.pods.values():
            if record.pod.node and not record.pod.finished:
                for name, amount in (*record.pod.pod_class.requests, (PODS, 1)):
                    offered[name] = offered.get(name, 0) - amount
        return max(0, min(offered.get(name, 0) // amount for name, amount in wanted.items() if amount))

    def _pod(self, seconds: int) -> Pod:
        spec = {
            "schedulerName": self._capture.schedulers[0],
            "priority": 0,
            "containers": [
                {"name": "main", "resources": {"requests": self._amounts, "limits": _devices(self._amounts)}}
            ],
            **({"activeDeadlineSeconds": seconds} if seconds else {}),
        }
        metadata = {"name": _NAME, "namespace": self._key.namespace, "uid": _NAME}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        events = take_in(self._intake, FileObject("--free", document))
        pod = next(event.pod for event in events if isinstance(event, PodUpdated))
        self._intake.pod_removed(self._key.namespace, _NAME, _NAME)
        if pod.problem:
            raise InputError(f"--pod {_written(self._amounts)}: {pod.problem}")
        return pod

    def _state_with(self, count: int, seconds: int) -> int | None:
        """Return the number of nodes of a gang with `count` pods that starts now; None if it does not start."""
        state, moment = _state(self._events, self._capture), self._capture.moment
        if count:
            pod = self._pod(seconds)
            gang = Gang(self._key, uid=_NAME, min_member=count, queue=self._queue, created=moment)
            state.apply(GangUpdated(gang))
            for number in range(count):
                name = f"{_NAME}-{number}"
                state.apply(
                    PodUpdated(
                        _replace(pod, name=name, uid=name, gang=_NAME, index=number, preempts=False, created=moment)
                    )
                )
        scheduler = Scheduler(state, self._policy, refresh_verdicts=False)
        load_promises(scheduler.features, self._capture.promises)
        scheduler.history.restore(self._capture.usages, moment)
        nodes: list[str] = []
        for _ in range(_MOST_CYCLES):
            if scheduler.idle:
                break
            plan = scheduler.cycle(moment)
            nodes += [bind.node for bind in plan.binds if bind.uid.startswith(_NAME)]
            for admission in plan.admissions:
                record = state.gangs.get(admission.gang)
                if record is not None and record.spec is not None:
                    state.apply(GangUpdated(_replace(record.spec, admitted=True)))
        if not self._looked:
            kept = reservation_plan(scheduler.features)
            self._kept, self._looked = (
                [reservation.start for reservation in kept.all()] if kept is not None else [],
                True,
            )
        return len(set(nodes)) if len(nodes) >= count else None


def _state(events: Sequence[ClusterEvent], capture: Capture) -> ClusterState:
    state = ClusterState(capture.schedulers)
    for event in events:
        state.apply(event)
    return state


def _devices(amounts: dict[str, str]) -> dict[str, str]:
    """Return a pod's device requests as limits: for devices, limits and requests are equal."""
    return {name: amount for name, amount in amounts.items() if "/" in name}


def _written(amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())
