"""Main paths of the scheduler, each as prepared work on a number of pods, without network and clock."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec
from benchmarks.bench_eviction import QUEUES, gpu_pod, lent
from benchmarks.workload import GPU, add_gangs, add_members, add_singles, classes, cluster, one_pod

from phalanx.cluster.state import ClusterState
from phalanx.daemon.observer import Observer
from phalanx.dialects.intake import Intake
from phalanx.dialects.signatures import Signer
from phalanx.execution.binder import Binder, BindResult
from phalanx.execution.writes import WritePool
from phalanx.model.decisions import Bind
from phalanx.model.events import GangUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import PlanMark, PodClass
from phalanx.model.resources import requests_of
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.calls.memory_server import MemoryServer

_GANG = 4
_AT_ONCE = 40
_SIGNER = Signer((("1", b"k" * 32),))
_GROUP = "pod-group.scheduling.sigs.k8s.io"


class Work(NamedTuple):
    """Prepared work, and the number of pods that it is for."""

    run: Callable[[], object]
    pods: int


def plan_gangs(pods: int = 1200) -> Work:
    """One cycle with a backlog of gangs."""
    state = cluster(200)
    add_gangs(state, pods)
    return _one_cycle(state, pods)


def plan_single_pods(pods: int = 800) -> Work:
    """One cycle with a backlog of single pods, some of them with GPUs, on nodes with GPUs."""
    state = cluster(200)
    add_singles(state, pods)
    return _one_cycle(state, pods)


def plan_single_pods_with_gpus(pods: int = 600) -> Work:
    """One cycle with single pods of 1, 2 and 4 GPUs on nodes with 8."""
    state = cluster(400)
    kinds = [PodClass(requests=requests_of({"cpu": 1000, GPU: gpus}), scored_cpu=1000) for gpus in (1, 2, 4)]
    for number in range(pods):
        state.apply(PodUpdated(one_pod(f"pod-{number:04}", kinds[number % 3], number)))
    return _one_cycle(state, pods)


def _one_cycle(state: ClusterState, pods: int) -> Work:
    scheduler = Scheduler(state, load_policy())
    return Work(lambda: scheduler.cycle(now=1_000_000), pods)


def plan_arriving_gangs(pods: int = 120) -> Work:
    """A cycle for each gang of four that arrives; the gang of the cycle before is confirmed on its nodes."""
    state = cluster(100)
    scheduler, kinds = Scheduler(state, load_policy()), classes()

    def run() -> None:
        for number in range(pods // _GANG):
            add_members(state, f"gang-{number}", [kinds[number % len(kinds)]] * _GANG)
            plan = scheduler.cycle(now=1_000_000 + number)
            assert len(plan.binds) == _GANG
            for bind in plan.binds:
                state.apply(PodUpdated(msgspec.structs.replace(state.pods[bind.uid].pod, node=bind.node)))

    return Work(run, pods)


def reclaim_lent_gpus(pods: int = 40) -> Work:
    """One cycle in which a gang takes back GPUs that its queue has lent; it has lent no CPUs."""
    state = lent(1, 1, count=60)
    scheduler = Scheduler(state, load_policy(QUEUES))
    while not scheduler.idle:
        scheduler.cycle(now=1_000_000)
    state.apply(GangUpdated(Gang(GangKey("a", "mine"), min_member=pods, queue="a", created=1_000_000)))
    for number in range(pods):
        state.apply(PodUpdated(gpu_pod("a", f"mine-{number:03}", 1, "mine", 1_000_000)))

    def run() -> None:
        assert len(scheduler.cycle(now=1_000_000).evictions) == pods

    return Work(run, pods)


def read_list(pods: int = 400) -> Work:
    """The first list of pods, each in its gang."""
    return _observed(MemoryServer([_pod(number) for number in range(pods)]), pods, pods)


def read_events(pods: int = 200) -> Work:
    """Two events for each pod: it is created, and it is bound."""
    created = [_pod(number) for number in range(pods)]
    return _observed(
        MemoryServer((), [*_batches("ADDED", created), *_batches("MODIFIED", map(_bound, created))]), pods
    )


def _observed(server: MemoryServer, pods: int, listed: int = 0) -> Work:
    """Read pods as the scheduler process does, until all are known."""
    state, unknown = ClusterState(), {f"uid-{number}" for number in range(pods)}

    def changed() -> None:
        for uid in [uid for uid in unknown if uid in state.pods and (listed or state.pods[uid].pod.node)]:
            unknown.discard(uid)
        if not unknown:
            known.set()

    async def read() -> None:
        observer.nodes.synced.set()
        reading = asyncio.create_task(observer.pods.run())
        await known.wait()
        reading.cancel()

    known = asyncio.Event()
    observer = Observer(
        server.client(),
        Intake(["phalanx"], signer=_SIGNER),
        state,
        changed=changed,
        pod_seen=lambda pod: None,
        pod_gone=lambda uid: None,
        gang_touched=lambda key: None,
    )
    return Work(lambda: asyncio.run(read()), pods)


def bind(pods: int = 400) -> Work:
    """Bindings of gangs, from the plan to the answers."""
    binds = [
        Bind(
            f"uid-{number}",
            "ns",
            f"pod-{number}",
            "node-1",
            _key(number),
            PlanMark(f"c1-{number // _GANG}", _GANG, 7),
        )
        for number in range(pods)
    ]

    async def post() -> None:
        results: list[BindResult] = []
        pool = WritePool()
        Binder(MemoryServer().client(), pool, results.append, _SIGNER).submit(binds)
        await pool.drained()
        assert len(results) == pods

    return Work(lambda: asyncio.run(post()), pods)


class Prepare(Protocol):
    """Preparation of a main path for a number of pods."""

    def __call__(self, pods: int = ...) -> Work: ...


MAIN_PATHS: dict[str, Prepare] = {
    "plan a backlog of gangs": plan_gangs,
    "plan a backlog of single pods": plan_single_pods,
    "plan a backlog of single pods with GPUs": plan_single_pods_with_gpus,
    "plan gangs as they arrive": plan_arriving_gangs,
    "reclaim lent GPUs": reclaim_lent_gpus,
    "read the first list of pods": read_list,
    "read events of pods": read_events,
    "bind gangs": bind,
}


def _key(number: int) -> GangKey:
    return GangKey("ns", f"gang-{number // _GANG}")


def _pod(number: int) -> dict[str, Any]:
    labels = {f"{_GROUP}/name": f"gang-{number // _GANG}", f"{_GROUP}/min-available": str(_GANG)}
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "ns",
            "uid": f"uid-{number}",
            "resourceVersion": str(number + 10),
            "creationTimestamp": "2026-11-28T12:00:00Z",
            "labels": labels,
        },
        "spec": {
            "schedulerName": "phalanx",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Pending"},
    }


def _bound(pod: dict[str, Any]) -> dict[str, Any]:
    bound = copy.deepcopy(pod)
    bound["metadata"]["resourceVersion"] = str(int(pod["metadata"]["resourceVersion"]) + 100_000)
    bound["spec"]["nodeName"] = "node-1"
    bound["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    return bound


def _batches(kind: str, objects: Any) -> Iterator[bytes]:
    lines = [msgspec.json.encode({"type": kind, "object": entry}) + b"\n" for entry in objects]
    for first in range(0, len(lines), _AT_ONCE):
        yield b"".join(lines[first : first + _AT_ONCE])
