"""The webhook process: loads certificates, then serves, then registers itself with the API server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from phalanx.admission.context import MAX_QUEUE_DEPTH, AdmissionContext, ResourceGroup
from phalanx.admission.quota_reservations import QuotaReservationCheck
from phalanx.admission.webhook.cluster_view import AdmissionView
from phalanx.admission.webhook.endpoint import AdmissionMetrics, application, probes
from phalanx.admission.webhook.registration import (
    CERTIFICATES,
    NAME,
    RegistrationOptions,
    WebhookAddress,
    register,
)
from phalanx.admission.webhook.reviewer import AdmissionReviewer, ReviewOptions
from phalanx.dialects.registry import Dialects, installed_dialects
from phalanx.jobs.reservations import LEDGER_NAMESPACE
from phalanx.kube.auth.certificate_secret import CertificateSecret
from phalanx.kube.causes import cause_text
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.path_access import PathAccess
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.text.decoding import quoted

log = logging.getLogger(__name__)

#: Seconds between checks of the Secret and of the registration.
REFRESH_SECONDS = 60.0


class WebhookError(Exception):
    """Error for a webhook that cannot start; the text names the reason and the fix."""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the webhook process. `listen` is HOST:PORT. The API server calls `url`, or `service`
    (NAMESPACE/NAME, with :PORT if it is not 443), or `listen` if both are empty. With `guard_metrics`, metrics are
    served only over TLS, with the webhook's certificate, and only to users with the permission for that path.
    Without `ssh` jobs with the plugin of that name are rejected."""

    listen: str = "0.0.0.0:8443"
    url: str = ""
    service: str = ""
    namespace: str = "phalanx-system"
    scheduler_names: tuple[str, ...] = ("phalanx",)
    resource_groups: tuple[ResourceGroup, ...] = ()
    queue_rights: bool = False
    protect_busy_queues: bool = False
    max_queue_depth: int = MAX_QUEUE_DEPTH
    ssh: bool = True
    failure_policy: str = "Fail"
    metrics_address: str = ""
    guard_metrics: bool = False


