"""Speed of simulations on one core: `python -m benchmarks.bench_simulation`.

Gangs of 8 to 256 pods arrive at 1,000 nodes with 8 GPUs, under the built-in policy; each pod is created, bound,
begins to run 20 seconds later, and ends: four pod events. Two workloads request more than their cluster has, under
a policy that reserves a start for every waiting gang (`depth: 0`): up to 70 gangs wait at once. Two traces follow
if they are at hand (`python -m benchmarks.traces FOLDER`): openb as it is, and KTH-SP2 under EASY backfilling.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Row, in_own_process, show
from benchmarks.traces import found
from phalanx.simulation.inputs import Inputs, read_inputs
from phalanx.simulation.runs import simulate

POD_EVENTS_A_SECOND = 20_000
# Half of the processor time before the future of nodes was carried over time lines.
CONTENDED_POD_EVENTS_A_SECOND = 5000
SMALL_GANGS_SECONDS = 23.0
OPENB_SECONDS = 60.0
KTH_SECONDS = 120.0
_CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: gpu}
spec: {count: 1000, allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}
---
apiVersion: simulation.phalanx.dev/v1alpha1
kind: World
metadata: {name: world}
spec: {startDelaySeconds: 20}
"""
_GANGS = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: gangs}
spec:
  jobs:
  - name: train
    count: 1500
    interval: {tailMean: 60}
    runTime: {minimum: 10m, tailMean: 1h}
    pods: {8: 40, 64: 40, 256: 20}
    requests: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}
    limit: {factor: 2}
"""
_CONTENDED = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: contended}
spec:
  jobs:
  - name: train
    count: 300
    interval: {tailMean: 200}
    runTime: {minimum: 10m, tailMean: 1h}
    pods: {8: 40, 64: 40, 256: 20}
    requests: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}
    limit: {factor: 2}
"""
_SMALL_GANGS = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: small}
spec:
  jobs:
  - {name: small, count: 400, interval: {tailMean: 60}, runTime: {minimum: 10m, tailMean: 1h},
     pods: {1: 70, 2: 20, 4: 10}, requests: {cpu: 6, nvidia.com/gpu: 1}, limit: {factor: 2}}
  - {name: train, count: 16, interval: {tailMean: 25m}, runTime: {minimum: 30m, tailMean: 2h},
     pods: {16: 2, 48: 1}, requests: {cpu: 6, nvidia.com/gpu: 1}, limit: {factor: 2}}
"""
_EVERY_START = """
actions: "allocate, reserve, backfill"
tiers: [{plugins: [{name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: 0}}]
"""
_BEST_FIT = """
actions: "allocate"
tiers:
- plugins:
  - {name: predicates}
  - {name: deviceshare, arguments: {deviceshare.SchedulePolicy: binpack}}
  - {name: bestfit}
"""
_EASY = """
actions: "allocate, reserve, backfill"
tiers: [{plugins: [{name: predicates}]}]
configurations: [{name: reserve, arguments: {depth: 1, startDelaySeconds: 0}}]
"""


def measure(what: str, inputs: Inputs, seconds: float | None, events_a_second: int = POD_EVENTS_A_SECOND) -> Row:
    """Return the CPU seconds of one run; `seconds` is the limit (None: by the number of pod events)."""
    begin = time.process_time()
    result = simulate(inputs.experiment, inputs.policies[0], inputs.seeds[0])
    took = time.process_time() - begin
    speed = result.speed
    assert not result.failures, result.failures
    note = f"{speed.pod_events / took:,.0f} pod events/s, {speed.cycles / took:,.0f} cycles/s"
    return Row(what, took, seconds if seconds is not None else speed.pod_events / events_a_second, note)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def written(file: str, text: str) -> str:
            (folder / file).write_text(text)
            return str(folder / file)

        gangs = read_inputs(written("cluster.yaml", _CLUSTER), 0, [written("gangs.yaml", _GANGS)], [], [1], None)
        yield in_own_process(measure, "1,500 gangs on 1,000 nodes", gangs, None)
        policy = written("every-start.yaml", _EVERY_START)
        for what, count, workload, seconds in (
            ("300 gangs that request too much, depth 0", 100, _CONTENDED, None),
            ("416 small gangs that request too much, depth 0", 12, _SMALL_GANGS, SMALL_GANGS_SECONDS),
        ):
            cluster = written(f"cluster-{count}.yaml", _CLUSTER.replace("count: 1000", f"count: {count}"))
            inputs = read_inputs(cluster, 0, [written(f"jobs-{count}.yaml", workload)], [policy], [1], None)
            yield in_own_process(measure, what, inputs, seconds, CONTENDED_POD_EVENTS_A_SECOND)
        nodes, pods = found("openb_node_list_all_node.csv"), found("openb_pod_list_default.csv")
        if nodes is not None and pods is not None:
            openb = read_inputs(str(nodes), 0, [str(pods)], [written("fit.yaml", _BEST_FIT)], [1], None)
            yield in_own_process(measure, "openb: 8,152 pods, 1,523 nodes", openb, OPENB_SECONDS)
        log = found("KTH-SP2_log.swf")
        if log is not None:
            kth = read_inputs(None, 100, [str(log)], [written("easy.yaml", _EASY)], [1], None)
            yield in_own_process(measure, "KTH-SP2: 28,481 jobs, EASY", kth, KTH_SECONDS)


if __name__ == "__main__":
    sys.exit(0 if show(rows()) else 1)
