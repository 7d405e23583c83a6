"""How long saying no takes, and how little it costs that many wait. CPU seconds, one core, no IO."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from benchmarks.report import Row, in_own_process, show
from benchmarks.workload import GIB, GPU, add_members, cluster, fill
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.model.events import PodRemoved, PodUpdated
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

CYCLES = 50
NODES = 1_000


def gpu_class(gpus: int) -> PodClass:
    requests = requests_of({"cpu": 8_000, "memory": 64 * GIB, GPU: gpus})
    return PodClass(requests=requests, scored_cpu=8_000, scored_memory=64 * GIB)


def refused_at_once() -> Row:
    """A gang of ten pods with eight GPUs each on a full cluster gets its verdict."""
    state = cluster(NODES)
    fill(state, gpu_class(1))
    scheduler = quiet(state)
    add_members(state, "job", [gpu_class(8)] * 10)
    seconds, plan = timed(lambda: scheduler.cycle(1))
    (verdict,) = plan.gangs
    assert verdict.verdict is not None
    assert not plan.binds
    return Row(f"refuse a 10-pod x 8-GPU gang on {NODES:,} full nodes", seconds, 0.1, verdict.verdict.code)


def refused_after_a_search() -> Row:
    """Each class of an unlike gang would fit, both together do not: other ways are searched before the answer."""
    state = cluster(NODES)
    fill(state, gpu_class(1), keep_free=3, on_last=40)
    scheduler = quiet(state)
    add_members(state, "job", [gpu_class(2)] * 30 + [gpu_class(3)] * 20)
    seconds, plan = timed(lambda: scheduler.cycle(1))
    assert not plan.binds
    return Row(f"refuse 30 x 2 and 20 x 3 GPUs with 3 free on 40 of {NODES:,} nodes", seconds, 0.1)


def parked(waiting: int, size: int, gpus: int, freed: int, what: str, limit: float) -> Row:
    """Per cycle: somewhere `freed` single-GPU pods end, and one starts again after it was answered."""
    state = cluster(NODES)
    fill(state, gpu_class(1))
    for number in range(waiting):
        if size > 1:
            add_members(state, f"job-{number}", [gpu_class(gpus)] * size, created=number)
        else:
            pod = Pod("bench", f"p{number}", f"p{number}", gpu_class(gpus), gpu_class(gpus).requests, "phalanx")
            state.apply(PodUpdated(pod))
    scheduler = quiet(state)
    said = bound = 0
    spent = 0.0
    for cycle in range(CYCLES):
        victims = list(state.pods.on(cycle))[:freed]
        for victim in victims:
            state.apply(PodRemoved(victim.pod.uid))
        seconds, plan = timed(lambda: scheduler.cycle(1))
        spent += seconds
        said += len(plan.gangs) + len(plan.pods)
        bound += len(plan.binds)
        assert plan.complete
    note = f"per cycle: {bound / CYCLES:.1f} bound, {said / CYCLES:,.0f} told something new"
    return Row(what, spent / CYCLES, limit, note)


def quiet(state: ClusterState) -> Scheduler:
    """A scheduler that has looked at everything once."""
    scheduler = Scheduler(state, load_policy())
    while not scheduler.idle:
        scheduler.cycle(1)
    gc.collect()
    gc.freeze()
    return scheduler


def timed(work: Callable[[], Plan]) -> tuple[float, Plan]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def rows() -> Iterator[Row]:
    yield in_own_process(refused_at_once)
    yield in_own_process(refused_after_a_search)
    gangs = "10,000 gangs wait, a GPU is freed"
    yield in_own_process(parked, 10_000, 10, 8, 1, f"{gangs}: a cycle", 0.02)
    yield in_own_process(parked, 10_000, 10, 8, 8, "10,000 gangs wait, a whole node is freed: a cycle", 0.05)
    yield in_own_process(parked, 10_000, 1, 1, 1, "10,000 pods wait, a GPU is freed and taken: a cycle", 0.02)


def main() -> None:
    show(rows())


if __name__ == "__main__":
    main()
