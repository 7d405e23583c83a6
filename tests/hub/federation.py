"""A hub and member clusters in one process: embedded API servers, a scheduler each, and a net that can be cut."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from phalanx.cli.installation.hub_manifests import hub_definitions
from phalanx.cli.installation.install import install_into
from phalanx.cli.installation.manifests import definitions, volcano_queues
from phalanx.daemon.service import SchedulerOptions
from phalanx.hub.members.connection import ConnectionPace
from phalanx.hub.names import DISPATCH_GATE, DISPATCHES, MEMBER_CLUSTERS
from phalanx.hub.service import HubOptions, HubService
from phalanx.kube.auth.config import ClusterConfig, load_config
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import NODES, PODS, SECRETS
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http.connections import default_transport
from phalanx.kube.http.transport import HttpRequest, HttpResponse, Transport
from phalanx.kube.paths import Resource
from phalanx.scheduling.policy.loader import load_policy
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.world import QUICK, Running

Json = dict[str, Any]
T = TypeVar("T")
PATIENCE = 60.0
GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NAMESPACE = "ml"
HUB_NAMESPACE = "phalanx-system"
MEMBERS = ("east", "north", "west")
PACE = ConnectionPace(renew=0.3, retry=0.5, answer=5.0)


class Net:
    """The network of the hub.

    Servers (URLs) in `cut` cannot be reached; those in `beginning` have just started, and serve none of these
    groups yet. Before or after its write number `dies_at` the hub is dead: it sends and receives nothing more.
    """

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self.beginning: dict[str, set[str]] = {}
        self.writes: list[str] = []
        # How often each server that is beginning hid a kind from the hub.
        self.hidden: Counter[str] = Counter()
        self.dies_at: tuple[int, bool] | None = None
        self.dead = asyncio.Event()

    def transports(
        self, config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> Transport:
        inner = default_transport(config, context, user_agent=user_agent, max_connections=max_connections)
        return _Line(self, inner, config.server)


class _Line:
    def __init__(self, net: Net, inner: Transport, server: str) -> None:
        self._net, self._inner, self._server = net, inner, server

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        net = self._net
        await self._live()
        if self._server in net.cut:
            raise Unreachable("the net is cut")
        # Leases are renewed by the clock, and events are sent in the background; neither belongs to the
        # protocol.
        write = call.method not in ("GET", "HEAD") and not any(
            each in call.target for each in ("/leases", "/events")
        )
        number = 0
        if write:
            net.writes.append(f"{call.method} {call.target.partition('?')[0]}")
            number = len(net.writes)
            if net.dies_at == (number, False):
                net.dead.set()
                await self._live()
        unknown = net.beginning.get(self._server, set())
        if call.target.removeprefix("/apis/").partition("/")[0] in unknown:
            net.hidden[self._server] += 1
            message = "the request has been made before all known HTTP paths have been installed"
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": message}
            return HttpResponse(503, json.dumps({**status, "reason": "ServiceUnavailable"}).encode())
        answer = await self._inner.request(call, identity)
        if unknown and call.target == "/apis":
            net.hidden[self._server] += 1
            told = json.loads(answer.body)
            told["items"] = [each for each in told["items"] if each["metadata"]["name"] not in unknown]
            answer = answer._replace(body=json.dumps(told).encode())
        if write and net.dies_at == (number, True):
            net.dead.set()
        await self._live()
        if self._server in net.cut:
            raise ConnectionLost("the net is cut")
        return answer

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        async with contextlib.aclosing(self._inner.stream(target, identity, accept, read_timeout)) as pieces:
            while True:
                if self._server in self._net.cut:
                    raise ConnectionLost("the net is cut")
                coming = asyncio.ensure_future(anext(pieces))
                try:
                    while not coming.done():
                        await asyncio.wait([coming], timeout=0.1)
                        if self._server in self._net.cut:
                            raise ConnectionLost("the net is cut")
                    yield coming.result()
                except StopAsyncIteration:
                    return
                finally:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)

    async def close(self) -> None:
        await self._inner.close()

    async def _live(self) -> None:
        if self._net.dead.is_set():
            await asyncio.Event().wait()  # until it is buried


class Site:
    """An API server, a client of its administrator, and (in member clusters) a scheduler."""

    def __init__(self, name: str, folder: Path, controllers: frozenset[str] = frozenset()) -> None:
        self.name = name
        self._controllers = controllers | {"definitions"}
        self.folder = folder / name
        self.folder.mkdir()
        self.kubeconfig = self.folder / "kubeconfig"
        self.data = self.folder / "data"
        self.server: ApiServer
        self.client: KubeClient
        self.scheduler: Running | None = None
        self._port = 0

    async def start(self) -> None:
        options = ServerOptions(controllers=self._controllers, data=self.data, port=self._port)
        self.server = ApiServer(options)
        await self.server.start()
        self._port = int(self.server.url.rpartition(":")[2])
        self.server.write_kubeconfig(self.kubeconfig)
        self.client = KubeClient(load_config(str(self.kubeconfig)))

    async def stop(self) -> None:
        await self.end_scheduler()
        await self.client.close()
        await self.server.stop()

    async def install(self, more: list[Json]) -> None:
        await install_into(self.client, [*definitions(), *more], [], volcano_queues(), 60.0)
        for name in (NAMESPACE, HUB_NAMESPACE):
            await self.client.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def start_scheduler(self) -> None:
        self.scheduler = Running(self.kubeconfig, SchedulerOptions(pace=QUICK))
        await self.scheduler.ready()

    async def end_scheduler(self) -> None:
        if self.scheduler is not None:
            await self.scheduler.kill()
            self.scheduler = None

    async def node(self, name: str, cpu: str) -> None:
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        await self.client.create(NODES.path(), {"metadata": {"name": name}, "status": status})

    async def pods(self) -> dict[str, Json]:
        found = await self.client.list_all(PODS.path(NAMESPACE))
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def phase(self, phase: str, *names: str) -> None:
        """Publish a phase as a kubelet would."""
        for name in names:
            path = PODS.path(NAMESPACE, name, "status")
            await self.client.patch(path, {"status": {"phase": phase}}, PatchType.MERGE)

    async def restore(self, backup: Path) -> None:
        """Stop the server, and start it with the data of a backup."""
        await self.stop()
        shutil.copy(backup, self.data)
        await self.start()

    def backup(self) -> Path:
        """Return a copy of the server's data; no write may be running."""
        kept = self.folder / "backup"
        shutil.copy(self.data, kept)
        return kept


