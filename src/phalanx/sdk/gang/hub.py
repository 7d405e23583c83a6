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
# A worker has tasks for so many seconds, and at most so many tasks.
_WINDOW_SECONDS = 0.02
_WINDOW = 16
# Seconds after which the tasks behind a running one are recalled.
_LONG = 0.25
_LOST = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, OSError)


class _Task:
    def __init__(self, frame: Frame, payload: bytes | None) -> None:
        self.frame = frame
        #: None for a large task, which is copied to its worker at once.
        self.payload = payload
        #: Set once the task was behind the running one of a lost worker: maybe it had begun and killed the worker.
        #: From then on it has a worker alone, so that another loss is its own.
        self.alone = payload is None
        self.begun = 0.0


class _Worker:
    """Connection of one worker. It executes the first of its tasks; the others wait in its socket."""

    def __init__(self, rank: int, address: str, writer: asyncio.StreamWriter) -> None:
        self.rank = rank
        self.address = address
        self.writer = writer
        self.tasks: deque[_Task] = deque()
        self.kill: asyncio.TimerHandle | None = None

    def has_room(self, window: int) -> bool:
        return len(self.tasks) < window and not (self.tasks and self.tasks[0].alone)


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
        # Mean seconds of a task, as workers measured it; a guess that sends tasks one by one at first.
        self._mean = 1.0
        self._results: list[bytes] = []
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
        known += [task.frame.task for worker in self._workers.values() for task in worker.tasks]
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
            await self._worker_freed.wait_for(lambda: self._idle(frame.rank) is not None)
            worker = self._idle(frame.rank)
            assert worker is not None
            worker.tasks.append(_Task(frame, None))
        self._begin_first(worker)
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
        """Let the client send tasks until every window is full, and as many wait in the queue."""
        if self._client is None:
            return
        target = 2 * max(1, len(self._workers)) * self._window
        executed = sum(len(worker.tasks) for worker in self._workers.values())
        wanted = target - executed - len(self._queue) - self._granted
        # Short tasks are wanted in groups, since each frame costs a write.
        if wanted >= max(1, target // 4):
            self._granted += wanted
            self._client.write(Frame(FrameKind.WANT, rank=wanted).encode())

    def _tell_workers(self) -> None:
        if self._client is not None:
            addresses = {str(worker.rank): worker.address for worker in self._workers.values()}
            self._client.write(document(FrameKind.WORKERS, {"workers": addresses}))

    async def _tell_client(self, content: bytes) -> None:
        """Send a small frame to the client, with others of this moment in one write."""
        async with self._client_lock:
            await self._client_here.wait()
            if not self._results:
                asyncio.get_running_loop().call_soon(self._flush)
            self._results.append(content)

    def _flush(self) -> None:
        results, self._results = self._results, []
        # (A client that is lost now does not find these tasks among the known ones, and sends them again.)
        if self._client is not None and results:
            self._client.write(b"".join(results))

    # workers

    @property
    def _window(self) -> int:
        """Number of tasks that a worker has at a time: several short ones, so that none waits for its next."""
        return max(1, min(_WINDOW, int(_WINDOW_SECONDS / max(self._mean, 1e-6))))

    def _idle(self, rank: int) -> _Worker | None:
        return next(
            (worker for worker in self._workers.values() if not worker.tasks and rank in (-1, worker.rank)), None
        )

    def _assign(self) -> None:
        """Send queued tasks to workers with room, to those with the fewest tasks first."""
        if not self._queue:
            return
        window = self._window
        frames: dict[int, list[bytes]] = {}
        for size in range(window):
            for worker in list(self._workers.values()):
                if len(worker.tasks) == size and worker.has_room(window) and self._queue:
                    task = self._next_task(worker)
                    if task is not None:
                        assert task.payload is not None
                        worker.tasks.append(task)
                        frames.setdefault(worker.rank, []).append(task.frame.encode() + task.payload)
                        if len(worker.tasks) == 1:
                            self._begin_first(worker)
        for rank, contents in frames.items():
            self._workers[rank].writer.write(b"".join(contents))

    def _next_task(self, worker: _Worker) -> _Task | None:
        fitting = (task for task in self._queue if task.frame.rank in (-1, worker.rank))
        task = next((task for task in fitting if not (task.alone and worker.tasks)), None)
        if task is not None:
            self._queue.remove(task)
        return task

    def _begin_first(self, worker: _Worker) -> None:
        """Start the clock of the first task of a worker, and recall the others if it turns out to be a long one."""
        first = worker.tasks[0]
        first.begun = time.monotonic()
        if worker.kill is not None:
            worker.kill.cancel()
            worker.kill = None
        loop = asyncio.get_running_loop()
        if first.frame.timeout:
            worker.kill = loop.call_later(first.frame.timeout + _TIMEOUT_GRACE, worker.writer.close)
        if len(worker.tasks) > 1 or self._window > 1:
            loop.call_later(_LONG, self._recall, worker, first)

    def _recall(self, worker: _Worker, first: _Task) -> None:
        """Take back the tasks behind a long one. The worker skips them when it has read the recall."""
        if not worker.tasks or worker.tasks[0] is not first:
            return
        self._mean = max(self._mean, _LONG)
        behind = [task for task in worker.tasks if task is not first]
        if behind:
            worker.tasks = deque([first])
            worker.writer.write(b"".join(Frame(FrameKind.RECALL, task.frame.task).encode() for task in behind))
            self._queue.extendleft(reversed(behind))
            self._assign()

    async def _serve_worker(self, reader: asyncio.StreamReader, worker: _Worker) -> None:
        former = self._workers.get(worker.rank)
        if former is not None:
            former.writer.close()
        self._workers[worker.rank] = worker
        self._tell_workers()
        try:
            while True:
                await self._use_room(worker)
                frame = await read_frame(reader)
                if frame.kind not in (FrameKind.VALUE, FrameKind.ERROR):
                    raise WireError(f"frame {frame.kind.name} from a worker")
                if not worker.tasks or worker.tasks[0].frame.task != frame.task:
                    # It had begun the task before it read the recall; another worker executes it too.
                    await copy_payload(reader, frame.size, None)
                    continue
                # The worker reports the seconds of the call.
                self._mean += 0.1 * (frame.timeout - self._mean)
                if frame.size <= INLINE:
                    await self._tell_client(frame.encode() + await reader.readexactly(frame.size))
                    worker.tasks.popleft()
                else:
                    await self._relay_result(frame, reader)
                    worker.tasks.popleft()
                if worker.tasks:
                    self._begin_first(worker)
        finally:
            await self._remove(worker)

    async def _relay_result(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        """Copy a large result to the client; while it is gone, the worker is not read."""
        async with self._client_lock:
            await self._client_here.wait()
            self._flush()
            client = self._client
            assert client is not None
            client.write(frame.encode())
            left = frame.size
            while left:
                piece = await reader.readexactly(min(left, INLINE))
                left -= len(piece)
                if not client.is_closing():
                    client.write(piece)
                    with contextlib.suppress(*_LOST):
                        await client.drain()
            lost = client.is_closing() or self._client is not client
        if lost:
            facts = {"rank": -1, "address": "", "cause": "the connection to the client"}
            await self._tell_client(document(FrameKind.LOST, facts, frame.task))

    async def _use_room(self, worker: _Worker) -> None:
        if not worker.tasks and worker.kill is not None:
            worker.kill.cancel()
            worker.kill = None
        self._assign()
        self._grant()
        if not worker.tasks:
            async with self._worker_freed:
                self._worker_freed.notify_all()

    async def _remove(self, worker: _Worker) -> None:
        if worker.kill is not None:
            worker.kill.cancel()
        if self._workers.get(worker.rank) is worker:
            del self._workers[worker.rank]
            self._tell_workers()
        tasks, worker.tasks = worker.tasks, deque()
        if not tasks:
            return
        first = tasks.popleft()
        # The others have probably not begun; the last results of a killed worker can be lost.
        for task in tasks:
            task.alone = True
        self._queue.extendleft(reversed(tasks))
        self._assign()
        limit = first.frame.timeout
        late = bool(limit) and time.monotonic() - first.begun >= limit
        kind = FrameKind.TIMED_OUT if late else FrameKind.LOST
        facts = {"rank": worker.rank, "address": worker.address}
        await self._tell_client(document(kind, facts, first.frame.task))
