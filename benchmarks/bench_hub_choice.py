"""Ledger, choice and protocol of a hub alone: simulated members in virtual time, no network and no forecasts.

Run with ``python -m benchmarks.bench_hub_choice``; ``--members`` and ``--gangs``.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.hub.simulated_members import Simulation

from benchmarks.figures import record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--gangs", type=int, default=10_000)
    arguments = parser.parse_args()
    simulation = Simulation(arguments.members, arguments.gangs)
    began, start = time.process_time(), simulation.now
    simulation.run()
    seconds, gangs = time.process_time() - began, arguments.gangs
    starts = sorted(moment - start for gang in simulation.gangs.values() for _, moment in gang.starts)
    total = sum(member.total for member in simulation.members.values())
    work = sum(gang.size * gang.runs for gang in simulation.gangs.values())
    slips = sorted(simulation.slipped())
    print(f"{gangs} gangs, {arguments.members} members: {seconds:.1f} s, {gangs / seconds:.0f} gangs/s")
    record(__file__, f"choices for {gangs} gangs and {arguments.members} members", gangs / seconds, "gangs/s")
    for name, part in simulation.seconds.items():
        print(f"  {name}: {part:.1f} s, {part / gangs * 1e3:.2f} ms a gang")
    print(f"  {simulation.rounds} rounds, {simulation.questions} questions to members")
    print(f"  virtual: all over after {simulation.now - start} s (work / capacity {work / total:.0f} s)")
    print(f"  half had started after {starts[len(starts) // 2]} s; promises slipped by {slips[-1]} s at most")
    return 0 if len(starts) == gangs else 1


if __name__ == "__main__":
    sys.exit(main())
