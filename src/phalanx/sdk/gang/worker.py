"""Worker of a gang: a process that calls one function after the other. Its supervisor starts it again.

The process connects to the hub and verifies its certificate before it reads a byte of a task.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import ssl
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.sdk.gang.certificates import HUB_NAME, WORKER, context_of
from phalanx.sdk.gang.settings import MemberSettings, resolve
from phalanx.sdk.gang.wire import HEADER_SIZE, KEEP_ALIVE, PIECE, Frame, FrameKind, decode, document

#: Exit code of a worker whose hub is gone for longer than the client's timeout.
HUB_GONE = 100
_RETRY = 0.2
_CONNECT = 10.0
# Payloads above this size are in a file instead of memory.
_SPOOLED = 16 * 1024 * 1024


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
    try:
        with connection, connection.makefile("rb", buffering=PIECE) as stream:
            connection.sendall(document(FrameKind.HELLO, facts))
            while header := stream.read(HEADER_SIZE):
                frame = decode(header)
                with tempfile.SpooledTemporaryFile(_SPOOLED) as payload:
                    _receive(stream, frame.size, payload)
                    with _call(frame, payload) as (kind, result):
                        _send(connection, frame, kind, result)
    except (OSError, EOFError, ssl.SSLError) as error:
        print(f"the connection to the hub is lost: {error}", file=sys.stderr, flush=True)


def _receive(stream: Any, size: int, payload: Any) -> None:
    while size:
        piece = stream.read(min(size, PIECE))
        if not piece:
            raise EOFError("the hub closed the connection")
        payload.write(piece)
        size -= len(piece)
    payload.seek(0)


class _call:  # noqa: N801 - used like a function
    """Context with the outcome of a task: its kind and its pickled content as a file."""

    def __init__(self, frame: Frame, payload: Any) -> None:
        self._frame = frame
        self._payload = payload
        self._result = tempfile.SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> tuple[FrameKind, Any]:
        kind = FrameKind.VALUE
        if self._frame.timeout:
            # It ends the process even if the function never releases the interpreter lock.
            faulthandler.dump_traceback_later(self._frame.timeout, exit=True)
        try:
            function, arguments, keywords = pickle.load(self._payload)
            value = function(*arguments, **keywords)
            _dump(value, self._result)
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
    import cloudpickle

    cloudpickle.dump(value, file)


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


def _send(connection: ssl.SSLSocket, task: Frame, kind: FrameKind, result: BinaryIO) -> None:
    size = result.seek(0, os.SEEK_END)
    result.seek(0)
    head = Frame(kind, task.task, task.rank, size=size).encode()
    piece = result.read(PIECE)
    connection.sendall(head + piece)
    while piece := result.read(PIECE):
        connection.sendall(piece)


if __name__ == "__main__":
    sys.exit(main())
