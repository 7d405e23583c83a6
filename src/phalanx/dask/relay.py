"""Relay of bytes from a fixed local port to the scheduler's pod, whose address changes when it restarts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from phalanx.sdk.errors import PhalanxError

_PIECE = 64 * 1024
# Time for which a new connection waits for a scheduler that restarts; distributed's own limit of a connection.
_RESTART_SECONDS = 30.0
_RETRY = 0.2


class Relay:
    """Listener on a loopback port. `reach` yields host and port of the present scheduler.

    The bytes are TLS between Dask's client and scheduler; the relay can neither read nor change them.
    """

    def __init__(self, reach: Callable[[], AbstractAsyncContextManager[tuple[str, int]]]) -> None:
        self._reach = reach
        self._way = contextlib.AsyncExitStack()
        self._place: tuple[str, int] | None = None
        self._lock = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        #: Cause if the scheduler cannot be reached any more.
        self.failure: PhalanxError | None = None

    async def start(self) -> str:
        """Listen, and return the address for Dask."""
        await self._find()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"tls://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        # The handlers end when their streams do; asyncio would report a cancelled handler as an error.
        for writer in self._writers:
            writer.close()
        await self._way.aclose()

    async def _find(self) -> tuple[str, int]:
        async with self._lock:
            if self._place is None:
                await self._way.aclose()
                self._way = contextlib.AsyncExitStack()
                self._place = await self._way.enter_async_context(self._reach())
            return self._place

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if greeting := await reader.read(_PIECE):
                there, back = await self._open(greeting, writer)
                try:
                    await asyncio.gather(_copy(reader, back, writer), _copy(there, writer, back))
                finally:
                    self._writers.discard(back)
        except PhalanxError as error:
            self.failure = error
        except OSError:
            pass  # distributed reports the closed connection
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _open(
        self, greeting: bytes, client: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect a client to the scheduler, which has answered the client's greeting (a TLS client speaks first).

        The client's connection stays open while the scheduler restarts: for distributed, its end during a handshake
        is a fatal error. Raises OSError if no scheduler answers within the time of a restart.
        """
        deadline = time.monotonic() + _RESTART_SECONDS
        while not client.is_closing() and time.monotonic() < deadline:
            place = await self._find()
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection(*place)
                self._writers.add(back)
                back.write(greeting)
                # A scheduler that ends, and kubectl without its pod, accept a connection and close it.
                if answer := await there.read(_PIECE):
                    client.write(answer)
                    return there, back
                self._writers.discard(back)
                back.close()
            if self._place == place:
                self._place = None
            await asyncio.sleep(_RETRY)
        raise ConnectionError("no scheduler answers")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection; its end closes both."""
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # a reset ends the connection like its regular end
    finally:
        writer.close()
        other.close()
