"""Child processes that tests have started and not ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

_VARIABLE = "PHALANX_TEST_RUN"


def mark_children(run: str) -> None:
    """Let each process that this one starts from now on carry `run` in its environment."""
    os.environ[_VARIABLE] = run


def end_leftovers(run: str) -> list[str]:
    """Kill the processes that carry `run`, this one excepted; return their command lines.

    Processes are found by their environment, so also those whose parent has ended. Only Linux tells it (/proc);
    elsewhere the list is empty.
    """
    wanted = f"{_VARIABLE}={run}".encode()
    found: list[str] = []
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) == os.getpid():
            continue
        try:
            if wanted not in (directory / "environ").read_bytes().split(b"\0"):
                continue
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            os.kill(int(directory.name), signal.SIGKILL)
        except OSError:  # it belongs to another user, or has ended meanwhile
            continue
        if line:
            found.append(line)
    return sorted(found)
