"""Server of the aggregated API: its address, its certificates, and their registration in the APIService."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from phalanx.dashboard.access import Login
from phalanx.dashboard.aggregated.front_proxy import FrontProxyError, ProxyTrust, read_front_proxy
from phalanx.dashboard.aggregated.routes import application
from phalanx.dashboard.commands.answers import CommandAnswers
from phalanx.dashboard.limits import RateLimits
from phalanx.kube.auth.certificate_secret import CertificateSecret
from phalanx.kube.causes import cause_text
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.reports.aggregated_names import API_SERVICE, API_SERVICES, CERTIFICATES, CONFIG_MAP, SERVICE

log = logging.getLogger(__name__)

#: Seconds between reads of the front proxy's configuration: a rotated authority is trusted after at most this time.
REFRESH_SECONDS = 10.0
# Reads of the configuration for each check of the Secret and of the APIService.
_CHECKED_EVERY = 6
_SHUTDOWN_SECONDS = 2.0
# Each group of a user is a header.
_MOST_HEADERS = 2048


class AggregatedOptions(msgspec.Struct, frozen=True):
    """Options of the aggregated API: the address to listen on, and the Service of the APIService. The Secret with
    the certificates is in the namespace of the Service."""

    host: str
    port: int
    namespace: str = "phalanx-system"
    service: str = SERVICE


class AggregatedAddressError(Exception):
    """Error for an address on which the aggregated API cannot be served."""


@contextlib.asynccontextmanager
async def aggregated_api(
    client: KubeClient,
    options: AggregatedOptions,
    answers: CommandAnswers,
    login: Login,
    is_ready: Callable[[], bool],
    limits: RateLimits,
) -> AsyncIterator[int]:
    """Serve the aggregated API inside the context; yield its port. Raises AggregatedAddressError.

    Connections are accepted once the certificates and the configuration of the front proxy are read: the page is
    served meanwhile.
    """
    trust = ProxyTrust.new()
    app = application(answers, login, trust.request_viewer, is_ready, limits)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        handler_cancellation=True,
        max_headers=_MOST_HEADERS,
    )
    with _bound(options) as listener:
        await runner.setup()
        site = web.SockSite(runner, listener, ssl_context=trust)
        running = asyncio.create_task(_Maintenance(client, options, trust).run(site))
        try:
            yield listener.getsockname()[1]
        finally:
            running.cancel()
            await asyncio.wait([running])
            await runner.cleanup()


class _Maintenance:
    """Reads that keep certificates and trust up to date. A failed read keeps what is in use."""

    def __init__(self, client: KubeClient, options: AggregatedOptions, trust: ProxyTrust) -> None:
        self._client, self._options, self._trust = client, options, trust
        host = f"{options.service}.{options.namespace}.svc"
        names = {host, f"{host}.cluster.local"}
        self._secret = CertificateSecret(client, options.namespace, CERTIFICATES, SERVICE, names, time.time)
        self._problem = ""

    async def run(self, site: web.SockSite) -> None:
        """Serve `site` once its certificates and its trust are read, and refresh them until cancelled."""
        turn, serving = 0, False
        while True:
            try:
                if await self._refresh(checked=turn % _CHECKED_EVERY == 0):
                    turn += 1
                if self._trust.usable and not serving:
                    await site.start()
                    serving = True
                    log.info("aggregated API %s is served", API_SERVICE)
            except Exception:
                # The page and the connections that are trusted now continue.
                log.exception("aggregated API %s: certificates and trust are not refreshed", API_SERVICE)
            await asyncio.sleep(REFRESH_SECONDS)

    async def _refresh(self, *, checked: bool) -> bool:
        """Refresh the trust, with `checked` also Secret and APIService. Return whether nothing failed."""
        try:
            if checked:
                await self._secret.refresh()
            path = CONFIG_MAPS.path("kube-system", CONFIG_MAP)
            self._trust.use(read_front_proxy((await self._client.get(path)).get("data") or {}), self._secret.chain)
            problem = await register(self._client, self._options, self._secret.bundle) if checked else ""
        except (ApiError, ConnectionLost, FrontProxyError, OSError, ValueError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.warning("aggregated API %s: %s; retrying", API_SERVICE, problem)
        self._problem = problem
        return not problem


async def register(client: KubeClient, options: AggregatedOptions, authorities: bytes) -> str:
    """Write the authorities of the serving certificate into the APIService, if they differ. Return why they are not
    written, "" if they are.

    An administrator creates and deletes this object. An object that names another Service is not changed.
    """
    path = API_SERVICES.path(None, API_SERVICE)
    spec: dict[str, Any] = (await client.get(path)).get("spec") or {}
    service = spec.get("service") or {}
    if (service.get("namespace"), service.get("name")) != (options.namespace, options.service):
        return f"the APIService names another Service than {options.namespace}/{options.service}"
    bundle = base64.b64encode(authorities).decode()
    if spec.get("caBundle") != bundle:
        await client.patch(path, {"spec": {"caBundle": bundle}}, PatchType.MERGE)
        log.info("caBundle of APIService %s written", API_SERVICE)
    return ""


@contextlib.contextmanager
def _bound(options: AggregatedOptions) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((options.host, options.port))
        except (OSError, OverflowError) as error:
            place = f"{options.host}:{options.port}"
            raise AggregatedAddressError(f"cannot serve on {place}: {cause_text(error)}") from error
        yield listener
