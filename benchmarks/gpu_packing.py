"""Allocated GPUs under the default policy and under plugins for GPUs: `python -m benchmarks.gpu_packing [SEED...]`.

The trace and the loads are those of `fgd_table`; the default policy gets `deviceshare`, which allocates parts of
GPUs. It must stay within one point of `fgd`, which knows the pods that will come.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.fgd_table import allocated_under, at_hand, mean, policy_of
from phalanx.scheduling.policy.loader import DEFAULT_POLICY

LOADS = (90, 100, 130)
SEED = 42
#: Largest distance of the default policy from `fgd`, in percent of the GPUs.
TOLERANCE = 1.0
DEFAULT = DEFAULT_POLICY.replace("  - name: nodeorder\n", "  - name: deviceshare\n  - name: nodeorder\n")
SPREADING = DEFAULT + "    arguments: {gpupacking.weight: 0}\n"
POLICIES = {
    "default": DEFAULT,
    "default, spread": SPREADING,
    "bestfit": "bestfit",
    "random": "random",
    "fgd": "fgd",
}


def shares(name: str, seeds: Sequence[int] = (SEED,)) -> list[float]:
    """Return the percent of GPUs that a policy allocates at each of the loads, the mean of the seeds."""
    policy = POLICIES[name]
    return mean(allocated_under(policy if "\n" in policy else policy_of(policy), seeds, LOADS))


def main(seeds: Sequence[int]) -> int:
    """Print the table. Return 1 if the default policy allocates too little."""
    if not at_hand():
        print("no openb trace: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
        return 2
    print("percent of arrived load:", *(f"{load:>8}" for load in LOADS), flush=True)
    found: dict[str, list[float]] = {}
    for name in POLICIES:
        found[name] = shares(name, seeds)
        print(f"{name:23}" + "".join(f"{share:9.2f}" for share in found[name]), flush=True)
    near = all(ours >= theirs - TOLERANCE for ours, theirs in zip(found["default"], found["fgd"], strict=True))
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or [SEED]))
