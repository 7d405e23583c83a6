"""Processes that tests have started and not ended, and files that killed processes have left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

_VARIABLE = "PHALANX_TEST_RUN"
_ROOT = Path(__file__).parent.parent


def mark_children(run: str) -> None:
    """Let each process that this one starts from now on carry `run` in its environment."""
    os.environ[_VARIABLE] = run


def end_leftovers(run: str, patience: float = 10.0) -> list[str]:
    """Kill the processes that carry `run`, this one excepted; return their command lines.

    They have `patience` seconds to end by themselves: helpers of `multiprocessing` do so after their parent has.
    Processes are found by their environment, so also those whose parent has ended. Only Linux provides it
    (/proc); elsewhere the list is empty.
    """
    until = time.monotonic() + patience
    while (left := _processes_of(run)) and time.monotonic() < until:
        time.sleep(0.1)
    for number in left:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    return sorted(left.values())


def _processes_of(run: str) -> dict[int, str]:
    """Return the command lines of the other processes that carry `run`, by process number."""
    wanted = f"{_VARIABLE}={run}".encode()
    found: dict[int, str] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) == os.getpid():
            continue
        try:
            if wanted not in (directory / "environ").read_bytes().split(b"\0"):
                continue
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it belongs to another user, or has just ended
            continue
        if line:
            found[int(directory.name)] = line
    return found


def make_temporary_folder() -> Path:
    """Let this process and its children make their temporary files in a folder of this run; return it.

    A process that a test kills cannot remove its own. The folders of `tmp_path` stay in pytest's place, and
    downloaded tools stay in the checkout.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ.setdefault("PHALANX_TOOLS", str(_ROOT / "build" / "tools"))
    folder = Path(tempfile.mkdtemp(prefix="phalanx-tests-"))
    folder.chmod(0o755)  # PostgreSQL runs as a user of its own where the tests run as root
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    return folder


def remove_temporary_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.environ["TMPDIR"], tempfile.tempdir = str(folder.parent), None
