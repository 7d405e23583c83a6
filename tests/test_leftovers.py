"""Processes that tests leave running are found by their environment, killed and named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import end_leftovers

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")


def started(code: str, run: str) -> subprocess.Popen[bytes]:
    """Return a process that carries `run` in its environment, and runs `code` now."""
    environment = {**os.environ, "PHALANX_TEST_RUN": run}
    command = [sys.executable, "-c", f"print(flush=True); {code}"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_process_that_runs_on_is_killed_and_named() -> None:
    with started("import sys; sys.stdin.read()", "run-of-a-test-that-forgets") as process:
        (line,) = end_leftovers("run-of-a-test-that-forgets", patience=0)
        assert line.endswith("import sys; sys.stdin.read()")
    assert process.returncode == -9


def test_process_that_ends_by_itself_is_no_leftover() -> None:
    with started("import time; time.sleep(0.2)", "run-of-a-test-that-waits") as process:
        assert end_leftovers("run-of-a-test-that-waits", patience=60) == []
    assert process.returncode == 0
