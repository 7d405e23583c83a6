"""What it costs to tell Prometheus about every queue.

python -m benchmarks.bench_metrics [--queues 10000]
"""

from __future__ import annotations

import argparse
import sys
import time

from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.accounts import AccountSeries, deserved_shares
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated, NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

MOST_SECONDS = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    options = parser.parse_args()
    state = ClusterState()
    scheduler = Scheduler(state, load_policy())
    asked = (("cpu", 1000), ("memory", 2**30), ("pods", 1))
    offered = (("cpu", 10**4 * options.queues), ("memory", 2**41 * options.queues), ("pods", options.queues))
    state.apply(NodeUpdated(Node("n", allocatable=offered)))
    for number in range(options.queues):
        amounts = tuple({"cpu": 1000 + number, "memory": 2**40, "nvidia.com/gpu": 8}.items())
        key = AccountKey(Tree.QUEUE, f"queue-{number:05}")
        state.apply(AccountUpdated(Account(key, guarantee=amounts, deserved=amounts, capability=amounts)))
        pod = Pod("a", f"p{number}", f"p{number}", PodClass(asked), asked, "phalanx", queue=key.name)
        state.apply(PodUpdated(pod))
    assert not list(state.ledger.discrepancies(state.pods.values()))
    series = AccountSeries(state, shares=lambda: deserved_shares(scheduler.new_session(1000.0)))
    copied, written = list[float](), list[float]()
    for _ in range(6):
        # Shares are known since the last cycle, unless something has changed since; then the next finds them known.
        begun = time.process_time()
        accounts = series.snapshot()
        between = time.process_time()
        text = "\n".join(series.lines(accounts))
        copied.append(between - begun)
        written.append(time.process_time() - between)
    copying, writing = sorted(copied[1:])[2], sorted(written[1:])[2]
    print(
        f"{options.queues} queues, {text.count(chr(10)):,} lines: CPU: copied in {1e3 * copying:.0f} ms, ", end=""
    )
    print(f"written in {1e3 * writing:.0f} ms (the first time in {1e3 * written[0]:.0f} ms)")
    return 0 if copying + writing <= MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