class WebhookService:
    """Webhook that runs until cancelled or stopped; `ready` is set once the API server calls it."""

    def __init__(self, client: KubeClient, options: WebhookOptions, now: Callable[[], float] = time.time) -> None:
        self._client = client
        self._options = options
        self._now = now
        self._stopped = asyncio.Event()
        self.ready = asyncio.Event()
        self.metrics = AdmissionMetrics()
        self.port = self.metrics_port = 0
        context = AdmissionContext(
            scheduler_names=options.scheduler_names,
            resource_groups=options.resource_groups,
            max_queue_depth=options.max_queue_depth,
            ssh=options.ssh,
        )
        self._view = AdmissionView(client, context)
        self._reviewer = AdmissionReviewer(
            self._view,
            ReviewOptions(queue_rights=options.queue_rights, protect_busy_queues=options.protect_busy_queues),
            QuotaReservationCheck(client, LEDGER_NAMESPACE, Dialects(installed_dialects()).declarations, now),
        )

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Serve the webhook until stopped. Raises WebhookError for an unusable address, and the exception of the
        first API request."""
        host, port = split_address(self._options.listen, "--listen")
        names = _names(self._options, host)
        secret = CertificateSecret(self._client, self._options.namespace, CERTIFICATES, NAME, names, self._now)
        await _retry_until_success(secret.refresh)
        access = PathAccess(self._client) if self._options.guard_metrics else None
        app = application(self._reviewer, self.metrics, self.ready.is_set, access)
        async with contextlib.AsyncExitStack() as stack:
            self.port = await stack.enter_async_context(_served(app, host, port, "--listen", secret))
            if self._options.metrics_address:
                metrics_app = web.Application()
                metrics_app.add_routes(probes(self.metrics, self.ready.is_set, access))
                address = split_address(self._options.metrics_address, "--metrics-address")
                certificate = secret if access is not None else None
                self.metrics_port = await stack.enter_async_context(
                    _served(metrics_app, *address, "--metrics-address", certificate)
                )
            parts = [
                asyncio.create_task(part)
                for part in (self._view.run(), self._maintain(secret), self._stopped.wait())
            ]
            try:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for part in done:
                    part.result()
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)

    async def _maintain(self, secret: CertificateSecret) -> None:
        """Register the webhook, then renew its certificates and restore a changed registration at intervals."""
        await self._view.synced()
        await _retry_until_success(lambda: self._register(secret))
        self.ready.set()
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await secret.refresh()
                await self._register(secret)
            except (ApiError, ConnectionLost) as error:
                log.warning("cannot check certificates and registration, retrying: %s", error)

    async def _register(self, secret: CertificateSecret) -> None:
        options = self._options
        await register(
            self._client,
            RegistrationOptions(
                address=_address(options, self.port),
                scheduler_names=options.scheduler_names,
                failure_policy=options.failure_policy,
                queue_rights=options.queue_rights,
                resource_groups=bool(options.resource_groups),
                excluded_namespaces=("kube-system", options.namespace),
            ),
            secret.bundle,
        )


@contextlib.asynccontextmanager
async def _served(
    app: web.Application, host: str, port: int, flag: str, secret: CertificateSecret | None
) -> AsyncIterator[int]:
    """Serve a web application while the block runs, and yield its port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        context = secret.context if secret is not None else None
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except (OSError, OverflowError) as error:
            raise WebhookError(f"{flag} {host}:{port}: {cause_text(error)}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _retry_until_success(step: Callable[[], object]) -> None:
    """Repeat a step until it succeeds, however long that takes. Raise errors that a retry cannot resolve."""
    retry, backoff = RetryPolicy(), Backoff()
    while True:
        try:
            await step()  # type: ignore[misc]
        except (ApiError, ConnectionLost) as error:
            if not retry.retryable(error, "GET"):
                raise
            log.warning("the API server is not ready: %s", error)
            await asyncio.sleep(backoff.next())
        else:
            return


def split_address(address: str, flag: str) -> tuple[str, int]:
    """Split an option value HOST:PORT. Raises WebhookError for other texts."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise WebhookError(f"{flag}: {quoted(address)} is not HOST:PORT, such as 0.0.0.0:8443")
    return host.strip("[]") or "0.0.0.0", int(port)


def service_address(service: str) -> WebhookAddress:
    """Parse an option value NAMESPACE/NAME or NAMESPACE/NAME:PORT of a Service. Raises WebhookError for other
    texts."""
    namespace, slash, name_and_port = service.partition("/")
    name, colon, port = name_and_port.partition(":")
    if not slash or not namespace or not name or (colon and not port.isdecimal()):
        raise WebhookError(f"--service: {quoted(service)} is not NAMESPACE/NAME or NAMESPACE/NAME:PORT")
    return WebhookAddress(namespace=namespace, service=name, port=int(port) if colon else 443)


def _address(options: WebhookOptions, port: int) -> WebhookAddress:
    if options.url:
        return WebhookAddress(url=options.url)
    if options.service:
        return service_address(options.service)
    host, _ = split_address(options.listen, "--listen")
    return WebhookAddress(url=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _names(options: WebhookOptions, host: str) -> set[str]:
    """Return the DNS names and IPs by which the API server calls the webhook. Raises WebhookError if the API server
    cannot reach it."""
    if options.url and options.service:
        raise WebhookError("give --url or --service, not both")
    if options.service:
        called = service_address(options.service)
        host = f"{called.service}.{called.namespace}.svc"
        return {host, f"{host}.cluster.local"}
    if options.url:
        parts = urlsplit(options.url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise WebhookError(f"--url: {quoted(options.url)} is not https://HOST:PORT")
        return {parts.hostname}
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            raise WebhookError(
                f"--listen {options.listen} is not an address that the API server can call; "
                "give --url https://HOST:PORT or --service NAMESPACE/NAME"
            )
    return {host}
