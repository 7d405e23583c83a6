"""CPU seconds of a search for victims, and of the proof that no victims help; one core, no I/O.

A cold search is the first one of a scheduler: it builds the index of pods by victim class. A warm one is the
next of the same kind.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator

import msgspec

from benchmarks.report import Row, all_in_own_process, show
from benchmarks.workload import GIB, GPU, nodes
from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.decisions import Plan
from phalanx.model.events import AccountUpdated, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

NODES = 1_000
LARGE, PODS_PER_NODE = 5_000, 30
WAITING = 1_000
NOW = 1_000_000
# Seconds.
RECLAIM_PROMISE = 1.0
PREEMPT_PROMISE = 0.05
REFUSE_PROMISE = 0.1
# More than for one, in seconds.
MANY_PROMISE = 0.5

QUEUES = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}]},
        {plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""
_PRIORITIES = (0, 0, 0, 1, 5, 10)
_CPUS = (250, 500, 1000, 1500, 2000, 3000, 4000, 6000)
_NAMESPACES = 6
_HIGH = 1000


# Reclaim of lent resources


def lent(size: int, minimum: int, count: int = NODES) -> ClusterState:
    """Nodes of 8 GPUs, all held by queue b, which deserves half of them; queue a deserves the other half.

    b's pods ask for one GPU each, in gangs of `size` that need `minimum`, on random nodes; without gangs if 1.
    """
    state = ClusterState()
    for node in nodes(count):
        state.apply(NodeUpdated(node))
    for name in "ab":
        half = ((GPU, 4 * count), ("cpu", 48_000 * count), ("memory", 384 * count * GIB))
        state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, name), deserved=half)))
    draw = random.Random(11)
    places = [f"node-{number:05}" for number in range(count) for _ in range(8)]
    draw.shuffle(places)
    for number, place in enumerate(places):
        gang = f"lent-{number // size:05}" if size > 1 else ""
        if gang and number % size == 0:
            state.apply(GangUpdated(Gang(GangKey("b", gang), min_member=minimum, queue="b", created=number)))
        started = NOW - draw.randrange(86_400)
        pod = gpu_pod("b", f"lent-{number:05}", 1, gang, started)
        state.apply(PodUpdated(at(pod, place)))
    return state


def lent_in_gangs(count: int = NODES) -> ClusterState:
    """Nodes full of gangs of four of the queues b to f, of pods with 1, 2, 4 and 8 GPUs.

    These queues and a deserve a sixth each.
    """
    state, draw, number = ClusterState(), random.Random(12), 0
    for name in "abcdef":
        part = ((GPU, 8 * count // 6), ("cpu", 16_000 * count), ("memory", 128 * count * GIB))
        state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, name), deserved=part)))
    for node in nodes(count):
        state.apply(NodeUpdated(node))
        room = 8
        while room:
            gpus = draw.choice([size for size in (1, 1, 2, 4, 8) if size <= room])
            gang, room = f"lent-{number // 4:05}", room - gpus
            queue = "bcdef"[number // 4 % 5]
            if number % 4 == 0:
                state.apply(GangUpdated(Gang(GangKey(queue, gang), min_member=4, queue=queue, created=number)))
            pod = gpu_pod(queue, f"lent-{number:05}", gpus, gang, NOW - draw.randrange(86_400))
            state.apply(PodUpdated(at(pod, node.name)))
            number += 1
    return state


def reclaim_by_unlike_pods() -> list[Row]:
    """A gang of 64 pods of four sizes, as parameter servers and workers are, takes back what its queue deserves."""
    state = lent_in_gangs()
    scheduler = quiet(state, QUEUES)
    ask_by_unlike_pods(state)
    row, plan = timed("a gang of 64 pods of 4 sizes takes back: cold", scheduler, RECLAIM_PROMISE)
    row.note += f", {len(plan.evictions)} pods go"
    assert len(plan.nominations) == 64
    return [row]


def ask_by_unlike_pods(state: ClusterState, members: int = 64) -> None:
    state.apply(GangUpdated(Gang(GangKey("a", "mine"), min_member=members, queue="a", created=NOW)))
    for number in range(members):
        state.apply(PodUpdated(gpu_pod("a", f"mine-{number:03}", (1, 2, 4, 8)[number % 4], "mine", NOW)))


def gpu_pod(queue: str, name: str, gpus: int, gang: str, created: int) -> Pod:
    requests = requests_of({"cpu": 4_000 * gpus, "memory": 32 * gpus * GIB, GPU: gpus})
    kind = PodClass(requests=requests, scored_cpu=4_000 * gpus, scored_memory=32 * gpus * GIB)
    return Pod(
        queue,
        name,
        f"uid-{name}",
        kind,
        requests,
        "phalanx",
        created=created,
        gang=gang,
        queue=queue,
        started=created,
    )


def at(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node=node, phase=PodPhase.RUNNING)


def reclaim(size: int, minimum: int, members: int, gpus: int) -> list[Row]:
    """Two gangs of queue a, one after the other, take back what it deserves."""
    state = lent(size, minimum)
    scheduler = quiet(state, QUEUES)
    lone = "pods on their own"
    whom = lone if size == 1 else f"gangs of {size}" + (f" that need {minimum}" if minimum < size else "")
    what = f"take back {members} x {gpus} GPU(s) from {whom}"
    rows: list[Row] = []
    for turn in ("cold", "warm"):
        name = f"mine-{turn}"
        state.apply(GangUpdated(Gang(GangKey("a", name), min_member=members, queue="a", created=NOW)))
        for number in range(members):
            state.apply(PodUpdated(gpu_pod("a", f"{name}-{number:03}", gpus, name, NOW)))
        row, plan = timed(f"{what}: {turn}", scheduler, RECLAIM_PROMISE)
        assert len(plan.nominations) == members
        assert plan.evictions
        row.note += f", {len(plan.evictions)} pods go"
        rows.append(row)
    return rows


# Preemption by priority


def mixed(preemptable: bool = True, fresh: bool = False) -> ClusterState:
    """5,000 full nodes with 30 pods each, of some 300 kinds: eight sizes, four priorities, six namespaces.

    With `fresh` nobody has had the time yet that his queue lets its pods run.
    """
    state = ClusterState()
    draw = random.Random(12)
    if fresh:
        state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, "default"), min_run_time=7 * 86_400)))
    for number in range(LARGE):
        sizes = [draw.choice(_CPUS) for _ in range(PODS_PER_NODE)]
        cpu = sum(sizes) + draw.randrange(200)
        name = f"node-{number:05}"
        room = {"pods": 110, "cpu": cpu, "memory": 4 * GIB * cpu // 1000}
        state.apply(NodeUpdated(Node(name=name, allocatable=requests_of(room))))
        for place, size in enumerate(sizes):
            state.apply(PodUpdated(at(cpu_pod(draw, f"p{number}-{place}", size, preemptable), name)))
    return state


def cpu_pod(draw: random.Random, name: str, cpu: int, preemptable: bool = True, priority: int | None = None) -> Pod:
    memory = cpu * GIB // 1000 * draw.choice((1, 2))
    requests = requests_of({"cpu": cpu, "memory": memory})
    return Pod(
        f"team-{draw.randrange(_NAMESPACES)}",
        name,
        f"uid-{name}",
        PodClass(requests=requests, scored_cpu=cpu, scored_memory=memory),
        requests,
        "phalanx",
        priority=draw.choice(_PRIORITIES) if priority is None else priority,
        created=NOW - draw.randrange(86_400),
        started=NOW - draw.randrange(86_400),
        preemptable=preemptable,
    )


def preempt(
    what: str, cpu: int, priority: int, promise: float | None, goes: bool, world: tuple[bool, bool]
) -> list[Row]:
    """Preempt for a single pod, twice; `goes` states whether a pod is evicted for it."""
    scheduler = quiet(mixed(*world))
    draw = random.Random(13)
    rows: list[Row] = []
    for turn in ("cold", "warm"):
        # Another size the second time: equal questions are not asked twice.
        pod = cpu_pod(draw, f"asks-{turn}", cpu + 10 * len(rows), priority=priority)
        scheduler.state.apply(PodUpdated(pod))
        row, plan = timed(f"{what}: {turn}", scheduler, promise if turn == "warm" else None)
        assert bool(plan.evictions) is goes
        row.note += f", {len(plan.evictions)} pods go"
        rows.append(row)
    return rows


def many_that_fail() -> list[Row]:
    """Measure the search for one gang without possible victims, then for 1,000 equal gangs: it is made once."""
    rows: list[Row] = []
    for count in (1, WAITING):
        state = mixed(fresh=True)
        scheduler = quiet(state)
        sample = cpu_pod(random.Random(14), "sample", 8000, priority=_HIGH)
        for number in range(count):
            gang = f"job-{number:04}"
            state.apply(GangUpdated(Gang(GangKey(sample.namespace, gang), min_member=4, created=NOW)))
            for member in range(4):
                name = f"{gang}-{member}"
                pod = msgspec.structs.replace(sample, name=name, uid=f"uid-{name}", gang=gang)
                state.apply(PodUpdated(pod))
        what = f"no: {count:,} gang(s) of four ask, all have begun just now: cold"
        row, plan = timed(what, scheduler, rows[0].seconds + MANY_PROMISE if rows else None)
        assert not plan.evictions
        rows.append(row)
    return rows


# measuring


def quiet(state: ClusterState, policy: str | None = None) -> Scheduler:
    """A scheduler that has looked at everything once."""
    scheduler = Scheduler(state, load_policy(policy) if policy is not None else load_policy())
    while not scheduler.idle:
        scheduler.cycle(NOW)
    gc.collect()
    gc.freeze()
    return scheduler


def timed(what: str, scheduler: Scheduler, limit: float | None) -> tuple[Row, Plan]:
    """One whole cycle: the attempt to place them, the search, the decision."""
    wall, start = time.perf_counter(), time.process_time()
    plan = scheduler.cycle(NOW)
    seconds = time.process_time() - start
    assert plan.complete
    return Row(what, seconds, limit, f"{time.perf_counter() - wall:.3f} s by the clock"), plan


CASES: dict[str, tuple[Callable[..., list[Row]], tuple[object, ...]]] = {
    "lone": (reclaim, (1, 1, 250, 1)),
    "lone-nodes": (reclaim, (1, 1, 31, 8)),
    "gangs": (reclaim, (8, 8, 250, 1)),
    "gangs-nodes": (reclaim, (8, 8, 31, 8)),
    "surplus": (reclaim, (6, 4, 250, 1)),
    "surplus-nodes": (reclaim, (6, 4, 31, 8)),
    "unlike": (reclaim_by_unlike_pods, ()),
    "preempt": (preempt, ("one pod needs room among 150,000", 8000, _HIGH, PREEMPT_PROMISE, True, (True, False))),
    "no-lower": (preempt, ("no: no pod has a lower priority", 8000, 0, REFUSE_PROMISE, False, (True, False))),
    "too-big": (preempt, ("no: no node is that large", 150_000, _HIGH, REFUSE_PROMISE, False, (True, False))),
    "too-little": (preempt, ("no: not enough on any node", 90_000, 1, REFUSE_PROMISE, False, (True, False))),
    "protected": (preempt, ("no: all are protected", 8000, _HIGH, REFUSE_PROMISE, False, (False, False))),
    "fresh": (preempt, ("no: all have begun just now", 8000, _HIGH, None, False, (True, True))),
    "many": (many_that_fail, ()),
}


def rows(names: list[str] | None = None) -> Iterator[Row]:
    for name in names or CASES:
        measure, arguments = CASES[name]
        yield from all_in_own_process(measure, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append")
    show(rows(parser.parse_args().case))


if __name__ == "__main__":
    main()
