"""Embedded Kubernetes API server: assembly, start and stop.

server = ApiServer(ServerOptions())
await server.start()
server.write_kubeconfig(Path("kubeconfig"))
...
await server.stop()
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path

from aiohttp import web

from phalanx_local.admission.policies import AdmissionPolicies
from phalanx_local.admission.quota import QuotaLedger
from phalanx_local.admission.webhook_calls import WebhookClient
from phalanx_local.admission.webhooks import Webhooks
from phalanx_local.aggregation.aggregator import Aggregator
from phalanx_local.aggregation.front_proxy import FrontProxyIdentity
from phalanx_local.authentication.authenticator import Authenticator
from phalanx_local.authentication.kubeconfig import kubeconfig, write_private
from phalanx_local.authentication.server_identity import new_identity, stored_identity
from phalanx_local.authentication.tenants import admit_certified_tenant, admit_tenant
from phalanx_local.authentication.tokens import AccountTokens
from phalanx_local.authorization import Rbac
from phalanx_local.controllers import Controllers
from phalanx_local.endpoints.audit import Audit
from phalanx_local.endpoints.connections import TimedServer
from phalanx_local.endpoints.faults import Faults
from phalanx_local.endpoints.http import HttpEndpoint, ProtocolLog
from phalanx_local.endpoints.listing import Lister
from phalanx_local.endpoints.resource_handler import ResourceHandler
from phalanx_local.endpoints.reviews import Reviewer
from phalanx_local.endpoints.watching import Watch
from phalanx_local.errors import StatusError
from phalanx_local.objects import Json
from phalanx_local.options import ServerOptions
from phalanx_local.registry import bootstrap
from phalanx_local.registry.api import Api
from phalanx_local.registry.catalog import build_registry
from phalanx_local.registry.definitions import DEFINITIONS, Definitions
from phalanx_local.storage.journal import FileJournal
from phalanx_local.storage.store import Store


class ApiServer:
    """Kubernetes API server in this process. `faults` injects failures, `api` reads and writes objects without
    HTTP."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        self.options = options or ServerOptions()
        self.faults = Faults()
        data, token = self.options.data, self.options.token
        identity = stored_identity(data, token) if data is not None else new_identity(token)
        self.token = identity.token
        self.authority = None if self.options.insecure else identity.authority
        self._journal = FileJournal(self.options.data) if self.options.data is not None else None
        # Revisions start at the current time: a client of an earlier server without a data file finds its
        # revisions expired and lists again, instead of watching a different history.
        clock_revision = int(self.options.clock.now() * 1000)
        saved = self._journal.revision if self._journal is not None else 0
        self.store = Store(revision=saved or clock_revision, history=self.options.history, journal=self._journal)
        self.registry = build_registry(
            self.options.native_groups,
            protect_groups="podgroups" in self.options.controllers,
            taint_nodes="nodelifecycle" in self.options.controllers,
            protect_volumes="volumeprotection" in self.options.controllers,
        )
        self.api = Api(self.store, self.registry, self.options.clock)
        self._definitions = Definitions(self.store, self.registry, self._end_watches_of)
        self._audit = (
            Audit(self.options.audit_log, self.options.clock) if self.options.audit_log is not None else None
        )
        self.rbac = Rbac(self.store)
        self._policies = AdmissionPolicies(self.api, self.rbac)
        self._webhooks = Webhooks(self.api, self.rbac)
        self._webhook_client = WebhookClient()
        self._quotas = self.api.quotas = QuotaLedger(self.store, self.options.clock)
        self.tokens = AccountTokens(self.api, identity.signing_key)
        authenticator = Authenticator(
            self.token,
            insecure=self.options.insecure,
            users=self.options.users,
            accounts=self.tokens.user_of,
        )
        reviewer = Reviewer(authenticator, self.rbac)
        kubelet_identity = self.authority.kubelet_client_context() if self.authority is not None else None
        resources = ResourceHandler(
            self.api, Lister(self.store), reviewer, self.tokens, self.options, kubelet_identity
        )
        self.front_proxy = FrontProxyIdentity()
        self._aggregator = Aggregator(self.api, self.front_proxy)
        self._endpoint = HttpEndpoint(
            self.api,
            resources,
            authenticator,
            self.rbac,
            self.faults,
            self.options,
            self._audit,
            self._address,
            self._webhook_client,
            self._aggregator,
        )
        self.faults.wire(self._cut_watches, self.store.forget_history)
        self._controllers = Controllers(self.api, self._quotas, self.options, self._webhook_client)
        self._runner: web.ServerRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Base URL of the started server."""
        scheme = "http" if self.options.insecure else "https"
        return f"{scheme}://{self._address()}"

    async def start(self) -> None:
        """Restore the data file, create the initial objects, and listen. Raise OSError if listening fails."""
        self._restore()
        bootstrap.fill(self.api)
        self.front_proxy.publish(self.api, self.authority.certificate if self.authority is not None else None)
        # Policies must not reject the initial objects.
        self._policies.load()
        self.api.policies = self._policies
        self._webhooks.load()
        self.api.webhooks = self._webhooks
        protocol_log = ProtocolLog(logging.getLogger("phalanx_local.endpoints.http"), {})
        server = TimedServer(
            self._endpoint,
            max_body=self.options.max_body,
            handler_cancellation=True,
            access_log=None,
            logger=protocol_log,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        context = self.authority.server_context(self.options.host) if self.authority is not None else None
        site = web.TCPSite(self._runner, self.options.host, self.options.port, ssl_context=context, backlog=1024)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        for name in self._runner.addresses:
            self._port = name[1]
        self._controllers.start()
        self._aggregator.start()

    async def stop(self) -> None:
        """End watches and connections; all answered writes are in the data file."""
        self._endpoint.stopping = True
        await self._controllers.stop()
        await self._aggregator.stop()
        for watch in list(self._endpoint.watches):
            watch.end()
        if self._runner is not None:
            await asyncio.sleep(0)
            await self._runner.cleanup()
            self._runner = None
        await self._webhook_client.close()
        if self._audit is not None:
            self._audit.close()
        if self._journal is not None:
            self._journal.close()

    def kubeconfig(self) -> Json:
        """Return a kubeconfig for the administrator."""
        authority = self.authority.certificate if self.authority is not None else None
        token = None if self.options.insecure else self.token
        return kubeconfig(self.url, authority=authority, token=token)

    def write_kubeconfig(self, path: Path | str) -> None:
        """Write the administrator's kubeconfig, readable only by the file's owner."""
        write_private(Path(path), self.kubeconfig())

    def tenant_kubeconfig(self, namespace: str) -> Json:
        """Create the tenant's namespace if necessary, and return a kubeconfig with edit rights only in this
        namespace."""
        authority = self.authority.certificate if self.authority is not None else None
        token = admit_tenant(self.api, self.tokens, namespace)
        return kubeconfig(self.url, authority=authority, token=token, namespace=namespace)

    def certified_kubeconfig(self, namespace: str) -> Json:
        """Create the tenant's namespace if necessary, and return a kubeconfig of a user with a client certificate
        and edit rights only in this namespace. Raise ValueError without TLS."""
        if self.authority is None:
            raise ValueError("client certificates need TLS")
        user = admit_certified_tenant(self.api, namespace)
        pair = self.authority.client_pair(user)
        return kubeconfig(self.url, authority=self.authority.certificate, certificate=pair, namespace=namespace)

    def write_certified_kubeconfig(self, namespace: str, path: Path | str) -> None:
        """Write the kubeconfig of a tenant with a client certificate, readable only by the file's owner."""
        write_private(Path(path), self.certified_kubeconfig(namespace))

    def write_tenant_kubeconfig(self, namespace: str, path: Path | str) -> None:
        """Write a tenant's kubeconfig, readable only by the file's owner."""
        write_private(Path(path), self.tenant_kubeconfig(namespace))

    def _address(self) -> str:
        host = self.options.host
        if host in ("0.0.0.0", "::", ""):
            host = "127.0.0.1"
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    def _restore(self) -> None:
        if self._journal is None:
            return
        definitions = self.registry.find("apiextensions.k8s.io", "customresourcedefinitions")
        assert definitions is not None
        self._journal.restore(self.store, {DEFINITIONS: definitions.strategy.fields})
        self._definitions.load()
        self._journal.restore(self.store, {type_.storage: type_.strategy.fields for type_ in self.registry})
        for type_ in self.registry:
            if type_.custom:
                self._definitions.refresh(type_, self.api.collection(type_))
        self.rbac.load()
        self._quotas.load()
        self._journal.begin(self.store)

    def _cut_watches(self, path: re.Pattern[str], error: StatusError | None) -> int:
        chosen = [watch for watch, asked in self._endpoint.watches.items() if path.search(asked)]
        for watch in chosen:
            watch.cut(error)
        return len(chosen)

    def _end_watches_of(self, storage: str) -> None:
        for watch in list(self._endpoint.watches):
            if watch.storage == storage:
                watch.end()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that was free a moment ago, for callers that need a port before the server starts."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


__all__ = ["ApiServer", "ServerOptions", "Watch", "free_port"]
