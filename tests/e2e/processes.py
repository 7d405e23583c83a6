"""Our commands, as child processes or in this one, with their output and their end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from phalanx.cli.main import main

# Ends a test that hangs, no more: a process may need long to start on a busy machine (seconds).
PATIENCE = 90.0
# Commands in this process share one replacement of stdout: one command runs at a time.
_ONE = threading.Lock()


async def command(*arguments: str | Path) -> tuple[int, str]:
    """Runs a command that ends by itself; its exit code, and all that it said. A thread of this process runs it: a
    process of its own would import for half a second."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(_run, *map(str, arguments))


def _run(*arguments: str) -> tuple[int, str]:
    with _ONE, CliRunner().isolation() as (_, _, output), patch.object(sys, "argv", ["phalanx", *arguments]):
        try:
            main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        said = output.getvalue().decode().replace("\r\n", "\n")
    return (code if isinstance(code, int) else 0 if code is None else 1), "\n".join(
        line.rstrip() for line in said.splitlines()
    )


class Process:
    """A child process. `lines` are its output so far, stdout and stderr, in order of arrival."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.lines: list[str] = []
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, *arguments: str | Path) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "phalanx.cli",
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return cls(child)

    async def says(self, words: str, times: int = 1) -> None:
        """Wait for `count` lines with these words."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.count(words) >= times or self._reader.done())
        assert self.count(words) >= times, self.output

    def count(self, words: str) -> int:
        return sum(words in line for line in self.lines)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    async def ends(self, patience: float = PATIENCE) -> int:
        """Its exit code."""
        async with asyncio.timeout(patience):
            code = await self.child.wait()
            await self._reader
        return code

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(number)
        return await self.ends()

    async def _read(self) -> None:
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            async with self._news:
                self.lines.append(line.decode().rstrip())
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()
