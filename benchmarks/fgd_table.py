"""The table of FGD (Weng et al., USENIX ATC 2023) on the openb trace: `python -m benchmarks.fgd_table [SEED...]`.

Percent of the GPUs that are allocated when jobs have come that ask for so many percent of them: the trace is
inflated to 130 %, shuffled, and nobody ever ends. The authors give the mean of the seeds 42 to 51.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.traces import found
from phalanx.simulation.inputs import read_inputs
from phalanx.simulation.runs import simulate

LOADS = (100, 110, 120, 130)
PUBLISHED = {
    "random": (86.30, 86.88, 87.28, 87.47),
    "bestfit": (92.86, 92.94, 93.00, 93.08),
    "fgd": (95.23, 95.30, 95.35, 95.39),
}
SEEDS = range(42, 52)
_NODES, _PODS = "openb_node_list_all_node.csv", "openb_pod_list_default.csv"
_TRACE = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Trace
metadata: {name: openb}
spec: {file: %s, inflate: 1.3, shuffle: true, arrivalsOnly: true}
"""


def at_hand() -> bool:
    return found(_NODES) is not None and found(_PODS) is not None


def allocated(plugin: str, seeds: Sequence[int]) -> list[tuple[float, ...]]:
    """By seed, at each of LOADS: percent of the GPUs."""
    return allocated_under(policy_of(plugin), seeds)


def allocated_under(policy: str, seeds: Sequence[int], loads: Sequence[int] = LOADS) -> list[tuple[float, ...]]:
    """Return the percent of GPUs that a policy allocates at each of the loads, by seed."""
    nodes, pods = found(_NODES), found(_PODS)
    assert nodes is not None
    assert pods is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.yaml").write_text(policy)
        (folder / "trace.yaml").write_text(_TRACE % pods.resolve())
        # As published: nodes without GPUs are left out.
        head, *rows = nodes.read_text().splitlines(keepends=True)
        (folder / "nodes.csv").write_text("".join([head, *(row for row in rows if int(row.split(",")[3]))]))
        files = str(folder / "nodes.csv"), 0, [str(folder / "trace.yaml")], [str(folder / "policy.yaml")]
        inputs = read_inputs(*files, list(seeds), None)
    told = []
    for seed in inputs.seeds:
        result = simulate(inputs.experiment, inputs.policies[0], seed)
        assert not result.failures, result.failures
        told.append(tuple(100 * float(result.metrics[f"allocation_at_load_{load}"] or 0) for load in loads))
    return told


def mean(found: Sequence[tuple[float, ...]]) -> list[float]:
    """At each of LOADS, over the seeds."""
    return [sum(column) / len(found) for column in zip(*found, strict=True)]


def policy_of(plugin: str) -> str:
    """The plugin alone decides, with what the authors count as typical pods: the 95 % that are most frequent."""
    pods = found(_PODS)
    assert pods is not None
    rows = list(csv.DictReader(pods.read_text().splitlines()))
    kinds = Counter(
        (int(row["cpu_milli"]), int(row["num_gpu"]), int(row["gpu_milli"]) or 1000, row["gpu_spec"]) for row in rows
    )
    typical, counted = [], 0
    for (cpu, gpus, milli, _), count in kinds.most_common():
        if counted >= 0.95 * len(rows):
            break
        counted += count
        typical.append(f"{{cpu: {cpu / 1000}, gpus: {gpus}, share: {milli / 1000}, frequency: {count}}}")
    stated = f"{{fgd.workload: [{', '.join(typical)}]}}" if plugin == "fgd" else "{}"
    cards = "random" if plugin == "random" else "binpack"
    return (
        'actions: "allocate"\ntiers:\n- plugins:\n  - {name: predicates}\n'
        f"  - {{name: deviceshare, arguments: {{deviceshare.SchedulePolicy: {cards}}}}}\n"
        f"  - {{name: {plugin}, arguments: {stated}}}\n"
    )


def main(seeds: Sequence[int]) -> int:
    if not at_hand():
        print("no openb trace: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
        return 2
    kept = True
    print("percent of arrived load:", *(f"{load:>8}" for load in LOADS), "  (published)")
    for plugin, published in PUBLISHED.items():
        told = mean(allocated(plugin, seeds))
        kept = kept and all(abs(ours - theirs) <= 1 for ours, theirs in zip(told, published, strict=True))
        line = "".join(f"{ours:9.2f}" for ours in told)
        print(f"{plugin:23}{line}   {' '.join(f'{theirs:.2f}' for theirs in published)}", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or SEEDS))
