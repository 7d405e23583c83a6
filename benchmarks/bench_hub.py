"""How many gangs a hub sends a second: three member clusters with embedded API servers and a scheduler each, all in
one process with the hub (so that everybody's work counts).

Run with ``python -m benchmarks.bench_hub``; ``--gangs`` of two pods, ``--nodes`` in each cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path

from tests.hub.federation import NAMESPACE, Federation, federation

from benchmarks.figures import record
from phalanx.hub.names import DISPATCHES

_PATIENCE = 600.0


async def _submit(three: Federation, gangs: int) -> None:
    limit = asyncio.Semaphore(16)

    async def one(number: int) -> None:
        async with limit:
            await three.gang(f"g{number}", 2)

    await asyncio.gather(*(one(number) for number in range(gangs)))


async def _granted(three: Federation) -> int:
    found = (await three.hub.client.list_all(DISPATCHES.path(NAMESPACE)))["items"]
    return sum((each.get("status") or {}).get("phase") == "Granted" for each in found)


async def measure(gangs: int, nodes: int, profile: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with federation(Path(folder)) as three:
            for name, site in three.members.items():
                for number in range(nodes):
                    await site.node(f"n{number}", "64")
                await three.join(name)
            await _submit(three, gangs)
            profiler = cProfile.Profile()
            if profile:
                profiler.enable()
            began = time.perf_counter()
            await three.start_hub()
            half = 0.0
            while (count := await _granted(three)) < gangs:
                if not half and count >= gangs / 2:
                    half = time.perf_counter() - began
                if time.perf_counter() - began > _PATIENCE:
                    print(f"only {count} of {gangs} gangs were sent in {_PATIENCE:.0f} s", file=sys.stderr)
                    return 1
                await asyncio.sleep(0.2)
            seconds = time.perf_counter() - began
            if profile:
                profiler.disable()
                pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)
            record(__file__, f"gangs of 2 pods to 3 clusters of {nodes} nodes", gangs / seconds, "gangs/s")
            print(
                f"{gangs} gangs of 2 pods to 3 clusters of {nodes} nodes: {seconds:.1f} s, "
                f"{gangs / seconds:.1f} gangs/s (half of them after {half:.1f} s)"
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    return asyncio.run(measure(arguments.gangs, arguments.nodes, arguments.profile))


if __name__ == "__main__":
    sys.exit(main())
