"""Committed table of function calls per pod, for each minor version of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.calls.counting import count_calls
from tests.calls.main_paths import MAIN_PATHS

TABLE = Path(__file__).parent / "calls_per_pod.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
# Growth above this share fails.
TOLERATED = 0.05
_WARM_UP = 40


def calls_per_pod(name: str) -> float:
    """Return the function calls for each pod on a main path. A first run fills what is computed once."""
    prepare = MAIN_PATHS[name]
    prepare(_WARM_UP).run()
    work = prepare()
    return count_calls(work.run) / work.pods


def counted_here() -> dict[str, float]:
    """Count all main paths in this process."""
    return {name: round(calls_per_pod(name), 1) for name in MAIN_PATHS}


def counted_alone() -> dict[str, float]:
    """Count all main paths in a process of their own: other tests leave loggers, caches and loops behind."""
    command = [sys.executable, "-m", "tests.calls", "--print"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=TABLE.parent.parent.parent)
    counts: dict[str, float] = json.loads(done.stdout)
    return counts


def read_table() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = json.loads(TABLE.read_text("utf-8"))
    return table


def write_table() -> dict[str, tuple[float | None, float]]:
    """Count again for this Python, and return (before, now) by path."""
    table = read_table()
    before = table.get(VERSION, {})
    now = counted_here()
    table[VERSION] = now
    ordered = {version: table[version] for version in sorted(table)}
    TABLE.write_text(json.dumps(ordered, indent=2) + "\n", "utf-8")
    return {name: (before.get(name), calls) for name, calls in now.items()}
