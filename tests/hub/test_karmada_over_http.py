"""The scheduler of Karmada's bindings, over HTTP, beside a Karmada that is played here: its controllers make
bindings and evict, and its aggregated API leads to the clusters."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.hub.karmada.bindings import BINDINGS, CLUSTERS
from phalanx.hub.karmada.service import KarmadaOptions, KarmadaService
from phalanx.kube.auth.config import ClusterConfig, load_config
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.http.transport import HttpRequest, HttpResponse, Transport
from phalanx.kube.paths import Resource
from phalanx.scheduling.policy.loader import load_policy
from tests.hub.federation import HUB_NAMESPACE, NAMESPACE, Federation, Json, Net, Site, federation, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(300)]

JOBS = Resource("batch", "v1", "jobs", "Job")


def definition(resource: Resource) -> Json:
    """Return the relevant part of one of Karmada's definitions."""
    anything: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": scope, "names": names, "versions": [version]},
    }


class _Proxied:
    """The aggregated API's `clusters/{name}/proxy`: it forwards a request to the cluster, as a user known
    there.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        client = self._site.client
        own = await client._credentials.current()
        with client._connections.lease(own) as transport:
            return await transport.request(call, own)

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        client = self._site.client
        own = await client._credentials.current()
        with client._connections.lease(own) as transport:
            async with contextlib.aclosing(transport.stream(target, own, accept, read_timeout)) as pieces:
                async for piece in pieces:
                    yield piece

    async def close(self) -> None:
        """The site closes its own."""


class Karmada:
    def __init__(self, three: Federation) -> None:
        self.three = three
        self.client = three.hub.client
        self.net = Net()

    def _through(
        self, config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> Transport:
        start, _, name = config.server.removesuffix("/proxy").rpartition("/")
        assert start.endswith("/apis/cluster.karmada.io/v1alpha1/clusters")
        return _Proxied(self.three.members[name])

    @contextlib.asynccontextmanager
    async def scheduler(self, **options: Any) -> AsyncIterator[KarmadaService]:
        """It runs until the block ends, or dies as the net says."""
        self.net.dead = asyncio.Event()
        own = KubeClient(load_config(str(self.three.hub.kubeconfig)), transports=self.net.transports)
        chosen = KarmadaOptions(namespace=HUB_NAMESPACE, again=0.5, **options)
        service = KarmadaService(own, chosen, load_policy(), self._through)
        running = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            self.net.dead.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await own.close()

    async def join(self, name: str) -> None:
        made = {
            "apiVersion": CLUSTERS.api_version,
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"syncMode": "Push"},
        }
        await self.client.create(CLUSTERS.path(), made)
        served = [{"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}]
        status = {"status": {"apiEnablements": served}}
        await self.client.patch(CLUSTERS.path(None, name, "status"), status, PatchType.MERGE)

    async def submit(
        self, name: str, cpu: str = "1", scheduler: str = "phalanx", placement: Json | None = None
    ) -> None:
        """Create a Job, and the objects that Karmada's detector derives from it and its policy."""
        container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
        pod = {"schedulerName": "phalanx", "restartPolicy": "Never", "containers": [container]}
        spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": {"spec": pod}}
        job = await self.client.create(JOBS.path(NAMESPACE), {"metadata": {"name": name}, "spec": spec})
        resource = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "namespace": NAMESPACE,
            "uid": job["metadata"]["uid"],
        }
        await self.bind(name, resource, scheduler, placement)

    async def bind(
        self, name: str, resource: Json, scheduler: str = "phalanx", placement: Json | None = None
    ) -> None:
        made = {
            "apiVersion": BINDINGS.api_version,
            "kind": "ResourceBinding",
            "metadata": {"name": f"{name}-job"},
            "spec": {
                "schedulerName": scheduler,
                "replicas": 2,
                "resource": resource,
                "placement": placement or {},
            },
        }
        await self.client.create(BINDINGS.path(NAMESPACE), made)

    async def binding(self, name: str) -> Json:
        found: Json = await self.client.get(BINDINGS.path(NAMESPACE, f"{name}-job"))
        return found

    async def until_scheduled(self, name: str) -> str:
        """To which cluster, when the status says it as well."""

        async def holds() -> str:
            found = await self.binding(name)
            status = found.get("status") or {}
            if status.get("schedulerObservedGeneration") != found["metadata"]["generation"]:
                return ""
            return ",".join(each["name"] for each in found["spec"].get("clusters") or ())

        return await until(holds, f"{name} is scheduled", await self.binding(name))

    async def until_refused(self, name: str, reason: str) -> str:
        async def holds() -> str:
            conditions = ((await self.binding(name)).get("status") or {}).get("conditions") or ()
            return "".join(each["message"] for each in conditions if each["reason"] == reason)

        return await until(holds, f"{name} is {reason}", await self.binding(name))


