"""How long one whole planning cycle takes: ordering, plugins, transactions, decisions. One core, no IO."""

from __future__ import annotations

import argparse
import gc
import resource
import time

from benchmarks.workload import add_gangs, add_singles, cluster
from phalanx.scheduling.policy import load_policy
from phalanx.scheduling.scheduler import Scheduler


def measure(kind: str, pods: int, nodes: int) -> tuple[float, int]:
    """(seconds of the cycle, pods bound)."""
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
    return seconds, len(plan.binds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["gangs", "singles"], action="append")
    parser.add_argument("--pods", type=int, action="append")
    parser.add_argument("--nodes", type=int, action="append")
    options = parser.parse_args()
    print(f"{'kind':8} {'pods':>7} {'nodes':>6} {'seconds':>8} {'bound':>7} {'us/pod':>7} {'max MB':>7}")
    for kind in options.kind or ["gangs", "singles"]:
        for pods in options.pods or [10_000, 30_000, 100_000]:
            for nodes in options.nodes or [1_000, 3_000, 10_000]:
                seconds, bound = measure(kind, pods, nodes)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{kind:8} {pods:7} {nodes:6} {seconds:8.3f} {bound:7} {seconds / pods * 1e6:7.1f} {peak:7.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
