"""Run a part of the suite once for each feature of the cycle, with that feature left out of the registry."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from .left_out import feature_names

# About 20 s a feature on two cores. Other folders are named on the command line.
PATHS = ("tests/scheduling", "tests/views")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.features", description=__doc__)
    parser.add_argument("--feature", action="append", help="leave out this one only (can be repeated)")
    parser.add_argument("paths", nargs="*", default=PATHS, help="test files or folders (default: a part of all)")
    options = parser.parse_args()
    broken = [name for name in options.feature or feature_names() if not passes_without(name, options.paths)]
    print(f"the suite fails without: {', '.join(broken)}" if broken else "the suite passes without any one of them")
    return 1 if broken else 0


def passes_without(name: str, paths: Sequence[str]) -> bool:
    """Run the tests at `paths` with the feature `name` left out; return whether all of them passed."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-m", "not slow and not thorough"]
    done = subprocess.run(
        [*command, "--without-feature", name, *paths], capture_output=True, text=True, check=False
    )
    passed = done.returncode == 0
    print(f"{'passed' if passed else 'FAILED'}  {time.monotonic() - begun:5.0f} s  without {name}", flush=True)
    if not passed:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
