"""Frames between client, hub and workers: a header, then a payload that is copied in pieces.

The hub relays payloads of tasks and results without unpickling them, and buffers at most one piece of a large one.
"""

from __future__ import annotations

import asyncio
import enum
import json
import socket
import struct
from typing import Any, NamedTuple

#: Bytes of a payload that are in memory at a time.
PIECE = 256 * 1024
#: Payloads up to this size are sent with their header and can wait in the hub's queue.
INLINE = 64 * 1024
#: Socket options of every connection: a lost peer is noticed within 30 s.
KEEP_ALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        # (macOS has other names.)
        for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
_DOCUMENT_LIMIT = 1024 * 1024
# kind, identifier of the task, rank (-1: any), seconds (of a task: until it times out, 0 for never; of a result: of
# the call), bytes of the payload.
_HEADER = struct.Struct(">BqidQ")


class FrameKind(enum.IntEnum):
    """Kind of a frame; the payload of the kinds below TASK is a JSON document."""

    #: Role, Python version, rank and address of a peer: the first frame of a connection.
    HELLO = 1
    #: Answer of the hub to the client, with the tasks that it knows.
    WELCOME = 2
    #: Addresses of the connected workers by rank, to the client.
    WORKERS = 3
    #: The number of further tasks that the client can send, in the field of the rank.
    WANT = 4
    #: A task whose worker is lost; the document names the worker.
    LOST = 5
    #: A task that did not end within its timeout.
    TIMED_OUT = 6
    #: The end of the gang, from the client.
    STOP = 7
    #: A task that its worker must skip, because another worker executes it.
    RECALL = 8
    TASK = 16
    #: The pickled value of a task.
    VALUE = 17
    #: The pickled exception of a task, with its traceback as a text.
    ERROR = 18


class WireError(Exception):
    """Frame that no peer of this version sends."""


class Frame(NamedTuple):
    """Header of a frame."""

    kind: FrameKind
    task: int = 0
    rank: int = -1
    timeout: float = 0.0
    size: int = 0

    def encode(self) -> bytes:
        return _HEADER.pack(self.kind, self.task, self.rank, self.timeout, self.size)


HEADER_SIZE = _HEADER.size


def decode(header: bytes) -> Frame:
    """Decode a header. Raises WireError."""
    kind, task, rank, timeout, size = _HEADER.unpack(header)
    try:
        return Frame(FrameKind(kind), task, rank, timeout, size)
    except ValueError as error:
        raise WireError(f"unknown kind {kind} of a frame") from error


def document(kind: FrameKind, content: dict[str, Any], task: int = 0) -> bytes:
    """Return a frame with a JSON document."""
    payload = json.dumps(content).encode()
    return Frame(kind, task, size=len(payload)).encode() + payload


def parse(payload: bytes) -> dict[str, Any]:
    """Return the document of a payload. Raises WireError."""
    try:
        content = json.loads(payload)
    except ValueError as error:
        raise WireError(f"invalid document: {error}") from error
    if not isinstance(content, dict):
        raise WireError("a document is not an object")
    return content


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Read a header. Raises WireError, and asyncio.IncompleteReadError at the end of the stream."""
    return decode(await reader.readexactly(HEADER_SIZE))


async def read_document(reader: asyncio.StreamReader, frame: Frame) -> dict[str, Any]:
    """Read the document of a frame. Raises WireError if it is large or invalid."""
    if frame.size > _DOCUMENT_LIMIT:
        raise WireError(f"a document of {frame.size} bytes")
    return parse(await reader.readexactly(frame.size))


async def copy_payload(reader: asyncio.StreamReader, size: int, writer: asyncio.StreamWriter | None) -> None:
    """Copy a payload in pieces, no faster than the receiver reads; without a writer read and drop it."""
    while size:
        piece = await reader.read(min(size, PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        if writer is not None:
            writer.write(piece)
            await writer.drain()
