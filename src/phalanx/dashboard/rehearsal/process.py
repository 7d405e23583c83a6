"""Client of the process that executes the dry runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator
from typing import Any

from phalanx.dashboard.rehearsal.messages import AskList, Facts, Failed, Question, Rehearse, Rehearsed
from phalanx.model.events import ClusterEvent
from phalanx.reports.start_entries import StartEntry
from phalanx.reports.turn_entries import OrderReport
from phalanx.reports.why_answer import WhyAnswer

_BATCH = 2000
_MODULE = "phalanx.dashboard.rehearsal.worker"


class RehearsalEnded(Exception):  # noqa: N818 - the process ended, with or without an error
    """Error for the end of the dry-run process. All events sent to it are lost."""


class RehearsalProcess:
    """Process that executes the dry runs. Queued events (`tell`) reach the process in order, before the next
    request."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._facts: list[ClusterEvent] = []
        self._turn = asyncio.Lock()
        self._exchanges: set[asyncio.Task[Any]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, policy: str, schedulers: tuple[str, ...], *, errors: int | None = None
    ) -> AsyncIterator[RehearsalProcess]:
        """Start the dry-run process and stop it at the end of the context. `policy` is the policy's text.

        Its error output goes to the file descriptor `errors`, by default to the parent's.
        """
        # With one thread the process can be forked.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, *schedulers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
        made = cls(process)
        try:
            assert process.stdin is not None
            await made._send(process.stdin, policy)
            yield made
        finally:
            for exchange in list(made._exchanges):
                exchange.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            # The transports of the pipes close in the next iterations of the event loop.
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(OSError):
                await process.stdin.wait_closed()

    def tell(self, event: ClusterEvent) -> None:
        self._facts.append(event)

    @property
    def untold(self) -> int:
        return len(self._facts)

    async def rehearse(self, request: Rehearse) -> Rehearsed | Failed:
        """Return the result of a dry run. Raises RehearsalEnded."""
        result: Rehearsed | Failed = await self._ask(request)
        return result

    async def waiting_units(self, question: AskList) -> OrderReport | list[StartEntry] | Failed:
        """Return a list of all waiting units, from a dry run over the state of the last one. Raises
        RehearsalEnded."""
        answer: OrderReport | list[StartEntry] | Failed = await self._ask(question)
        return answer

    async def why(self, question: Question) -> WhyAnswer | Failed | None:
        """Return the answer why a gang or pod waits, from the last dry run. Raises RehearsalEnded."""
        answer: WhyAnswer | Failed | None = await self._ask(question)
        return answer

    async def ended(self) -> int:
        return await self._process.wait()

    async def _ask(self, request: Rehearse | Question | AskList) -> Any:
        """Send a request to the dry-run process and return its answer.

        A cancelled caller does not cancel the exchange: the next request would receive its answer.
        """
        exchange = asyncio.create_task(self._exchange(request))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        return await asyncio.shield(exchange)

    async def _exchange(self, request: Rehearse | Question | AskList) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        async with self._turn:
            try:
                while self._facts:
                    batch, self._facts = self._facts[:_BATCH], self._facts[_BATCH:]
                    await self._send(stdin, Facts(batch))
                await self._send(stdin, request)
                head = await stdout.readexactly(4)
                return pickle.loads(await stdout.readexactly(int.from_bytes(head, "big")))
            except (OSError, asyncio.IncompleteReadError) as error:
                raise RehearsalEnded(f"the rehearsing process ended: {error}") from error

    async def _send(self, stdin: asyncio.StreamWriter, content: object) -> None:
        data = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
        stdin.write(len(data).to_bytes(4, "big") + data)
        await stdin.drain()
