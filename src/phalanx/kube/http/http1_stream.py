"""One HTTP/1.1 connection for one streamed response, such as a watch: its body is read in pieces."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator

from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.deadlines import Deadlines
from phalanx.kube.http.http1_connection import HEAD_LIMIT, GarbledAnswer, Http1Connection
from phalanx.model.text.decoding import quoted

__all__ = ["Http1Stream"]

# Bytes that are received ahead of the reader before the connection is paused.
_AHEAD = 2**20


class Http1Stream(Http1Connection):
    """Connection whose ``exchange`` returns with the head of a 2xx response; ``pieces`` yields its body.

    A response with another status is returned as a whole.
    """

    __slots__ = (
        "_ahead",
        "_arrival",
        "_ended",
        "_failure",
        "_flows",
        "_heard",
        "_left",
        "_line",
        "_pieces",
        "_timer",
        "_unpacker",
    )

    def __init__(self, answer_limit: int = 0, deadlines: Deadlines | None = None) -> None:
        super().__init__(answer_limit, deadlines)
        self._flows = False
        self._ended = False
        self._failure: ConnectionLost | None = None
        self._pieces: list[bytes] = []
        self._ahead = 0
        #: Bytes since the last line end.
        self._line = 0
        #: Bytes of a body with a length that have not arrived yet.
        self._left = 0
        self._arrival: asyncio.Future[None] | None = None
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unpacker: zlib._Decompress | None = None

    async def pieces(self, silence: float) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the body as they arrive, until its end. Raise ConnectionLost after ``silence`` seconds
        without a byte, or if the body is incomplete."""
        while True:
            if self._pieces:
                piece = b"".join(self._pieces)
                self._pieces.clear()
                if self._ahead > _AHEAD and self.transport is not None:
                    self.transport.resume_reading()
                self._ahead = 0
                yield piece
            elif self._failure is not None:
                raise self._failure
            elif self._ended:
                return
            else:
                await self._wait(silence)

    async def _wait(self, silence: float) -> None:
        """Wait for the next part of the body, its end, or a failure."""
        loop = asyncio.get_running_loop()
        arrival = self._arrival = loop.create_future()
        self._timer = loop.call_at(self._heard + silence, self._look, silence)
        try:
            await arrival
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._arrival = None

    def _look(self, silence: float) -> None:
        """Break the stream if it is silent for too long. Bytes of an incomplete chunk wake no reader, but count."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._heard + silence:
            self._break(ConnectionLost("no answer in time"))
        else:
            self._timer = loop.call_at(self._heard + silence, self._look, silence)

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._ended or self._failure is not None:
            return
        self._heard = asyncio.get_running_loop().time()
        if not self._flows:
            super().data_received(data)
            return
        try:
            self._extract(data)
        except (GarbledAnswer, ValueError, zlib.error) as error:
            self._break(ConnectionLost(f"the answer is garbled: {error}"))

    def eof_received(self) -> None:
        if self._flows and self._until_end:
            self._end()
        else:
            super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._flows:
            self._break(ConnectionLost("the connection ended in the middle of the answer"))

    # -- parsing -----------------------------------------------------------------------------------------

    def _parse_single_piece(self, data: bytes) -> bool:
        return False

    def _parse(self) -> None:
        if not self._find_head():
            return
        if not 200 <= self._status < 300:
            super()._parse()
            return
        self._flows, self._left, body = True, self._length, bytes(self._buffer)
        self._buffer.clear()
        if self._encoding not in ("", "identity"):
            if self._encoding not in ("gzip", "deflate"):
                raise GarbledAnswer(f"content encoding {quoted(self._encoding)}")
            self._unpacker = zlib.decompressobj(32 + zlib.MAX_WBITS)
        self._complete(b"")
        self._extract(body)

    def _extract(self, data: bytes) -> None:
        """Pass the part of the body in received bytes to the reader."""
        if self._chunked:
            self._buffer += data
            ended = self._take_chunks()
            if self._limit and len(self._buffer) > self._limit + HEAD_LIMIT:
                raise GarbledAnswer(f"larger than {self._limit} bytes")
            body = b"".join(self._parts)
            self._parts.clear()
        elif self._until_end:
            body, ended = data, False
        else:
            body = data[: self._left]
            self._left -= len(body)
            ended = not self._left
        if self._unpacker is not None:
            body = self._unpacker.decompress(body)
        if body:
            self._deliver(body)
        if ended:
            self._end()

    def _deliver(self, body: bytes) -> None:
        end = body.rfind(b"\n")
        self._line = self._line + len(body) if end < 0 else len(body) - end - 1
        if self._limit and self._line > self._limit:
            self._break(ConnectionLost(f"a line of more than {self._limit} bytes"))
            return
        self._pieces.append(body)
        before, self._ahead = self._ahead, self._ahead + len(body)
        if before <= _AHEAD < self._ahead and self.transport is not None:
            self.transport.pause_reading()
        self._wake()

    def _end(self) -> None:
        self._ended, self.usable = True, False
        self._wake()

    def _break(self, failure: ConnectionLost) -> None:
        if not self._ended and self._failure is None:
            self._failure = failure
            self.abort()
            self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
