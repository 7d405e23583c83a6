"""Run the suite several times under load, in random order, and report the tests that failed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from collections import defaultdict
from pathlib import Path

from .load import busy, stopping

_ROOT = Path(__file__).parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="number of runs (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; each run has the next one")
    parser.add_argument("--calm", action="store_true", help="without load: random order only")
    parser.add_argument(
        "paths", nargs="*", default=["tests", "examples"], help="test files or folders (default: all)"
    )
    options = parser.parse_args()
    failures: dict[str, list[int]] = defaultdict(list)
    broken: list[int] = []
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory(prefix="phalanx-flaky-") as scratch:
            report = Path(scratch) / "report.xml"
            code = _run(seed, Path(scratch), report, options.paths, calm=options.calm)
            failed = _failed(report)
        for test in failed:
            failures[test].append(seed)
        # A run can fail without a failed test: a process that was left behind, an error while tests are collected.
        if code and not failed:
            broken.append(seed)
    print(f"\n{options.runs} runs, {sum(map(len, failures.values()))} failures of {len(failures)} tests")
    for test, seeds in sorted(failures.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        print(f"  {len(seeds)} of {options.runs}  {test}  (--seed {' '.join(map(str, seeds))})")
    if broken:
        print(f"  failed without a failed test: --seed {' '.join(map(str, broken))}")
    return 1 if failures or broken else 0


def _run(seed: int, scratch: Path, report: Path, paths: list[str], *, calm: bool) -> int:
    """Run the tests once; print one line about the run, and pytest's output if it failed."""
    order = ["--random-order", "--random-order-bucket=module", f"--random-order-seed={seed}"]
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-m", "not slow", *order]
    temporary = scratch / "tmp"
    temporary.mkdir()
    for folder in (scratch, temporary):
        folder.chmod(0o755)
    begun = time.monotonic()
    with (scratch / "output").open("w+", encoding="utf-8") as output:
        child = subprocess.Popen(
            [*command, f"--junitxml={report}", *paths],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        stops: list[int] = []
        if calm:
            code = child.wait()
        else:
            with busy(os.cpu_count() or 1), stopping(child.pid, seed) as stops:
                code = child.wait()
        output.seek(0)
        said = output.read()
    # pytest keeps the folders of its last runs; everything else should have been removed by the test that made it.
    left = sorted(path.name for path in temporary.iterdir() if not path.name.startswith("pytest-of-"))
    seconds = time.monotonic() - begun
    print(
        f"seed {seed}: exit code {code}, {seconds:.0f} s, {len(stops)} stops; {said.splitlines()[-1]}", flush=True
    )
    if left:
        print(f"seed {seed}: left in the temporary folder: {', '.join(left[:10])}", flush=True)
    if code:
        print(said[-20_000:], flush=True)
    return code or (1 if left else 0)


def _failed(report: Path) -> list[str]:
    """Return the tests that a JUnit report calls failed or broken, each once."""
    if not report.exists():
        return []
    cases = Xml.parse(report).getroot().iter("testcase")
    return sorted(
        {
            f"{case.get('classname')}::{case.get('name')}"
            for case in cases
            if case.find("failure") is not None or case.find("error") is not None
        }
    )


if __name__ == "__main__":
    sys.exit(main())
