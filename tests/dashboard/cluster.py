"""A cluster with two tenants that have something to hide from each other, and a dashboard over it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from phalanx.accounting.database import Database
from phalanx.cli.installation.dashboard_manifests import ACCOUNT, dashboard_access
from phalanx.dashboard.access import AddressLogin, Login, TokenLogin
from phalanx.dashboard.server import Dashboard, ServeOptions, dashboard
from phalanx.dashboard.watch import WatchOptions
from phalanx.hub.dispatch import GangReference, new_dispatch
from phalanx.hub.names import DISPATCHES, MEMBER_CLUSTERS
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx_local.server import ApiServer
from tests.e2e.world import pod

Object = dict[str, Any]
PATIENCE = 60.0

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
#: Names that a tenant of `ours` may never read, in any view.
SECRETS = ("hidden-ns", "covert-train", "covert-queue", "shy-node", "quiet-pod")


class Site:
    """An API server with tenants, and short ways to act."""

    def __init__(self, server: ApiServer, client: KubeClient, directory: Path) -> None:
        self.server = server
        self.client = client
        self.directory = directory

    def token(self, namespace: str) -> str:
        """The bearer token of a namespace's tenant."""
        user: str = self.server.tenant_kubeconfig(namespace)["users"][0]["user"]["token"]
        return user

    async def install_dashboard(self) -> None:
        """Makes the account that the chart makes, and a kubeconfig of it."""
        namespace = "phalanx-system"
        await self.apply(dashboard_access(namespace))
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
        issued = await self.client.create(path, {"spec": {"expirationSeconds": 36_000}})
        config = self.server.kubeconfig()
        config["users"][0]["user"] = {"token": issued["status"]["token"]}
        (self.directory / "dashboard.kubeconfig").write_text(json.dumps(config))

    async def apply(self, manifests: list[Object]) -> None:
        """Apply objects as `phalanx install` does; existing ones stay."""
        for each in manifests:
            group = "/api/v1" if each["apiVersion"] == "v1" else f"/apis/{each['apiVersion']}"
            where = f"/namespaces/{each['metadata']['namespace']}" if "namespace" in each["metadata"] else ""
            try:
                await self.client.create(f"{group}{where}/{each['kind'].lower()}s", each)
            except ApiError as error:
                if error.status != 409:
                    raise

    async def member(self, name: str, active: Object, has: Object | None = None, **spec: Any) -> None:
        """Create a MemberCluster, with the status that its hub publishes."""
        document = {
            "apiVersion": MEMBER_CLUSTERS.api_version,
            "kind": MEMBER_CLUSTERS.kind,
            "metadata": {"name": name},
            "spec": {"kubeconfigSecret": name, **spec},
        }
        await self.client.create(MEMBER_CLUSTERS.path(), document)
        condition = {"type": "Active", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z", **active}
        status = {"conditions": [condition], "lastSeen": "2026-01-02T03:04:00Z", **(has or {})}
        await self.client.patch(MEMBER_CLUSTERS.path(None, name, "status"), {"status": status}, PatchType.MERGE)

    async def dispatch(self, namespace: str, gang: str, status: Object) -> None:
        """A Dispatch as a hub has written it."""
        reference = GangReference("scheduling.volcano.sh/v1beta1", gang, f"uid-{gang}")
        document = new_dispatch(namespace, reference)
        del document["metadata"]["finalizers"]
        await self.client.create(DISPATCHES.path(namespace), document)
        path = DISPATCHES.path(namespace, document["metadata"]["name"], "status")
        await self.client.patch(path, {"status": status}, PatchType.MERGE)

    async def node(self, name: str, rack: str = "r1", **amounts: str) -> None:
        offered = {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/rack": rack}},
            "status": {"capacity": offered, "allocatable": offered},
        }
        await self.client.create("/api/v1/nodes", document)

    async def queue(self, name: str, **spec: Any) -> None:
        document = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        await self.client.create(f"{VOLCANO}/queues", {**document, "spec": {"weight": 1, **spec}})

    async def gang(
        self, namespace: str, name: str, members: int, *, queue: str = "default", minimum: int = 0, **what: Any
    ) -> None:
        """A PodGroup with all its members, which are its minimum where nothing else is said."""
        document = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
        path = f"{VOLCANO}/namespaces/{namespace}/podgroups"
        await self.client.create(path, {**document, "spec": {"minMember": minimum or members, "queue": queue}})
        for number in range(members):
            await self.pod(namespace, f"{name}-{number}", name, **what)

    async def pod(self, namespace: str, name: str, gang: str = "", **what: Any) -> None:
        annotations = {"scheduling.k8s.io/group-name": gang} if gang else {}
        document = pod(name, annotations=annotations, **what)
        await self.client.create(f"/api/v1/namespaces/{namespace}/pods", document)

    async def bind(self, namespace: str, name: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)

    async def evicted(self, namespace: str, name: str, message: str, *, kind: str = "Pod", uid: str = "") -> None:
        """The event that an eviction leaves behind."""
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}-", "namespace": namespace},
            "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": uid or f"uid-{name}"},
            "reason": "Preempted",
            "message": message,
            "lastTimestamp": "2026-01-02T03:04:05Z",
            "type": "Normal",
        }
        await self.client.create(f"/api/v1/namespaces/{namespace}/events", event)

    @contextlib.asynccontextmanager
    async def dashboard(
        self, login: str = "address", database: Database | None = None, *, rehearsed: bool = True, **options: Any
    ) -> AsyncIterator[Page]:
        """Serve a page that has read the cluster, and has its first verdicts if `rehearsed`."""
        kubeconfig = "kubeconfig" if login == "address" else "dashboard.kubeconfig"
        async with KubeClient(load_config(str(self.directory / kubeconfig))) as client:
            method: Login = AddressLogin("you") if login == "address" else TokenLogin(client)
            watching, serving = WatchOptions(("phalanx",)), ServeOptions(**options)
            async with (
                dashboard(client, watching, serving, method, database) as (served, following),
                aiohttp.ClientSession() as session,
            ):
                page = Page(served, session, method)
                watch = served.watch

                def ready() -> bool:
                    return watch.last is not None if rehearsed else watch.ready.is_set()

                await page.until(lambda: ready() or following.done(), "a rehearsal" if rehearsed else "the cluster")
                if following.done():
                    following.result()
                yield page


