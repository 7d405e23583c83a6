"""What it costs to tell Prometheus about every queue.

python -m benchmarks.bench_metrics [--queues 10000]
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from typing import NamedTuple

from benchmarks.figures import record
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.accounts import AccountSeries
from phalanx.daemon.metrics.deserved import DeservedShares
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated, NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

MOST_SECONDS = 0.1
MOST_ON_THE_LOOP = 0.05
_REPEATS = 5


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
    series = AccountSeries(state, deserved=DeservedShares(lambda: scheduler, now=lambda: 1000.0).as_of)
    gc.collect()
    gc.freeze()
    first, same, changed = _scrape(series), list[_Scrape](), list[_Scrape]()
    for number in range(_REPEATS):
        same.append(_scrape(series))
        # No cycle follows the change, so the scrape computes the deserved shares.
        pod = Pod("a", f"more{number}", f"more{number}", PodClass(asked), asked, "phalanx", queue="queue-00000")
        state.apply(PodUpdated(pod))
        changed.append(_scrape(series))
    print(f"{options.queues} queues, {first.lines:,} lines: CPU, on the loop and by a thread:")
    unchanged, worked_out = _median(same), _median(changed)
    for words, scrape in (
        ("the first time", first),
        ("as before", unchanged),
        ("after a change of what is asked for", worked_out),
    ):
        record(__file__, f"scrape {words}, {options.queues} queues", scrape.copying + scrape.writing, "s")
        print(f"  {words:36} {1e3 * scrape.copying:4.0f} ms {1e3 * scrape.writing:4.0f} ms")
    kept = unchanged.copying + unchanged.writing <= MOST_SECONDS and worked_out.copying <= MOST_ON_THE_LOOP
    return 0 if kept else 1


class _Scrape(NamedTuple):
    """Seconds."""

    copying: float
    writing: float
    lines: int


def _scrape(series: AccountSeries) -> _Scrape:
    begun = time.process_time()
    accounts = series.snapshot()
    between = time.process_time()
    text = "\n".join(series.lines(accounts))
    return _Scrape(between - begun, time.process_time() - between, text.count("\n"))


def _median(scrapes: list[_Scrape]) -> _Scrape:
    return sorted(scrapes, key=lambda scrape: scrape.copying + scrape.writing)[len(scrapes) // 2]


if __name__ == "__main__":
    sys.exit(main())
