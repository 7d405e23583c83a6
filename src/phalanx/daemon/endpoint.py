"""HTTP endpoint of the scheduler: probes, metrics for Prometheus, and inspection for authorized users."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from phalanx.kube.causes import cause_text
from phalanx.kube.listening import ListenError, listening

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

#: Condition of a process that is stopping.
STOPPING = "stopping"

# Seconds between two reads of the certificate; files are replaced long before they expire.
_CERTIFICATE_PERIOD = 60.0


class EndpointError(Exception):
    """Error for an unusable address or certificate of the endpoint."""


class EndpointOptions(msgspec.Struct, frozen=True):
    """Options of the scheduler's HTTP endpoint.

    `address` is HOST:PORT, "" for no endpoint. `certificate` and `key` are file names and switch TLS on. With
    `guarded` also `/metrics` needs the right to get that path from the API server. `accounts` is the maximum number
    of accounts with series of their own.
    """

    address: str = ""
    certificate: str = ""
    key: str = ""
    guarded: bool = False
    accounts: int = 500


class Observed(Protocol):
    """State of the scheduler process as its HTTP endpoint shows it."""

    def condition(self) -> str:
        """Return the readiness of the process in one word: "" before it is ready, STOPPING at its end.

        A standby is ready too.
        """
        ...

    def checks(self) -> Mapping[str, bool]:
        """Return the named checks that the readiness probe shows besides the condition."""
        ...

    def counted(self) -> Iterable[str]:
        """Return the metric lines that are computed per scrape."""
        ...

    async def counted_apart(self) -> str:
        """Return the metric lines that are too many to compute in the event loop."""
        ...

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Return the refusal of the API server for the path of a request; None if the user is authorized."""
        ...

    async def inspect(self, request: web.Request) -> web.Response:
        """Answer /configz and /debug/… for authorized users."""
        ...

    async def gangs(self, request: web.Request) -> web.Response:
        """Answer /v1/gangs for users with the right to list the pods of the requested namespace."""
        ...


@asynccontextmanager
async def serving(
    options: EndpointOptions, observed: Observed, exposition: Callable[[], bytes]
) -> AsyncIterator[int]:
    """Serve the HTTP endpoint inside the context, on the port that is yielded. Raises EndpointError."""
    # A process without this endpoint starts without the import.
    from aiohttp import web

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        word = observed.condition()
        role = "leader" if observed.checks().get("leader") else "standby"
        text = f"{word or 'not synced'}\nrole: {role}\n"
        if "verbose" in request.query:
            marks = (f"[{'+' if good else '-'}]{name}" for name, good in observed.checks().items())
            text = "\n".join([*marks, text])
        return web.Response(text=text, status=503 if word in ("", STOPPING) else 200)

    async def metrics(request: web.Request) -> web.Response:
        if options.guarded and (refusal := await observed.refusal(request)) is not None:
            return refusal
        body = exposition() + (await observed.counted_apart()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    routes = [
        web.get("/healthz", alive),
        web.get("/livez", alive),
        web.get("/readyz", ready),
        web.get("/metrics", metrics),
        web.get("/configz", observed.inspect),
        web.get("/debug/{what}", observed.inspect),
        web.get("/v1/gangs", observed.gangs),
    ]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if options.certificate else None
    try:
        if context is not None:
            context.load_cert_chain(options.certificate, options.key, _no_password)
    except (OSError, ValueError) as error:
        files = f"the certificate {options.certificate} with the key {options.key}"
        raise EndpointError(f"cannot serve metrics with {files}: {cause_text(error)}") from error
    async with AsyncExitStack() as stack:
        try:
            port = await stack.enter_async_context(listening(options.address, routes, context=context))
        except ListenError as error:
            raise EndpointError(str(error)) from error
        if context is not None:
            renewal = asyncio.create_task(_reload_certificate(context, options))
            stack.callback(renewal.cancel)
        log.info("health and metrics on %s", options.address)
        yield port


def _no_password() -> str:
    # Without this callback OpenSSL prompts on the terminal, and the process hangs.
    raise ValueError("the key is encrypted; use an unencrypted one")


async def _reload_certificate(context: ssl.SSLContext, options: EndpointOptions) -> None:
    """Reload the endpoint's certificate files periodically, for new connections."""
    while True:
        await asyncio.sleep(_CERTIFICATE_PERIOD)
        try:
            context.load_cert_chain(options.certificate, options.key, _no_password)
        except (OSError, ValueError) as error:
            log.warning("%s was not reloaded: %s", options.certificate, error)
