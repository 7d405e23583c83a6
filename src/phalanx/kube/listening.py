"""HTTP server of a process on an address of its command line."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from phalanx.kube.causes import cause_text
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

_LAST_PORT = 65535


class ListenError(Exception):
    """Error for an address on which the process cannot listen."""


@asynccontextmanager
async def listening(
    address: str, routes: Iterable[RouteDef], *, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve the routes on HOST:PORT (--metrics-address) inside the context; yield the port. Raises ListenError."""
    # A process without an address starts without the import.
    from aiohttp import web

    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ListenError(f"--metrics-address {quoted(address)} is not HOST:PORT")
    if int(port) > _LAST_PORT:  # uvloop would listen on another port
        raise ListenError(f"cannot serve metrics on {address}: port must be 0-{_LAST_PORT}.")
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        try:
            site = web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port), ssl_context=context)
            await site.start()
        except (OSError, ValueError) as error:
            raise ListenError(f"cannot serve metrics on {address}: {cause_text(error)}") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
