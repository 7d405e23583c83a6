"""HTTP server of the page: host check, rate limits, security headers and static files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mimetypes
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from phalanx.dashboard.access import Login, TokenLogin
from phalanx.dashboard.accounts import Accounts
from phalanx.dashboard.aggregated.server import AggregatedAddressError, AggregatedOptions, aggregated_api
from phalanx.dashboard.api import Api, refusals
from phalanx.dashboard.commands.answers import CommandAnswers
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.orders import Orders
from phalanx.dashboard.rehearsal.process import RehearsalProcess
from phalanx.dashboard.timeline import GangHistory
from phalanx.dashboard.watch import ClusterWatch, WatchOptions
from phalanx.dashboard.what_if import WhatIfQuestions
from phalanx.kube.causes import cause_text
from phalanx.kube.client import KubeClient
from phalanx.reports.scheduler_policy import SchedulerPolicy

if TYPE_CHECKING:
    from phalanx.accounting.database import Database

log = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
_LARGEST_BODY = 512 * 1024
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_SHUTDOWN_SECONDS = 2.0


class ServeError(Exception):
    """Error for a configured address on which the dashboard cannot listen."""


class ServeOptions(msgspec.Struct, frozen=True):
    """Options of the dashboard's web server.

    `hosts` are the accepted host names (without ports) beside localhost and the address itself; "*" for any. A
    `certificate` and `key` enable HTTPS. `per_address` and `in_all` limit the requests per second from one address
    and from all addresses. `writes` enables commands to gangs (hold, release, cancel) with the viewer's own rights,
    at most `orders_per_viewer` per second. `aggregated` has the options of the aggregated API, None without it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    per_address: float = 100.0
    in_all: float = 500.0
    writes: bool = False
    orders_per_viewer: float = 2.0
    aggregated: AggregatedOptions | None = None


class Dashboard:
    """Running dashboard at `url`. `aggregated_port` is the port of the aggregated API, 0 without it. `answers` has
    the answers to commands.

    `outdated` returns when the scheduler's policy has changed; the dashboard must then be restarted.
    """

    def __init__(
        self,
        watch: ClusterWatch,
        url: str,
        outdated: Callable[[], Coroutine[Any, Any, None]],
        answers: CommandAnswers,
        aggregated_port: int,
    ) -> None:
        self.watch = watch
        self.answers = answers
        self.url = url
        self.outdated = outdated
        self.aggregated_port = aggregated_port


@contextlib.asynccontextmanager
async def dashboard(
    client: KubeClient,
    watch_options: WatchOptions,
    options: ServeOptions,
    login: Login,
    database: Database | None = None,
) -> AsyncIterator[tuple[Dashboard, asyncio.Task[None]]]:
    """Serve the page inside the context. The yielded task ends only by failing. `database` is the accounting
    database, if any.

    Raises ServeError, PolicyError.
    """
    source, schedulers = SchedulerPolicy(watch_options.config), watch_options.schedulers
    policy = await source.read(client, watch_options.lease_namespace, schedulers)
    if policy.warning:
        log.warning("%s", policy.warning)
    watch_options = msgspec.structs.replace(watch_options, schedulers=policy.scheduler_names)
    async with RehearsalProcess.running(policy.text, policy.scheduler_names) as rehearsal:
        watch = ClusterWatch(client, watch_options, policy.policy, rehearsal)
        questions = WhatIfQuestions(client, watch_options, watch.policy)
        accounts = Accounts(database)
        orders = Orders(client, enabled=options.writes, per_viewer=options.orders_per_viewer)
        api = Api(watch, login, GangHistory(client, watch), questions, accounts, orders, client)
        async with _serving(api, options, watch) as url, _aggregated(client, options, api, watch, login) as port:
            following = asyncio.create_task(watch.run())
            try:
                place = watch_options.lease_namespace
                outdated = partial(source.until_another, policy, client, place, schedulers)
                yield Dashboard(watch, url, outdated, api.commands, port), following
            finally:
                following.cancel()
                await asyncio.wait([following])
                watch.news.close()
                accounts.close()
                await orders.close()


