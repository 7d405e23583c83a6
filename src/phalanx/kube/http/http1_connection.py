"""One HTTP/1.1 connection to an API server: one request at a time, with its whole response.

It supports only the features that API servers need: no pipelining, no upgrade, trailers are dropped.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import cast

from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.deadlines import Deadlines
from phalanx.kube.http.sockets import keep_alive
from phalanx.kube.http.transport import HttpResponse
from phalanx.model.text.decoding import quoted

__all__ = ["HEAD_LIMIT", "GarbledAnswer", "Http1Connection", "StaleConnection"]

HEAD_LIMIT = 65536
_NO_BODY = frozenset({204, 304})
# Fields of a head that matter here.
_FIELD = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-encoding|connection|retry-after):(.*)(?=\r\n)", re.IGNORECASE
)
# Bytes of a chunked body after which complete chunks are extracted although more can follow.
_GATHERED = 8 * 2**20
# Size of a compressed body from which a thread decompresses it.
_LONG = 2**14
# Largest buffer in bytes that is allocated because of a length in the response.
_MAX_PREALLOCATED = 2**26


class StaleConnection(ConnectionLost):
    """Connection that ended without a byte of a response: typical after a long idle time."""


class GarbledAnswer(Exception):  # noqa: N818 - always converted into a ConnectionLost
    """Response that is not valid HTTP, or uses an unsupported feature."""


class Http1Connection(asyncio.Protocol):
    """HTTP/1.1 connection for one ``exchange`` at a time, valid only while ``usable``."""

    __slots__ = (
        "_answer",
        "_buffer",
        "_chunked",
        "_deadlines",
        "_encoding",
        "_head_only",
        "_length",
        "_limit",
        "_parts",
        "_received",
        "_retry_after",
        "_started",
        "_status",
        "_until_end",
        "idle_since",
        "transport",
        "usable",
    )

    def __init__(self, answer_limit: int = 0, deadlines: Deadlines | None = None) -> None:
        self._limit = answer_limit
        self._deadlines = deadlines or Deadlines()
        self._received = 0
        self.transport: asyncio.Transport | None = None
        self.usable = False
        self.idle_since = 0.0
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._buffer = bytearray()
        self._head_only = False
        self._begin()

    def _begin(self) -> None:
        self._started = False
        self._status = 0  # 0: the head is not complete
        self._length = 0
        self._chunked = False
        self._until_end = False
        self._encoding = ""
        self._retry_after: str | None = None
        self._parts: list[bytes] = []
        self._received = 0

    async def exchange(
        self, request: bytes, deadline: float, loop: asyncio.AbstractEventLoop, *, head_only: bool = False
    ) -> HttpResponse:
        """Send a whole request and wait for its response; raise ConnectionLost if there is none until ``deadline``,
        a time of the event ``loop``. To ask for the running loop is a system call in Python 3.11.

        After any exception, cancellation included, the connection is closed, because a late response would
        belong to no request.
        """
        assert self.transport is not None
        answer: asyncio.Future[HttpResponse] = loop.create_future()
        self._answer = answer
        self._head_only = head_only
        self._begin()
        self.transport.write(request)
        self._deadlines.begin(self, deadline, self._expired)
        try:
            response = await answer
            return await self._unpacked(response) if self._encoding else response
        except BaseException:
            self.abort()
            raise
        finally:
            self._deadlines.end(self)
            self._answer = None

    def abort(self) -> None:
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.usable = True
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # no request is open: a late response must not count as the response to the next request
            return
        self._received += len(data)
        try:
            if self._limit and self._received > self._limit + HEAD_LIMIT:
                raise GarbledAnswer(f"larger than {self._limit} bytes")
            if not self._started:
                self._started = True
                if self._parse_single_piece(data):
                    return
            self._buffer += data
            self._parse()
        except (GarbledAnswer, ValueError, zlib.error) as error:
            self._fail(ConnectionLost(f"the answer is garbled: {error}"))

    def eof_received(self) -> None:
        if self._until_end and self._status:
            self.usable = False
            self._complete(bytes(self._buffer))

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        if self._answer is None or self._answer.done():
            return
        text = str(error) if error else "connection closed by the server"
        if self._started:
            self._fail(ConnectionLost(f"{text}, in the middle of the answer"))
        else:
            self._fail(StaleConnection(text))

    # -- parsing -----------------------------------------------------------------------------------------

    def _parse_single_piece(self, data: bytes) -> bool:
        """Parse a whole response that arrived in one piece with its length, which is the usual case. Return False
        otherwise."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._parse_head(data[: end + 2]):
            return False
        if self._chunked or self._until_end or len(data) - end - 4 != self._length:
            self._status = 0
            return False
        self._complete(data[end + 4 :])
        return True

    def _parse(self) -> None:
        buffer = self._buffer
        if not self._find_head():
            return
        if self._chunked:
            # An API server sends each object of a list as one chunk, so many chunks are extracted together.
            early, enough = self._received < HEAD_LIMIT, len(buffer) >= _GATHERED
            if (early or enough or buffer.endswith(b"\r\n\r\n")) and self._take_chunks():
                self._complete(b"".join(self._parts))
        elif not self._until_end and len(buffer) >= self._length:
            body = bytes(buffer[: self._length])
            del buffer[: self._length]
            self._complete(body)

    def _find_head(self) -> bool:
        """Move the head of the final response out of the buffer. Return False if it has not arrived yet."""
        buffer = self._buffer
        while not self._status:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > HEAD_LIMIT:
                    raise GarbledAnswer("no end of the header")
                return False
            self._parse_head(bytes(buffer[: end + 2]))  # False for 1xx: the final response follows
            del buffer[: end + 4]
        return True

    def _parse_head(self, head: bytes) -> bool:
        """Parse status line and headers of a response. Return False for an interim response (1xx)."""
        if not head.startswith(b"HTTP/1."):
            raise GarbledAnswer("not HTTP/1")
        status = int(head[9:12])
        if status < 200:
            return False
        self._status = status
        length = connection = b""
        for name, value in _FIELD.findall(head):
            match name.lower():
                case b"content-length":
                    length = length or value.strip()
                case b"transfer-encoding":
                    self._chunked = self._chunked or value.strip().lower() == b"chunked"
                case b"content-encoding":
                    self._encoding = self._encoding or value.strip().lower().decode("latin-1")
                case b"connection":
                    connection = connection or value.strip().lower()
                case b"retry-after" if status >= 300:
                    self._retry_after = self._retry_after or value.strip().decode("latin-1") or None
        if self._head_only or status in _NO_BODY:
            self._length, self._chunked = 0, False
        elif not self._chunked:
            self._until_end = not length
            self._length = int(length or 0)
            if self._length < 0:
                raise GarbledAnswer("a negative length")
        if connection == b"close" or (connection != b"keep-alive" and head.startswith(b"HTTP/1.0")):
            self.usable = False
        return True

    def _take_chunks(self) -> bool:
        """Move complete chunks of a chunked response out of the buffer. Return True after the last chunk."""
        buffer, at = self._buffer, 0
        whole, parts = memoryview(buffer), list[memoryview]()
        try:
            while True:
                end = buffer.find(b"\r\n", at)
                if end < 0:
                    return False
                size, start = int(buffer[at:end].partition(b";")[0], 16), end + 2
                if size <= 0:
                    if size < 0:
                        raise GarbledAnswer("a negative chunk")
                    # Trailers, if any, end with an empty line; the size's own line end can be its first half.
                    last = buffer.find(b"\r\n\r\n", end)
                    if last < 0:
                        return False
                    at = last + 4
                    return True
                end = start + size
                if len(buffer) < end + 2:
                    return False
                if not buffer.startswith(b"\r\n", end):
                    raise GarbledAnswer("a chunk without its end")
                parts.append(whole[start:end])
                at = end + 2
        finally:
            self._parts.append(b"".join(parts))
            for part in (*parts, whole):
                part.release()  # a bytearray with exported views cannot shrink
            del buffer[:at]

    async def _unpacked(self, response: HttpResponse) -> HttpResponse:
        if self._encoding == "identity" or not response.body:
            return response
        try:
            if self._encoding not in ("gzip", "deflate"):
                raise GarbledAnswer(f"content encoding {quoted(self._encoding)}")
            # zlib releases the GIL, so the event loop continues meanwhile.
            long = len(response.body) >= _LONG
            body = await asyncio.to_thread(self._unpack, response.body) if long else self._unpack(response.body)
        except (GarbledAnswer, zlib.error) as error:
            raise ConnectionLost(f"the answer is garbled: {error}") from error
        return response._replace(body=body)

    def _unpack(self, body: bytes) -> bytes:
        gzip_or_zlib = 32 + zlib.MAX_WBITS  # zlib detects the format by its header
        if not self._limit:
            # The gzip trailer contains the length (modulo 2^32); if it is true, one allocation is enough.
            length = int.from_bytes(body[-4:], "little")
            return zlib.decompress(body, gzip_or_zlib, min(max(length, 1), _MAX_PREALLOCATED))
        unpacking = zlib.decompressobj(gzip_or_zlib)
        unpacked = unpacking.decompress(body, self._limit)
        if unpacking.unconsumed_tail:
            raise GarbledAnswer(f"larger than {self._limit} bytes")
        if not unpacking.eof:
            raise GarbledAnswer("the compressed body has no end")
        return unpacked

    def _complete(self, body: bytes) -> None:
        if self._buffer and not self._until_end:
            self.usable = False  # the server sent more than the announced length
        assert self._answer is not None
        if not self._answer.done():
            self._answer.set_result(HttpResponse(self._status, body, self._retry_after))

    def _expired(self) -> None:
        self._fail(ConnectionLost("no answer in time"))

    def _fail(self, error: ConnectionLost) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()
