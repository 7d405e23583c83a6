"""How long one whole planning cycle takes: ordering, plugins, transactions, decisions. One core, no IO."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator

from benchmarks.report import Row, in_own_process, show
from benchmarks.workload import add_gangs, add_singles, cluster
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

PODS = (10_000, 30_000, 100_000)
NODES = (1_000, 3_000, 10_000)
# Seconds for 100,000 pods over 10,000 nodes.
PROMISES = {"gangs": 1.4, "singles": 3.0}


def measure(kind: str, pods: int, nodes: int) -> Row:
    """CPU seconds of one cycle that places everything that fits."""
    state = cluster(nodes)
    if kind == "gangs":
        add_gangs(state, pods)
    else:
        add_singles(state, pods)
    scheduler = Scheduler(state, load_policy())
    gc.collect()
    gc.freeze()
    start = time.process_time()
    plan = scheduler.cycle(now=1_000_000)
    seconds = time.process_time() - start
    limit = PROMISES[kind] if (pods, nodes) == (PODS[-1], NODES[-1]) else None
    note = f"{seconds / pods * 1e6:5.1f} us/pod, {len(plan.binds)} bound"
    return Row(f"plan {pods:,} pods as {kind} over {nodes:,} nodes", seconds, limit, note)


def rows(
    kinds: list[str] | None = None, pods: list[int] | None = None, nodes: list[int] | None = None
) -> Iterator[Row]:
    for kind in kinds or PROMISES:
        for count in pods or PODS:
            for size in nodes or NODES:
                yield in_own_process(measure, kind, count, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(PROMISES), action="append")
    parser.add_argument("--pods", type=int, action="append")
    parser.add_argument("--nodes", type=int, action="append")
    options = parser.parse_args()
    show(rows(options.kind, options.pods, options.nodes))


if __name__ == "__main__":
    main()