@contextlib.asynccontextmanager
async def _aggregated(
    client: KubeClient, options: ServeOptions, api: Api, watch: ClusterWatch, login: Login
) -> AsyncIterator[int]:
    """Serve the aggregated API inside the context if the options have it; yield its port, 0 without it. Raises
    ServeError."""
    if options.aggregated is None:
        yield 0
        return
    if not isinstance(login, TokenLogin):
        # The rights of viewers are reviewed by this login only.
        raise ServeError("the aggregated API needs --login token")
    limits, ready = RateLimits(options.per_address, options.in_all), watch.ready.is_set
    try:
        async with aggregated_api(client, options.aggregated, api.commands, login, ready, limits) as port:
            yield port
    except AggregatedAddressError as error:
        raise ServeError(str(error)) from error


@contextlib.asynccontextmanager
async def _serving(api: Api, options: ServeOptions, watch: ClusterWatch) -> AsyncIterator[str]:
    async def alive(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        good = watch.ready.is_set()
        return web.Response(text="ready\n" if good else "not synced\n", status=200 if good else 503)

    limits = RateLimits(options.per_address, options.in_all)
    app = web.Application(middlewares=[_guard(options, limits), refusals], client_max_size=_LARGEST_BODY)
    app.add_routes([*api.routes(), web.get("/healthz", alive), web.get("/readyz", ready), *_static_routes()])
    app.on_response_prepare.append(_add_headers)
    context = None
    try:
        if options.certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(options.certificate, options.key)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, options.host, options.port, ssl_context=context)
            await site.start()
            port = runner.addresses[0][1]
            host = f"[{options.host}]" if ":" in options.host else options.host
            shown = "127.0.0.1" if host in ("0.0.0.0", "[::]") else host
            yield f"{'https' if context else 'http'}://{shown}:{port}"
        finally:
            await runner.cleanup()
    except (OSError, OverflowError) as error:
        raise ServeError(f"cannot serve on {options.host}:{options.port}: {cause_text(error)}") from error


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update({key: value for key, value in HEADERS.items() if key not in response.headers})


def _guard(options: ServeOptions, limits: RateLimits) -> Middleware:
    known = {*_LOCAL, options.host, f"[{options.host}]", *options.hosts}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in ("/healthz", "/readyz"):
            return await handler(request)
        host = request.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if "*" not in options.hosts and name.lower() not in known:
            # A foreign page can point its own host name to this server (DNS rebinding).
            return _refuse(421, "the dashboard is not served under this name: start it with --allow-host")
        if not limits.allow(request.remote or ""):
            return _refuse(429, "too many requests: try again in a moment", {"Retry-After": "1"})
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _refuse(403, "cross-origin requests are refused")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and request.path.startswith(
            "/api/"
        ):
            return _refuse(403, "cross-origin requests are refused")
        return await handler(request)

    return guard


def _refuse(status: int, why: str, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode({"error": why})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _static_routes() -> list[web.RouteDef]:
    """Return the routes of all static files, read once. Other files are not served."""
    root = resources.files("phalanx.dashboard") / "static"
    routes = []
    for path, file in _files(root, ""):
        body = file.read_bytes()
        kind = "text/javascript" if path.endswith(".js") else mimetypes.guess_type(path)[0] or "text/plain"
        routes.append(web.get(f"/static/{path}", _fixed(body, kind)))
        if path == "index.html":
            routes.append(web.get("/", _fixed(body, kind)))
    return routes


def _fixed(body: bytes, kind: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        charset = "utf-8" if kind.startswith("text/") else None
        return web.Response(body=body, content_type=kind, charset=charset)

    return answer


def _files(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    files: list[tuple[str, Traversable]] = []
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.is_dir():
            files += _files(item, f"{prefix}{item.name}/")
        else:
            files.append((prefix + item.name, item))
    return files
