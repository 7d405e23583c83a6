"""The HTTP endpoint: health for probes, metrics for Prometheus, a look inside for who may."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

log = logging.getLogger(__name__)

#: The condition of a process that ends.
STOPPING = "stopping"

# How often (seconds) the certificate is read again: files are replaced long before they expire.
_CERTIFICATE_PERIOD = 60.0


class EndpointError(Exception):
    """The address or the certificate cannot be used."""


class EndpointOptions(msgspec.Struct, frozen=True):
    """`address` is HOST:PORT, "" for none. With files for `certificate` and `key` it speaks TLS. `guarded`: metrics
    too are only for whom the API server lets get that path. So many `accounts` have series of their own."""

    address: str = ""
    certificate: str = ""
    key: str = ""
    guarded: bool = False
    accounts: int = 500


class Observed(Protocol):
    """What the probes look at."""

    def condition(self) -> str:
        """One word for a process that does its duty (a standby waits for its turn, and that is it), "" before, and
        STOPPING at the end."""
        ...

    def checks(self) -> Mapping[str, bool]:
        """What an operator wants to know beside that, and whether it is so."""
        ...

    def counted(self) -> Iterable[str]:
        """Lines of the exposition that are counted when somebody asks."""
        ...

    async def counted_apart(self) -> str:
        """The same of what there may be very much of."""
        ...

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Why somebody may not get a path, by the word of the API server; None where he may."""
        ...

    async def inspect(self, request: web.Request) -> web.Response:
        """Answers /configz and /debug/…, to whom the API server allows it."""
        ...

    async def gangs(self, request: web.Request) -> web.Response:
        """Answers /v1/gangs, to those who may list the pods of the namespace that they ask for."""
        ...


@asynccontextmanager
async def serving(
    options: EndpointOptions, observed: Observed, exposition: Callable[[], bytes]
) -> AsyncIterator[int]:
    """Serve meanwhile, on the port that is yielded. Raises EndpointError.

    Liveness does not depend on the API server: a scheduler that waits for it must not be restarted for that.
    """
    host, _, port = options.address.rpartition(":")
    if not port.isdecimal():
        raise EndpointError(f"--metrics-address {options.address!r} is not HOST:PORT")

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        word = observed.condition()
        text = f"{word or 'not synced'}\n"
        if "verbose" in request.query:
            marks = (f"[{'+' if good else '-'}]{name}" for name, good in observed.checks().items())
            text = "\n".join([*marks, text])
        return web.Response(text=text, status=503 if word in ("", STOPPING) else 200)

    async def metrics(request: web.Request) -> web.Response:
        if options.guarded and (refusal := await observed.refusal(request)) is not None:
            return refusal
        body = exposition() + (await observed.counted_apart()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", alive),
            web.get("/livez", alive),
            web.get("/readyz", ready),
            web.get("/metrics", metrics),
            web.get("/configz", observed.inspect),
            web.get("/debug/{what}", observed.inspect),
            web.get("/v1/gangs", observed.gangs),
        ]
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if options.certificate else None
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    renewal: asyncio.Task[None] | None = None
    try:
        try:
            if context is not None:
                context.load_cert_chain(options.certificate, options.key, _no_password)
        except (OSError, ValueError) as error:
            what = f"the certificate {options.certificate} with the key {options.key}"
            raise EndpointError(f"cannot serve metrics with {what}: {error}") from error
        try:
            address = host.strip("[]") or "127.0.0.1"
            await web.TCPSite(runner, address, int(port), ssl_context=context).start()
        except (OSError, OverflowError, ValueError) as error:
            raise EndpointError(f"cannot serve metrics on {options.address}: {error}") from error
        if context is not None:
            renewal = asyncio.create_task(_reload_certificate(context, options))
        log.info("health and metrics on %s", options.address)
        yield int(runner.addresses[0][1])
    finally:
        if renewal is not None:
            renewal.cancel()
        await runner.cleanup()


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal, and the process would hang.
    raise ValueError("the key is encrypted; give one that is not")


async def _reload_certificate(context: ssl.SSLContext, options: EndpointOptions) -> None:
    """New connections get the certificate that the files hold now."""
    while True:
        await asyncio.sleep(_CERTIFICATE_PERIOD)
        try:
            context.load_cert_chain(options.certificate, options.key, _no_password)
        except (OSError, ValueError) as error:
            log.warning("%s is not read again: %s", options.certificate, error)