class Federation:
    def __init__(
        self, folder: Path, controllers: frozenset[str] = frozenset(), members: Sequence[str] = MEMBERS
    ) -> None:
        self.hub = Site("hub", folder, controllers)
        self.members = {name: Site(name, folder, controllers) for name in members}
        self.net = Net()
        self.service: HubService | None = None
        self._client: KubeClient
        self._task: asyncio.Task[None]

    # -- the hub's process ----------------------------------------------------------------------------------

    async def start_hub(self, patience: int = 60) -> None:
        """Start the hub, which declares a cluster lost after `patience` seconds of silence, and chooses without
        it.

        Tests that cut off a cluster need few seconds; in all other tests a cluster that computes a while must
        not be lost.
        """
        self.net.dead = asyncio.Event()
        self._client = KubeClient(load_config(str(self.hub.kubeconfig)), transports=self.net.transports)
        options = HubOptions(
            namespace=HUB_NAMESPACE, patience=patience, pace=PACE, secret_period=0.3, spill_period=0.5
        )
        self.service = HubService(self._client, options, load_policy(), self.net.transports)
        self._task = asyncio.create_task(self.service.run())

    async def kill_hub(self) -> None:
        """Kill the hub as SIGKILL does."""
        if self.service is None:
            return
        self.net.dead.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()
        self.service = None

    # -- objects at the hub ---------------------------------------------------------------------------------

    async def join(self, name: str, **spec: Any) -> None:
        await self.secret(name, json.dumps(self.members[name].server.kubeconfig()))
        await self.member_cluster(name, **spec)

    async def member_cluster(self, name: str, **spec: Any) -> None:
        document = {
            "apiVersion": MEMBER_CLUSTERS.api_version,
            "kind": "MemberCluster",
            "metadata": {"name": name},
            "spec": {"kubeconfigSecret": name, **spec},
        }
        await self.hub.client.create(MEMBER_CLUSTERS.path(), document)

    async def secret(self, name: str, kubeconfig: str) -> None:
        data = {"data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}}
        path = SECRETS.path(HUB_NAMESPACE, name)
        known = {
            each["metadata"]["name"] for each in (await self.hub.client.get(SECRETS.path(HUB_NAMESPACE)))["items"]
        }
        if name in known:
            await self.hub.client.patch(path, data, PatchType.MERGE)
        else:
            await self.hub.client.create(SECRETS.path(HUB_NAMESPACE), {"metadata": {"name": name}, **data})

    async def gang(self, name: str = "train", size: int = 2, cpu: str = "1", **annotations: str) -> None:
        keys = {f"phalanx.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        group = {
            "apiVersion": GROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": keys},
            "spec": {"minMember": size},
        }
        await self.hub.client.create(GROUPS.path(NAMESPACE), group)
        for index in range(size):
            await self.pod(f"{name}-{index}", name, cpu)

    async def pod(self, name: str, group: str, cpu: str = "1", **metadata: Any) -> None:
        labels = {"scheduling.x-k8s.io/pod-group": group} if group else {}
        pod = {
            "metadata": {"name": name, "labels": labels, **metadata},
            "spec": {
                "schedulerName": "phalanx",
                "schedulingGates": [{"name": DISPATCH_GATE}],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}],
            },
        }
        await self.hub.client.create(PODS.path(NAMESPACE), pod)

    async def annotate(self, name: str, **annotations: str | None) -> None:
        keys = {f"phalanx.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        patch = {"metadata": {"annotations": keys}}
        await self.hub.client.patch(GROUPS.path(NAMESPACE, name), patch, PatchType.MERGE)

    async def delete_gang(self, name: str = "train") -> None:
        for pod in await self.hub.pods():
            if pod.startswith(f"{name}-"):
                await self.hub.client.delete(PODS.path(NAMESPACE, pod), grace_seconds=0)
        await self.hub.client.delete(GROUPS.path(NAMESPACE, name))

    # -- asking ---------------------------------------------------------------------------------------------

    async def record(self, gang: str = "train") -> Json:
        """The status of the gang's Dispatch; empty while there is none."""
        found = await self.hub.client.list_all(DISPATCHES.path(NAMESPACE))
        for each in found["items"]:
            if each["spec"]["gang"]["name"] == gang:
                status: Json = each.get("status") or {}
                return {"phase": "Pending", **status}
        return {}

    async def until_record(self, gang: str = "train", **wanted: Any) -> Json:
        seen: Json = {}

        async def holds() -> Json:
            seen.clear()
            seen.update(await self.record(gang))
            return seen if all(seen.get(key) == value for key, value in wanted.items()) else {}

        return await until(holds, f"the Dispatch of {gang} is {wanted}", seen)

    async def until_forgotten(self, gang: str = "train") -> None:
        async def holds() -> bool:
            return not await self.record(gang)

        await until(holds, f"there is no Dispatch of {gang}", await self.record(gang))

    async def until_member(self, name: str, status: str, reason: str = "") -> Json:
        seen: Json = {}

        async def holds() -> Json:
            found = await self.hub.client.get(MEMBER_CLUSTERS.path(None, name))
            conditions = (found.get("status") or {}).get("conditions") or [{}]
            seen.update(conditions[0])
            return seen if seen.get("status") == status and reason in ("", seen.get("reason")) else {}

        return await until(holds, f"member cluster {name} is {status} {reason}", seen)

    async def until_bound(self, cluster: str, *names: str) -> None:
        async def holds() -> bool:
            pods = await self.members[cluster].pods()
            return all(name in pods and pods[name]["spec"].get("nodeName") for name in names)

        try:
            await until(holds, f"{names} have nodes in {cluster}")
        except AssertionError as error:
            gang = names[0].rpartition("-")[0]
            pods = {name: pod["status"] for name, pod in (await self.members[cluster].pods()).items()}
            raise AssertionError(f"{error}; {pods}; {await self.record(gang)}") from None

    async def until_empty(self, cluster: str) -> None:
        async def holds() -> bool:
            return not await self.members[cluster].pods()

        await until(holds, f"nothing is left in {cluster}")

    async def until_phase(self, phase: str, *names: str) -> dict[str, Json]:
        """Wait until pods of the hub have this phase."""

        async def holds() -> dict[str, Json]:
            pods = await self.hub.pods()
            return pods if all(pods[name]["status"].get("phase") == phase for name in names) else {}

        return await until(holds, f"{names} are {phase} at the hub")

    async def startable(self) -> dict[str, set[str]]:
        """Return gang -> clusters with pods that are ungated or running."""
        found: dict[str, set[str]] = {}
        for name, site in self.members.items():
            for pod in (await site.pods()).values():
                if not pod["spec"].get("schedulingGates") and pod["status"].get("phase") in ("Pending", "Running"):
                    found.setdefault(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], set()).add(name)
        return found


async def until(holds: Callable[[], Awaitable[T]], what: str, seen: Any = None) -> T:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while asyncio.get_running_loop().time() < deadline:
        if answer := await holds():
            return answer
        await asyncio.sleep(0.03)
    raise AssertionError(f"waited in vain: {what}; last seen: {seen}")


@contextlib.asynccontextmanager
async def federation(
    folder: Path,
    controllers: frozenset[str] = frozenset(),
    definitions: Sequence[Json] = (),
    members: Sequence[str] = MEMBERS,
) -> AsyncIterator[Federation]:
    """`controllers` run in all API servers, which know `definitions` besides Phalanx's."""
    made = Federation(folder, controllers, members)
    sites = [made.hub, *made.members.values()]
    started: list[Site] = []
    try:
        for site in sites:
            await site.start()
            started.append(site)
            await site.install([*(hub_definitions() if site is made.hub else []), *definitions])
            if site is not made.hub:
                await site.start_scheduler()
        yield made
    finally:
        await made.kill_hub()
        for site in reversed(started):
            await site.stop()
