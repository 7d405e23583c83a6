"""A reader who follows a tutorial: a directory, two terminals, and patience."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import phalanx
from tests.tutorials.document import Command, File, first_difference

# Seconds. A cluster starts in three and does everything within a few; on a busy machine it may be much longer.
PATIENCE = 90.0
_PAUSE = 0.3
# Pods that pretend to run for half a minute could have ended before the reader has looked at them: they run until
# the reader waits for their end.
_RUNS = re.compile(r'(phalanx\.dev/run-seconds: )"\d+"')
_LONG = "86400"
_SOURCES = str(Path(phalanx.__file__).parents[1])


class Reader:
    """A reader whose exported variables survive between commands. All commands run in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "empty"
        self.directory.mkdir()
        self._variables = directory / "exported"
        self._variables.touch()
        programs = directory / "bin"
        programs.mkdir()
        # This tree's `phalanx` precedes any installed one.
        (programs / "phalanx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m phalanx.cli "$@"\n', "utf-8")
        (programs / "phalanx").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "PHALANX"))}
        self._environment = {**kept, "PATH": f"{programs}:{kept['PATH']}", "PYTHONPATH": _SOURCES}
        self._ends = contextlib.ExitStack()

    def close(self) -> None:
        """Ctrl-C in the first terminal."""
        self._ends.close()

    def follow(self, step: File | Command) -> None:
        """Follow the steps. Raises AssertionError, with the output, where the document is wrong."""
        if isinstance(step, File):
            (self.directory / step.name).write_text(_RUNS.sub(rf'\1"{_LONG}"', step.text), "utf-8")
        elif step.stays:
            self._ends.enter_context(self._running(step))
        else:
            if step.text.startswith("phalanx job wait"):
                self._end_runs()
            self._type(step)

    def _end_runs(self) -> None:
        """Let pods that pretend to run for a while have run for long enough."""
        code, printed = self._run("kubectl get pods -o json")
        assert code == 0, printed
        for pod in json.loads("\n".join(printed))["items"]:
            if pod["metadata"].get("annotations", {}).get("phalanx.dev/run-seconds") == _LONG:
                name = pod["metadata"]["name"]
                code, printed = self._run(f"kubectl annotate pod {name} phalanx.dev/run-seconds=0 --overwrite")
                assert code == 0, printed

    def _type(self, command: Command) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            code, printed = self._run(command.text)
            wrong = f"exit code {code}" if code else first_difference(command.expected, printed)
            if wrong is None:
                return
            if not command.only_reads or time.monotonic() > deadline:
                raise AssertionError("\n".join([f"line {command.line}: $ {command.text}", f"! {wrong}", *printed]))
            time.sleep(_PAUSE)

    def _run(self, text: str) -> tuple[int, list[str]]:
        script = f'. "{self._variables}"\n{text}\ncode=$?\nexport -p >"{self._variables}"\nexit $code\n'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        return done.returncode, [line for line in done.stdout.splitlines() if line.strip()]

    @contextlib.contextmanager
    def _running(self, command: Command) -> Iterator[None]:
        output = self.directory.parent / "first-terminal"
        with (
            output.open("wb") as file,
            output.with_suffix(".stderr").open("wb") as told,
            subprocess.Popen(
                ["bash", "-c", f"exec {command.text}"],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                # The document shows the output, without progress messages.
                stderr=told,
            ) as process,
        ):
            try:
                self._await_start(command, output, process)
                yield
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()  # or the cluster of a test that fails here would stay

    def _await_start(self, command: Command, output: Path, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            printed = output.read_text("utf-8").splitlines()
            wrong = first_difference(command.expected, printed, whole=False)
            if wrong is None and printed:
                return
            assert process.poll() is None, f"line {command.line}: {command.text} has ended: {_told(output)}"
            assert time.monotonic() < deadline, f"line {command.line}: {wrong}: {printed}"
            time.sleep(_PAUSE)


def _told(output: Path) -> str:
    return output.with_suffix(".stderr").read_text("utf-8", "replace")
