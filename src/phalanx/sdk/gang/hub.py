"""Hub of a gang: it relays tasks from the client to free workers, and results back. It unpickles nothing.

The client owns the tasks: it sends as many as the hub wants, retries lost ones, and sends them again to a restarted
hub. So the hub needs memory for a few small payloads only, however many tasks there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import deque
from typing import Any

from phalanx.sdk.gang.certificates import CLIENT, WORKER, role_of
from phalanx.sdk.gang.wire import (
    INLINE,
    KEEP_ALIVE,
    Frame,
    FrameKind,
    WireError,
    copy_payload,
    document,
    read_document,
    read_frame,
)

log = logging.getLogger(__name__)

_HANDSHAKE = 10.0
# Seconds after its timeout within which a worker must have ended the task itself.
_TIMEOUT_GRACE = 5.0
_LOST = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, OSError)


class _Task:
    def __init__(self, frame: Frame, payload: bytes | None) -> None:
        self.frame = frame
        self.payload = payload
        self.begun = 0.0


class _Worker:
    """Connection of one worker; it has at most one task."""

    def __init__(self, rank: int, address: str, writer: asyncio.StreamWriter) -> None:
        self.rank = rank
        self.address = address
        self.writer = writer
        self.task: _Task | None = None
        self.kill: asyncio.TimerHandle | None = None
        self.timed_out = False


class Hub:
    """Listener of one gang, with at most one client at a time.

    `ended` is set when the client stops the gang or is gone for `client_timeout` seconds. `facts` are told to the
    client: the Python version and a free port.
    """

    def __init__(self, client_timeout: float, facts: dict[str, Any]) -> None:
        self.ended = asyncio.Event()
        self._client_timeout = client_timeout
        self._facts = facts
        self._workers: dict[int, _Worker] = {}
        self._free: deque[_Worker] = deque()
        self._queue: deque[_Task] = deque()
        self._granted = 0
        self._client: asyncio.StreamWriter | None = None
        self._client_here = asyncio.Event()
        self._client_lock = asyncio.Lock()
        self._worker_freed = asyncio.Condition()
        self._client_seen = time.monotonic()

    async def serve(self, address: str, port: int, context: ssl.SSLContext) -> asyncio.Server:
        """Listen with mutual TLS. Raises OSError."""
        return await asyncio.start_server(
            self._connected, address, port, ssl=context, ssl_handshake_timeout=_HANDSHAKE, limit=2 * INLINE
        )

    async def watch_client(self) -> None:
        """Set `ended` once the client has been gone for the timeout."""
        while not self.ended.is_set():
            gone = time.monotonic() - self._client_seen if self._client is None else 0.0
            if gone >= self._client_timeout:
                log.warning("the client is gone for %d s: the gang ends", round(gone))
                self.ended.set()
            await asyncio.sleep(min(1.0, self._client_timeout / 4))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain: socket.socket = writer.get_extra_info("socket")
        # A peer whose node is lost sends no end of the stream.
        for level, option, value in KEEP_ALIVE:
            plain.setsockopt(level, option, value)
        role = role_of(writer.get_extra_info("ssl_object"))
        try:
            hello = await asyncio.wait_for(read_frame(reader), _HANDSHAKE)
            facts = await read_document(reader, hello)
            if hello.kind is not FrameKind.HELLO:
                raise WireError("the first frame is no HELLO")
            if role == CLIENT:
                await self._serve_client(reader, writer)
            elif role == WORKER:
                await self._serve_worker(reader, _Worker(int(facts["rank"]), str(facts["address"]), writer))
            else:
                log.warning("a peer with the role %r is refused", role)
        except (WireError, KeyError, ValueError) as error:
            log.warning("connection of a %s is closed: %s", role or "stranger", error)
        except _LOST as error:
            log.info("connection of a %s is lost: %s", role or "stranger", error or type(error).__name__)
        finally:
            writer.close()

    # the client

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._client is not None:
            self._client.close()
        self._client = writer
        known = [task.frame.task for task in self._queue]
        known += [worker.task.frame.task for worker in self._workers.values() if worker.task is not None]
        self._granted = 0
        writer.write(document(FrameKind.WELCOME, {**self._facts, "known": known}))
        self._tell_workers()
        self._client_here.set()
        self._grant()
        try:
            while True:
                frame = await read_frame(reader)
                if frame.kind is FrameKind.STOP:
                    self.ended.set()
                    return
                if frame.kind is not FrameKind.TASK:
                    raise WireError(f"frame {frame.kind.name} from a client")
                self._granted -= 1
                if frame.size <= INLINE:
                    self._queue.append(_Task(frame, await reader.readexactly(frame.size)))
                    self._assign()
                else:
                    await self._relay_large(frame, reader)
        finally:
            if self._client is writer:
                self._client = None
                self._client_here.clear()
                self._client_seen = time.monotonic()

    async def _relay_large(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        """Copy a large task to a worker as it arrives, once one is free; the client is not read until then."""
        async with self._worker_freed:
            await self._worker_freed.wait_for(lambda: self._next_for(frame.rank) is not None)
            worker = self._next_for(frame.rank)
            assert worker is not None
            self._free.remove(worker)
        self._begin(worker, _Task(frame, None))
        left = frame.size
        try:
            worker.writer.write(frame.encode())
            while left:
                piece = await reader.readexactly(min(left, INLINE))
                left -= len(piece)
                worker.writer.write(piece)
                await worker.writer.drain()
        except asyncio.IncompleteReadError:
            worker.writer.close()  # its task is incomplete
            raise
        except _LOST:
            await copy_payload(reader, left, None)

    def _grant(self) -> None:
        """Let the client send tasks until each worker has one, and another one waits in the queue for it."""
        if self._client is None:
            return
        busy = sum(worker.task is not None for worker in self._workers.values())
        wanted = 2 * max(1, len(self._workers)) - busy - len(self._queue) - self._granted
        if wanted > 0:
            self._granted += wanted
            self._client.write(Frame(FrameKind.WANT, rank=wanted).encode())

    def _tell_workers(self) -> None:
        if self._client is not None:
            addresses = {str(worker.rank): worker.address for worker in self._workers.values()}
            self._client.write(document(FrameKind.WORKERS, {"workers": addresses}))

    async def _tell_client(self, content: bytes) -> None:
        async with self._client_lock:
            await self._client_here.wait()
            if self._client is not None:
                self._client.write(content)

    # workers

    def _next_for(self, rank: int) -> _Worker | None:
        return next((worker for worker in self._free if rank in (-1, worker.rank)), None)

    def _assign(self) -> None:
        """Send queued tasks to free workers."""
        for task in list(self._queue) if self._free else ():
            worker = self._next_for(task.frame.rank)
            if worker is not None:
                self._free.remove(worker)
                self._queue.remove(task)
                self._begin(worker, task)
                assert task.payload is not None
                worker.writer.write(task.frame.encode() + task.payload)
                if not self._free:
                    break

    def _begin(self, worker: _Worker, task: _Task) -> None:
        worker.task = task
        task.begun = time.monotonic()
        if task.frame.timeout:
            delay = task.frame.timeout + _TIMEOUT_GRACE
            worker.kill = asyncio.get_running_loop().call_later(delay, worker.writer.close)

    async def _serve_worker(self, reader: asyncio.StreamReader, worker: _Worker) -> None:
        former = self._workers.get(worker.rank)
        if former is not None:
            former.writer.close()
        self._workers[worker.rank] = worker
        self._tell_workers()
        await self._set_free(worker)
        try:
            while True:
                frame = await read_frame(reader)
                if frame.kind not in (FrameKind.VALUE, FrameKind.ERROR) or worker.task is None:
                    raise WireError(f"frame {frame.kind.name} from a worker")
                if frame.size <= INLINE:
                    await self._tell_client(frame.encode() + await reader.readexactly(frame.size))
                else:
                    await self._relay_result(frame, reader)
                worker.task = None
                await self._set_free(worker)
        finally:
            await self._remove(worker)

    async def _relay_result(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        """Copy a large result to the client; while it is gone, the worker is not read."""
        async with self._client_lock:
            await self._client_here.wait()
            client = self._client
            if client is not None:
                client.write(frame.encode())
            left = frame.size
            while left:
                piece = await reader.readexactly(min(left, INLINE))
                left -= len(piece)
                # A client that is lost sends the task again.
                if client is not None and not client.is_closing():
                    client.write(piece)
                    with contextlib.suppress(*_LOST):
                        await client.drain()

    async def _set_free(self, worker: _Worker) -> None:
        if worker.kill is not None:
            worker.kill.cancel()
            worker.kill = None
        self._free.append(worker)
        self._assign()
        self._grant()
        if self._free:
            async with self._worker_freed:
                self._worker_freed.notify_all()

    async def _remove(self, worker: _Worker) -> None:
        if worker.kill is not None:
            worker.kill.cancel()
        if worker in self._free:
            self._free.remove(worker)
        if self._workers.get(worker.rank) is worker:
            del self._workers[worker.rank]
            self._tell_workers()
        task, worker.task = worker.task, None
        if task is not None:
            limit = task.frame.timeout
            late = bool(limit) and time.monotonic() - task.begun >= limit
            kind = FrameKind.TIMED_OUT if late else FrameKind.LOST
            facts = {"rank": worker.rank, "address": worker.address}
            await self._tell_client(document(kind, facts, task.frame.task))
