"""Worker of a gang: a process that calls one function after the other. Its supervisor starts it again.

The process connects to the hub and verifies its certificate before it reads a byte of a task.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import socket
import ssl
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.sdk.errors import UnpicklableError
from phalanx.sdk.gang.calls import SPOOLED, load_call
from phalanx.sdk.gang.certificates import HUB_NAME, WORKER, context_of
from phalanx.sdk.gang.settings import MemberSettings, resolve
from phalanx.sdk.gang.wire import HEADER_SIZE, KEEP_ALIVE, PIECE, Frame, FrameKind, decode, document

#: Exit code of a worker whose hub is gone for longer than the client's timeout.
HUB_GONE = 100
_RETRY = 0.2
_CONNECT = 10.0


def main() -> int:
    """Serve tasks until the hub is gone for longer than the client's timeout."""
    settings = MemberSettings.of_environment(os.environ)
    context = context_of(Path(settings.keys), WORKER)
    deadline = time.monotonic() + settings.client_timeout
    while time.monotonic() < deadline:
        try:
            address = resolve(settings.hub, os.environ)
            plain = socket.create_connection((address, settings.port), _CONNECT)
        except OSError:
            time.sleep(_RETRY)
            continue
        with plain:
            for level, option, value in KEEP_ALIVE:
                plain.setsockopt(level, option, value)
            try:
                connection = context.wrap_socket(plain, server_hostname=HUB_NAME)
            except (ssl.SSLError, OSError) as error:
                print(f"the hub at {address} is refused: {error}", file=sys.stderr, flush=True)
                time.sleep(_RETRY)
                continue
            connection.settimeout(None)
            _serve(connection, settings)
        deadline = time.monotonic() + settings.client_timeout
        time.sleep(_RETRY)
    return HUB_GONE


def _serve(connection: ssl.SSLSocket, settings: MemberSettings) -> None:
    """Serve tasks until the connection ends."""
    facts = {"rank": settings.rank, "address": settings.address, "python": list(sys.version_info[:2])}
    stream = _Stream(connection)
    try:
        with connection:
            connection.sendall(document(FrameKind.HELLO, facts))
            while (frame := stream.next_task()) is not None:
                with tempfile.SpooledTemporaryFile(SPOOLED) as payload:
                    stream.copy_payload(frame.size, payload)
                    began = time.perf_counter()
                    with _call(frame, payload) as (kind, result):
                        _send(connection, frame, kind, result, time.perf_counter() - began)
    except (OSError, EOFError, ssl.SSLError) as error:
        print(f"the connection to the hub is lost: {error}", file=sys.stderr, flush=True)


class _Stream:
    """Received bytes. Before each task all frames that have arrived are searched for recalls."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._recalled: set[int] = set()

    def next_task(self) -> Frame | None:
        """Wait for the next task that is not recalled, and return its header; None at the end of the stream."""
        while True:
            self._fill_without_waiting()
            while len(self._buffer) < HEADER_SIZE:
                if not self._fill():
                    return None
            self._note_recalls()
            frame = decode(bytes(self._buffer[:HEADER_SIZE]))
            del self._buffer[:HEADER_SIZE]
            if frame.kind is FrameKind.RECALL:
                self._recalled.discard(frame.task)
            elif frame.kind is FrameKind.TASK:
                if frame.task not in self._recalled:
                    return frame
                self.copy_payload(frame.size, None)

    def copy_payload(self, size: int, file: Any) -> None:
        """Copy the payload of a frame to a file; None drops it."""
        while size:
            if not self._buffer and not self._fill():
                raise EOFError("the hub closed the connection")
            piece = self._buffer[:size]
            del self._buffer[:size]
            size -= len(piece)
            if file is not None:
                file.write(piece)
        if file is not None:
            file.seek(0)

    def _fill(self) -> bool:
        piece = self._connection.recv(PIECE)
        self._buffer += piece
        return bool(piece)

    def _fill_without_waiting(self) -> None:
        while len(self._buffer) < PIECE:
            if not self._connection.pending() and not select.select([self._connection], [], [], 0)[0]:
                return
            self._connection.settimeout(0.0)
            try:
                if not self._fill():
                    return
            except (ssl.SSLWantReadError, BlockingIOError):
                return
            finally:
                self._connection.settimeout(None)

    def _note_recalls(self) -> None:
        place = 0
        while place + HEADER_SIZE <= len(self._buffer):
            frame = decode(bytes(self._buffer[place : place + HEADER_SIZE]))
            place += HEADER_SIZE + frame.size
            if frame.kind is FrameKind.RECALL:
                self._recalled.add(frame.task)


class _call:  # noqa: N801 - used like a function
    """Context with the outcome of a task: its kind and its pickled content as a file."""

    def __init__(self, frame: Frame, payload: Any) -> None:
        self._frame = frame
        self._payload = payload
        self._result = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> tuple[FrameKind, Any]:
        kind = FrameKind.VALUE
        if self._frame.timeout:
            # It ends the process even if the function never releases the interpreter lock.
            faulthandler.dump_traceback_later(self._frame.timeout, exit=True)
        try:
            _dump(load_call(self._payload)(), self._result)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a function are outcomes too.
            kind = FrameKind.ERROR
            self._result.seek(0)
            self._result.truncate()
            _dump_error(error, self._result)
        finally:
            if self._frame.timeout:
                faulthandler.cancel_dump_traceback_later()
        return kind, self._result

    def __exit__(self, *failure: object) -> None:
        self._result.close()


def _dump(value: object, file: Any) -> None:
    """Pickle the result of a function. Raises UnpicklableError."""
    import cloudpickle

    try:
        cloudpickle.dump(value, file)
    except Exception as error:
        raise UnpicklableError(
            f"the result of type {type(value).__qualname__} cannot be sent back: {type(error).__name__}: {error}",
            field="result",
        ) from error


def _dump_error(error: BaseException, file: Any) -> None:
    """Pickle an exception and its traceback; an exception that cannot be pickled is replaced by its text."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    try:
        content = cloudpickle.dumps((error, text))
        pickle.loads(content)
    except Exception:
        content = cloudpickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    file.write(content)


def _send(connection: ssl.SSLSocket, task: Frame, kind: FrameKind, result: BinaryIO, seconds: float) -> None:
    size = result.seek(0, os.SEEK_END)
    result.seek(0)
    head = Frame(kind, task.task, task.rank, seconds, size).encode()
    piece = result.read(PIECE)
    connection.sendall(head + piece)
    while piece := result.read(PIECE):
        connection.sendall(piece)


if __name__ == "__main__":
    sys.exit(main())
