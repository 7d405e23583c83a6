"""Run all benchmarks: `python -m benchmarks`. Prints one table with ratios to the bare client and writes JSON.

Each benchmark runs in its own process. The exit code is 1 if a benchmark fails or misses its promise.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.figures import FIGURES, Figure, recorded, table

ROOT = Path(__file__).parent.parent


class Benchmark(NamedTuple):
    """A benchmark, and its arguments with `--quick`."""

    name: str
    quick: tuple[str, ...] = ()


ALL = (
    Benchmark("planning", ("--pods", "10000", "--nodes", "1000")),
    Benchmark("accounts"),
    Benchmark("refusal"),
    Benchmark("eviction"),
    Benchmark("constraints", ("--nodes", "500")),
    Benchmark("topology"),
    Benchmark("reservations", ("--nodes", "500", "--pods", "1000", "--gangs", "20")),
    Benchmark("simulation"),
    Benchmark("transport"),
    Benchmark("end_to_end", ("--pods", "800")),
    Benchmark("processor", ("--pods", "400")),
    Benchmark("jobs", ("--jobs", "30", "--finished", "50")),
    Benchmark("restart", ("--nodes", "500", "--pods", "5000")),
    Benchmark("churn", ("--nodes", "100", "--pods", "1000", "--events", "20000")),
    Benchmark("hub", ("--gangs", "30")),
    Benchmark("hub_choice", ("--members", "5", "--gangs", "300")),
    Benchmark("accounting", ("--gangs", "2000")),
    Benchmark("metrics", ("--queues", "1000")),
    Benchmark("commands", ("--pods", "2000", "--waiting", "20")),
    Benchmark("viewers", ("--viewers", "20", "--gangs", "200", "--seconds", "5")),
)
#: Arguments of full runs that differ from the defaults.
FULL = {"jobs": ("--finished", "50000")}


class Report(msgspec.Struct):
    """Result of a run of all benchmarks, and where it was measured."""

    date: str
    commit: str
    python: str
    machine: str
    cores: int
    memory_gigabytes: float
    quick: bool
    failed: list[str]
    figures: list[Figure]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: whether all run, not how fast")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", help="file for the results")
    names = [benchmark.name for benchmark in ALL]
    parser.add_argument("names", nargs="*", metavar="BENCHMARK", help=f"only these, of {', '.join(names)}")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"unknown benchmark {unknown[0]!r}")
    chosen = [benchmark for benchmark in ALL if not options.names or benchmark.name in options.names]
    report = run(chosen, quick=options.quick)
    print(
        f"\n{report.date}, commit {report.commit}, Python {report.python}, {report.machine}, {report.cores} cores"
    )
    print(*table(report.figures), sep="\n")
    for name in report.failed:
        print(f"{name}: failed, or its promise was missed")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    print(options.json)
    return 1 if report.failed else 0


def run(chosen: list[Benchmark], *, quick: bool) -> Report:
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        for benchmark in chosen:
            print(f"\n{benchmark.name}", flush=True)
            arguments = benchmark.quick if quick else FULL.get(benchmark.name, ())
            command = [sys.executable, "-m", f"benchmarks.bench_{benchmark.name}", *arguments]
            if subprocess.run(command, check=False, env={**os.environ, FIGURES: str(path)}).returncode:
                failed.append(benchmark.name)
        figures = recorded(path)
    return Report(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        python=platform.python_version(),
        machine=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gigabytes=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        quick=quick,
        failed=failed,
        figures=figures,
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
