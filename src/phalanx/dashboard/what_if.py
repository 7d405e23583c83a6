"""What-if questions of the page. Each runs `phalanx what-if` on a capture in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from phalanx.dashboard.rows.entries import WhatIfReply, WhatIfRequest
from phalanx.dashboard.watch import WatchOptions
from phalanx.kube.client import KubeClient
from phalanx.reports.capture.writing import capture_cluster, encode_capture
from phalanx.reports.whatif.answer import WhatIfAnswer
from phalanx.scheduling.framework.policy import Policy

_FRESH_SECONDS = 20.0
_ANSWER_SECONDS = 120.0
_MOST_AT_ONCE = 2
_MOST_WAITING = 8
_LONGEST_ERROR = 2000


class WhatIfError(Exception):
    """Error of a what-if question.

    `status` is 400 for an invalid question, 503 for one that cannot be answered now.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class WhatIfQuestions:
    """Runner of what-if questions. One capture of the cluster serves all questions for some seconds; a few
    questions run at once."""

    def __init__(self, client: KubeClient, options: WatchOptions, policy: Policy) -> None:
        self._client, self._options, self._policy = client, options, policy
        self._turn = asyncio.Lock()
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._waiting = 0
        self._captured: tuple[float, bytes] | None = None

    async def answer(self, question: WhatIfRequest) -> WhatIfReply:
        """Return the answer to a what-if question. Raises WhatIfError, ApiError, ConnectionLost."""
        options = question_options(question)
        output = await self.output(options, question.manifest)
        answer = msgspec.json.decode(output, type=WhatIfAnswer)
        shown = [*options, "-f", "FILE"] if question.manifest else options
        return WhatIfReply(command=shlex.join(["phalanx", "what-if", *shown]), answer=answer)

    async def output(self, options: list[str], manifest: str) -> bytes:
        """Return the JSON that `phalanx what-if` prints with these options. Raises WhatIfError, ApiError,
        ConnectionLost."""
        if any("\0" in text for text in (*options, manifest)):
            raise WhatIfError(400, "a value contains a NUL character")
        if self._waiting >= _MOST_WAITING:
            raise WhatIfError(503, "too many questions are queued: try again later")
        self._waiting += 1
        try:
            async with self._places:
                capture = await self._capture()
                # Each question has its own file, so that no question removes the file of another.
                with tempfile.TemporaryDirectory(prefix="phalanx-what-if-") as directory:
                    file = Path(directory) / "capture.json"
                    await asyncio.to_thread(file.write_bytes, capture)
                    return await self._run(file, options, manifest)
        finally:
            self._waiting -= 1

    async def _capture(self) -> bytes:
        async with self._turn:
            if self._captured is None or time.monotonic() - self._captured[0] > _FRESH_SECONDS:
                options = self._options
                head, documents = await capture_cluster(
                    self._client, options.schedulers, self._policy, time.time(), options.lease_namespace
                )
                content = await asyncio.to_thread(encode_capture, head, documents, packed=False)
                self._captured = (time.monotonic(), content)
            return self._captured[1]

    async def _run(self, capture: Path, options: list[str], manifest: str) -> bytes:
        config = [f"--config={self._options.config}"] if self._options.config else []
        command = [*options, *config, f"--capture={capture}", "--output=json", *(["-f", "-"] if manifest else [])]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phalanx.cli", "what-if", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                output, errors = await child.communicate(manifest.encode("utf-8", "replace"))
        except TimeoutError:
            raise WhatIfError(503, f"no answer after {_ANSWER_SECONDS:.0f} s: ask a smaller question") from None
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode:
            text = errors.decode("utf-8", "replace").strip()
            reason = text.rpartition("Error: ")[2][:_LONGEST_ERROR].replace(str(capture), "the cluster")
            raise WhatIfError(400, reason or "the question could not be answered")
        return output


def question_options(question: WhatIfRequest) -> list[str]:
    """Return the command-line options of `phalanx what-if` for a question.

    Each `--name=value` is one word, so no value is parsed as an option.
    """
    stated = {
        "gang": question.gang,
        "like": question.like,
        "without-nodes": question.without_nodes,
        "queue": question.queue,
        "capability": question.capability,
        "deserved": question.deserved,
        "add-nodes": str(question.add_nodes) if question.add_nodes else "",
        "weight": str(question.weight) if question.weight else "",
        "priority": str(question.priority) if question.priority is not None else "",
        "namespace": question.namespace,
    }
    return [f"--{name}={value}" for name, value in stated.items() if value]
