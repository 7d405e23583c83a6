"""What accounts cost: a tree of ten thousand beside none, and a thousand queues that take turns. One core."""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Iterator
from itertools import product

import msgspec

from benchmarks.report import Row, in_own_process, show
from benchmarks.workload import add_gangs, classes, cluster, one_pod
from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated, GangUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy
from phalanx.scheduling.scheduler import Scheduler

PODS, NODES = 100_000, 10_000
JOBS, QUEUES = 50_000, 1_000
# Seconds for the jobs in queues, and the part of planning that the upkeep of accounts may take.
JOBS_PROMISE = 15.0
UPKEEP_PROMISE = 0.10
_BRANCHES = (10, 10, 10, 9)
_REPEATS = 4


def queue_tree(state: ClusterState) -> list[str]:
    """10,110 queues below the root on four levels, every one with a ceiling; the names of the 9,000 leaves."""
    limits = (("cpu", 2**40), ("memory", 2**50))
    for depth in range(1, len(_BRANCHES) + 1):
        for path in product(*(range(width) for width in _BRANCHES[:depth])):
            parent = AccountKey(Tree.QUEUE, _name(path[:-1])) if depth > 1 else None
            key = AccountKey(Tree.QUEUE, _name(path))
            state.apply(AccountUpdated(Account(key, parent=parent, capability=limits)))
    return [_name(path) for path in product(*(range(width) for width in _BRANCHES))]


def _name(path: tuple[int, ...]) -> str:
    return "q" + "-".join(map(str, path))


def without_shares() -> Policy:
    """The default policy without those who compute shares: what is left of accounts is their upkeep."""
    lines = [line for line in DEFAULT_POLICY.splitlines() if not line.endswith((" drf", " proportion"))]
    return load_policy("\n".join(lines))


def plan_gangs(policy: Policy, spread: bool) -> float:
    """CPU seconds for 100,000 pods in gangs: all in one queue, or in queues all over the tree."""
    state = cluster(NODES)
    add_gangs(state, PODS)
    if spread:
        draw, leaves = random.Random(4), queue_tree(state)
        for gang in list(state.gangs.values()):
            assert gang.spec is not None
            state.apply(GangUpdated(msgspec.structs.replace(gang.spec, queue=draw.choice(leaves))))
    state.ledger.refresh_sums()
    return _plan(state, policy)


def plan_jobs() -> float:
    """CPU seconds for 50,000 gangs of one in 1,000 queues of equal weight that share by weight."""
    state = cluster(NODES)
    for number in range(QUEUES):
        state.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, f"q{number}"), weight=1 + number % 3)))
    draw, kinds = random.Random(5), classes()
    for number in range(JOBS):
        name = f"job-{number:05}"
        queue = f"q{draw.randrange(QUEUES)}"
        state.apply(GangUpdated(Gang(GangKey("bench", name), queue=queue, created=number // 100)))
        state.apply(PodUpdated(one_pod(name, draw.choice(kinds), number // 100, gang=name)))
    return _plan(state, load_policy())


def _plan(state: ClusterState, policy: Policy) -> float:
    scheduler = Scheduler(state, policy)
    gc.collect()
    gc.freeze()
    start = time.process_time()
    scheduler.cycle(now=1_000_000)
    return time.process_time() - start


def upkeep() -> Row:
    policy = without_shares()
    # By turns: what else the machine does changes over time.
    runs = [(plan_gangs(policy, spread=False), plan_gangs(policy, spread=True)) for _ in range(_REPEATS)]
    plain, spread = min(run[0] for run in runs), min(run[1] for run in runs)
    part = max(0.0, spread - plain) / plain
    note = f"{part:.1%} of {plain:.3f} s without accounts"
    return Row(f"upkeep of 10,110 accounts, {PODS:,} pods in gangs", spread - plain, UPKEEP_PROMISE * plain, note)


def shared() -> Row:
    seconds = plan_gangs(load_policy(), spread=True)
    return Row(f"plan {PODS:,} pods as gangs in 10,110 queues that share by weight", seconds, None, "")


def jobs() -> Row:
    seconds = plan_jobs()
    note = f"{seconds / JOBS * 1e6:5.1f} us/job"
    return Row(f"plan {JOBS:,} jobs of one pod in {QUEUES:,} queues", seconds, JOBS_PROMISE, note)


def rows() -> Iterator[Row]:
    for measure in (upkeep, shared, jobs):
        yield in_own_process(measure)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    show(rows())


if __name__ == "__main__":
    main()