class Page:
    """A served dashboard, and its client."""

    def __init__(self, served: Dashboard, session: aiohttp.ClientSession, login: Login) -> None:
        self.served = served
        self.session = session
        self.login = login
        self.token = login.exchange(login.ticket) if isinstance(login, AddressLogin) else ""

    @property
    def url(self) -> str:
        return self.served.url

    async def ask(
        self, path: str, *, token: str | None = None, method: str = "GET", data: Any = None, **headers: str
    ) -> tuple[int, bytes]:
        token = self.token if token is None else token
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        async with self.session.request(method, f"{self.url}{path}", headers=sent, data=data) as answer:
            return answer.status, await answer.read()

    async def json(self, path: str, *, token: str | None = None) -> Any:
        status, body = await self.ask(f"/api/v1/{path}", token=token)
        assert status == 200, (path, status, body)
        return json.loads(body)

    async def rows(self, table: str, query: str = "", *, token: str | None = None) -> dict[str, Any]:
        found = await self.json(f"tables/{table}{query}", token=token)
        return {row["id"]: row for row in found["rows"]}

    async def until(self, holds: Callable[[], object], what: str) -> None:
        await until(holds, what)


async def until(holds: Callable[[], object], what: str, *, period: float = 0.02) -> None:
    """Look every `period` seconds until `holds`, a function or an asynchronous one, returns something true."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while asyncio.get_running_loop().time() < deadline:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        await asyncio.sleep(period)
    raise AssertionError(f"waited in vain for {what}")
