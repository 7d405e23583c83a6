"""Load on the machine: busy processors, and child processes that are stopped and continued at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A stop is longer than a scheduler's cycle and shorter than the 15 s of a lease (seconds).
_LONGEST_STOP = 1.0
_LONGEST_PAUSE = 3.0
_BUSY = "while True: pass"


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep `cores` processors busy, at the priority of the tests."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def stopping(parent: int, seed: int) -> Iterator[list[int]]:
    """Stop a random descendant of the process `parent` again and again, each for at most a second.

    Yield a list with one entry for each stop. A process that another process has stopped is ignored: a test
    that stops a process itself continues it itself.
    """
    stopped: list[int] = []
    ended = threading.Event()

    def work() -> None:
        draw = random.Random(seed)
        while not ended.wait(draw.uniform(0, _LONGEST_PAUSE)):
            running = [pid for pid in descendants(parent) if _state(pid) in ("R", "S", "D")]
            if running:
                pid = draw.choice(running)
                _stop(pid, draw.uniform(0.05, _LONGEST_STOP))
                stopped.append(pid)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield stopped
    finally:
        ended.set()
        thread.join()


def descendants(parent: int) -> list[int]:
    """Return the children of a process, their children and so on, in ascending order."""
    children: dict[int, list[int]] = defaultdict(list)
    for directory in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(directory.name))
        if fields:
            children[int(fields[1])].append(int(directory.name))
    found: list[int] = []
    waiting = [parent]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return sorted(found)


def _stop(pid: int, seconds: float) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the command's name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return []