@contextlib.asynccontextmanager
async def karmada(folder: Path) -> AsyncIterator[Karmada]:
    """East is small; north and west are equal."""
    async with federation(folder, definitions=[definition(each) for each in (BINDINGS, CLUSTERS)]) as three:
        made = Karmada(three)
        for name, site in three.members.items():
            await site.node("n1", "1" if name == "east" else "16")
            await made.join(name)
        yield made


async def test_job_is_sent_whole_to_the_cluster_with_the_earliest_start_and_foreign_bindings_are_unchanged(
    tmp_path: Path,
) -> None:
    async with karmada(tmp_path) as plane:
        await plane.submit("foreign", scheduler="default-scheduler")
        foreign = await plane.binding("foreign")
        await plane.submit("train", "4")
        await plane.submit("shared", placement={"replicaScheduling": {"replicaSchedulingType": "Divided"}})
        await plane.bind("hostile", {"apiVersion": "batch/v1", "kind": "Job", "name": "x/../y\x1b[31m"})
        async with plane.scheduler():
            assert await plane.until_scheduled("train") == "north"
            found = await plane.binding("train")
            assert found["spec"]["clusters"] == [{"name": "north", "replicas": 2}]
            assert "east: never" in found["metadata"]["annotations"]["phalanx.dev/answers"]
            assert found["status"]["conditions"][0]["reason"] == "Success"
            assert "divides replicas" in await plane.until_refused("shared", "Unschedulable")
            # A second job that can start at once: it is sent where it fits beside the first.
            await plane.submit("next", "6")
            assert await plane.until_scheduled("next") == "west"
            before = len(plane.net.writes)
            await plane.submit("small")
            await plane.until_scheduled("small")
            names = [each.partition("/resourcebindings/")[2] for each in plane.net.writes[before:]]
            assert set(names) == {"small-job", "small-job/status"}
        assert await plane.binding("foreign") == foreign


async def test_job_evicted_from_a_cluster_is_sent_to_another(tmp_path: Path) -> None:
    async with karmada(tmp_path) as plane, plane.scheduler():
        await plane.submit("train", "4")
        assert await plane.until_scheduled("train") == "north"
        taint = {"spec": {"taints": [{"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"}]}}
        await plane.client.patch(CLUSTERS.path(None, "north"), taint, PatchType.MERGE)
        task = {"fromCluster": "north", "reason": "TaintUntolerated", "producer": "TaintManager"}
        evicted = {"spec": {"clusters": [], "gracefulEvictionTasks": [task]}}
        await plane.client.patch(BINDINGS.path(NAMESPACE, "train-job"), evicted, PatchType.MERGE)

        async def elsewhere() -> bool:
            return await plane.until_scheduled("train") == "west"

        await until(elsewhere, "train is in west")


@pytest.mark.parametrize("dies_at", [(1, False), (1, True), (2, False), (2, True)])
async def test_successor_finishes_the_job_after_a_crash_at_any_write(
    tmp_path: Path, dies_at: tuple[int, bool]
) -> None:
    async with karmada(tmp_path) as plane:
        await plane.submit("train", "4")
        plane.net.dies_at = dies_at
        async with plane.scheduler():
            await asyncio.wait_for(plane.net.dead.wait(), 60)
        plane.net.dies_at = None
        async with plane.scheduler():
            assert await plane.until_scheduled("train") in ("north", "west")


async def test_job_is_never_sent_where_it_cannot_start_and_two_replicas_alternate(tmp_path: Path) -> None:
    async with karmada(tmp_path) as plane:
        await plane.submit("huge", "400")
        async with plane.scheduler(leader_elect=True), plane.scheduler(leader_elect=True):
            said = await plane.until_refused("huge", "NoClusterFit")
            assert all(name in said for name in ("east", "north", "west"))
            await plane.submit("train", "4")
            await plane.until_scheduled("train")
