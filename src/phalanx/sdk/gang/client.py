"""Client of a gang: it owns the tasks, sends as many as the hub wants, and completes their futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
import pickle
import ssl
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from phalanx.sdk.errors import (
    GangEndedError,
    GangUnreachableError,
    PhalanxError,
    PythonVersionError,
    RemoteTraceback,
    TaskTimeoutError,
    UnpicklableError,
    WorkerLostError,
)
from phalanx.sdk.gang.calls import SPOOLED, CallPickler, new_file
from phalanx.sdk.gang.certificates import HUB_NAME
from phalanx.sdk.gang.wire import INLINE, KEEP_ALIVE, PIECE, Frame, FrameKind, document, read_document, read_frame

log = logging.getLogger(__name__)

_PAUSE = 0.3
_HANDSHAKE = 10.0
#: Function that yields host and port of the hub; it waits until the hub runs, and raises PhalanxError if it never
#: will.
Reach = Callable[[], AbstractAsyncContextManager[tuple[str, int]]]


class PickledCall:
    """Task with its pickled call. `losses` counts the workers that were lost with it."""

    def __init__(self, number: int, payload: Any, size: int, rank: int) -> None:
        self.number = number
        self.payload = payload
        self.size = size
        self.rank = rank
        self.losses = 0
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()


def pickle_call(
    pickler: CallPickler,
    number: int,
    function: object,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    rank: int,
) -> PickledCall:
    """Return the task that calls a function. Raises UnpicklableError."""
    payload = new_file()
    try:
        pickler.dump(function, arguments, keywords, payload)
    except BaseException:
        payload.close()
        raise
    return PickledCall(number, payload, payload.tell(), rank)


class GangClient:
    """Connection to the hub of a gang, restored when it is lost. All methods run in one event loop."""

    def __init__(
        self,
        context: ssl.SSLContext,
        reach: Reach,
        *,
        retries: int,
        timeout: float,
        welcomed: Callable[[], object] = lambda: None,
    ) -> None:
        self._welcomed = welcomed
        self._context = context
        self._reach = reach
        self._retries = retries
        self._timeout = timeout
        self._pending: deque[PickledCall] = deque()
        self._sent: dict[int, PickledCall] = {}
        self._wanted = 0
        self._writer: asyncio.StreamWriter | None = None
        self._sending: asyncio.Task[None] | None = None
        self.ended: PhalanxError | None = None
        self._refused = 0
        #: Addresses of the connected workers by rank, and the facts of the hub.
        self.workers: dict[int, str] = {}
        self.facts: dict[str, Any] = {}
        self.changed = asyncio.Event()

    @property
    def unfinished(self) -> int:
        return len(self._pending) + len(self._sent)

    def add(self, task: PickledCall) -> None:
        """Queue a task, and send it if the hub wants one."""
        if self.ended is not None:
            _fail(task, self.ended)
            return
        self._pending.append(task)
        self._send_soon()

    async def run(self) -> None:
        """Stay connected until the gang has ended; then all tasks have failed with the cause."""
        try:
            while True:
                try:
                    async with self._reach() as (host, port):
                        await self._connect(host, port)
                except (ConnectionError, asyncio.IncompleteReadError, OSError, TimeoutError) as error:
                    self._count_refusal(error)
                    log.info("connection to the gang is lost: %s", error)
                finally:
                    self._writer, self._wanted = None, 0
                    self.workers = {}
                await asyncio.sleep(_PAUSE)
        except PhalanxError as error:
            self.end(error)

    def _count_refusal(self, error: Exception) -> None:
        """Raise GangUnreachableError if a certificate is refused: this does not change by itself."""
        if isinstance(error, ssl.SSLCertVerificationError):
            raise GangUnreachableError(
                f"the hub's certificate is not of this gang: {error.verify_message}"
            ) from error
        if isinstance(error, ssl.SSLError) and "ALERT" in str(error).upper():
            raise GangUnreachableError(f"the hub refuses the certificate of this client: {error.reason}") from error

    def end(self, cause: PhalanxError) -> None:
        """Fail all unfinished tasks with a cause, and all later ones."""
        self.ended = cause
        for task in (*self._sent.values(), *self._pending):
            _fail(task, cause)
        self._sent.clear()
        self._pending.clear()
        self.changed.set()

    def cancel_pending(self) -> None:
        """Cancel the tasks that no worker has."""
        while self._pending:
            task = self._pending.pop()
            task.future.cancel()
            task.future.set_running_or_notify_cancel()
            task.payload.close()

    async def stop(self) -> None:
        """End the gang."""
        if self._writer is not None:
            self._writer.write(Frame(FrameKind.STOP).encode())
            await self._writer.drain()

    async def _connect(self, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(
            host,
            port,
            ssl=self._context,
            server_hostname=HUB_NAME,
            ssl_handshake_timeout=_HANDSHAKE,
            limit=2 * PIECE,
        )
        try:
            plain = writer.get_extra_info("socket")
            for level, option, value in KEEP_ALIVE:
                plain.setsockopt(level, option, value)
            writer.write(document(FrameKind.HELLO, {"python": list(sys.version_info[:2])}))
            await self._welcome(reader)
            self._writer = writer
            self._send_soon()
            while True:
                frame = await read_frame(reader)
                await self._handle(frame, reader)
        finally:
            if self._sending is not None:
                self._sending.cancel()
            writer.close()

    async def _welcome(self, reader: asyncio.StreamReader) -> None:
        frame = await read_frame(reader)
        facts = self.facts = await read_document(reader, frame)
        theirs, ours = tuple(facts["python"]), sys.version_info[:2]
        if theirs != ours:
            raise PythonVersionError(
                f"the workers have Python {theirs[0]}.{theirs[1]}, this process has {ours[0]}.{ours[1]}: "
                "choose an image with the same minor version",
                field="image",
            )
        self._welcomed()
        known = set(facts["known"])
        # A restarted hub does not know the tasks that the former one had.
        for number in sorted(set(self._sent) - known, reverse=True):
            self._retry(self._sent.pop(number), "the hub was restarted")

    async def _handle(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        match frame.kind:
            case FrameKind.WANT:
                self._wanted += frame.rank
                self._send_soon()
            case FrameKind.WORKERS:
                workers = (await read_document(reader, frame))["workers"]
                self.workers = {int(rank): address for rank, address in workers.items()}
                self.changed.set()
            case FrameKind.LOST | FrameKind.TIMED_OUT:
                facts = await read_document(reader, frame)
                task = self._sent.pop(frame.task, None)
                if task is not None and frame.kind is FrameKind.LOST:
                    self._retry(task, _cause(facts))
                elif task is not None:
                    self.changed.set()
                    _fail(task, TaskTimeoutError(f"the task did not end within {self._timeout:g} s"))
            case FrameKind.VALUE | FrameKind.ERROR:
                await self._complete(frame, reader)
            case _:
                await read_document(reader, frame)

    def _retry(self, task: PickledCall, cause: str) -> None:
        task.losses += 1
        if task.losses > self._retries:
            times = "once" if task.losses == 1 else f"{task.losses} times"
            self.changed.set()
            _fail(task, WorkerLostError(f"the task lost its worker {times}, the last time because {cause}"))
            return
        self._pending.appendleft(task)
        self._send_soon()

    async def _complete(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        if frame.size <= INLINE:
            stream: Any = io.BytesIO(await reader.readexactly(frame.size))
            outcome = _load(stream)
        else:
            with tempfile.SpooledTemporaryFile(SPOOLED) as file:
                left = frame.size
                while left:
                    piece = await reader.readexactly(min(left, PIECE))
                    left -= len(piece)
                    file.write(piece)
                file.seek(0)
                outcome = await asyncio.to_thread(_load, file)
        # If the connection is lost before, the task is still one that was sent. A task that was sent again can have
        # two results.
        task = self._sent.pop(frame.task, None)
        if task is None:
            return
        task.payload.close()
        self.changed.set()
        failure = outcome if isinstance(outcome, UnpicklableError) else None
        if failure is None and frame.kind is FrameKind.VALUE:
            task.future.set_result(outcome)
            return
        if failure is None:
            error, text = outcome
            error.__cause__ = RemoteTraceback(text)
            task.future.set_exception(error)
        else:
            task.future.set_exception(failure)

    def _send_soon(self) -> None:
        if (
            self._writer is not None
            and self._pending
            and self._wanted
            and (self._sending is None or self._sending.done())
        ):
            self._sending = asyncio.create_task(self._send(self._writer))

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        """Send pending tasks while the hub wants some."""
        while self._pending and self._wanted:
            small: list[bytes] = []
            while self._pending and self._wanted:
                task = self._pending.popleft()
                # A retried task runs already for its future.
                if not task.losses and not task.future.set_running_or_notify_cancel():
                    task.payload.close()
                    continue
                self._wanted -= 1
                self._sent[task.number] = task
                head = Frame(FrameKind.TASK, task.number, task.rank, self._timeout, task.size).encode()
                task.payload.seek(0)
                if task.size <= INLINE:
                    small.append(head + task.payload.read())
                    continue
                writer.write(b"".join((*small, head)))
                small.clear()
                while piece := task.payload.read(PIECE):
                    writer.write(piece)
                    await writer.drain()
            writer.write(b"".join(small))
            await writer.drain()


def _cause(facts: dict[str, Any]) -> str:
    lost = facts.get("cause") or f"the worker of rank {facts['rank']} ({facts['address']})"
    return f"{lost} was lost"


def _load(stream: Any) -> Any:
    try:
        return pickle.load(stream)
    except Exception as error:
        return UnpicklableError(f"the result cannot be read here: {type(error).__name__}: {error}")


def _fail(task: PickledCall, error: PhalanxError) -> None:
    task.payload.close()
    if not task.future.done() and (task.future.running() or task.future.set_running_or_notify_cancel()):
        task.future.set_exception(error)


def ended_by_shutdown() -> GangEndedError:
    return GangEndedError("the executor was shut down")
