"""What a plan in time costs: made from nothing, and after one event, for gangs that wait beside running pods.

python -m benchmarks.bench_reservations [--nodes 5000] [--pods 10000] [--gangs 100]
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from benchmarks.figures import record
from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.run_time import RunTime
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import reservation_plan

NOW = 1_800_000_000
FROM_NOTHING, AFTER_ONE_EVENT = 1.0, 0.1
POLICY = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: 0}}]
"""
_CLASSES = 20


def world(nodes: int, pods: int, gangs: int, seed: int = 1) -> tuple[ClusterState, list[str]]:
    """A cluster whose cards are in use for minutes to days, and gangs of 8 to 256 pods that wait for them."""
    rng, state = Random(seed), ClusterState()
    for number in range(nodes):
        offered = (("cpu", 96_000), ("memory", 2**40), ("nvidia.com/gpu", 8), ("pods", 110))
        state.apply(NodeUpdated(Node(f"node-{number:05}", allocatable=offered)))
    running = []
    free = dict.fromkeys(range(nodes), 8)
    for number in range(pods):
        row = number % nodes if number < nodes else rng.randrange(nodes)
        cards = min(rng.choice((1, 2, 4, 8)) if number >= nodes else rng.choice((4, 6, 8)), free[row])
        free[row] -= cards
        limit = rng.choice((600, 3600, 4 * 3600, 24 * 3600, 3 * 86400)) + rng.randrange(3600)
        asked = (("cpu", 4000), ("memory", 2**34), *((("nvidia.com/gpu", cards),) if cards else ()))
        pod_class = PodClass(requests=asked, run_limit=limit)
        uid = f"running-{number:05}"
        pod = Pod(
            *("ns", uid, uid, pod_class, asked, "phalanx"),
            node=f"node-{row:05}",
            phase=PodPhase.RUNNING,
            started=NOW,
            bound=NOW,
            run_time=RunTime(limit),
            grace=0,
        )
        state.apply(PodUpdated(pod))
        running.append(uid)
    classes = [
        PodClass(
            requests=(("cpu", 4000), ("memory", 2**34 + number), ("nvidia.com/gpu", rng.choice((1, 2, 4, 8)))),
            run_limit=rng.choice((3600, 6 * 3600, 24 * 3600)),
        )
        for number in range(_CLASSES)
    ]
    for number in range(gangs):
        key, size = GangKey("ns", f"gang-{number:03}"), rng.choice((64, 128, 256))
        state.apply(GangUpdated(Gang(key, min_member=size, created=NOW + number)))
        pod_class = rng.choice(classes)
        for member in range(size):
            uid = f"{key.name}-{member:03}"
            pod = Pod("ns", uid, uid, pod_class, pod_class.requests, "phalanx", created=NOW + number, gang=key.name)
            state.apply(PodUpdated(pod))
    return state, running


def run(nodes: int, pods: int, gangs: int) -> int:
    state, running = world(nodes, pods, gangs)
    scheduler = Scheduler(state, load_policy(POLICY))
    begun = time.process_time()
    scheduler.cycle(NOW + gangs)
    first = time.process_time() - begun
    plan = reservation_plan(scheduler.features)
    assert plan is not None
    times = []
    for number, uid in enumerate(running[:20]):
        state.apply(PodRemoved(uid))
        scheduler.activate_due(NOW + gangs)
        begun = time.process_time()
        scheduler.cycle(NOW + gangs + number % 2)
        times.append(time.process_time() - begun)
    median = sorted(times)[len(times) // 2]
    of = f"{gangs} gangs, {nodes} nodes, {pods} pods"
    record(__file__, f"plan from nothing, {of}", first, "s", promised=FROM_NOTHING)
    record(__file__, f"after one event, {of}", median, "s", promised=AFTER_ONE_EVENT)
    print(f"{nodes} nodes, {pods} running pods, {gangs} gangs: {len(plan)} starts kept")
    print(f"  from nothing {first:.2f} s; after one event {1e3 * median:.0f} ms (median of {len(times)})")
    return 0 if first <= FROM_NOTHING and median <= AFTER_ONE_EVENT else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=100)
    options = parser.parse_args()
    return run(options.nodes, options.pods, options.gangs)


if __name__ == "__main__":
    sys.exit(main())
