"""A scheduler of Karmada's bindings, over HTTP: Karmada's API server is embedded, its controllers are played."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.hub.karmada.bindings import ANSWERS, APPLIED_PLACEMENT, BINDINGS, CLUSTERS, PROMISED
from phalanx.hub.karmada.service import KarmadaOptions, KarmadaService
from phalanx.kube.auth.config import ClusterConfig, load_config
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.http.connections import default_transport
from phalanx.kube.http.transport import HttpRequest, HttpResponse, Transport
from phalanx.scheduling.policy.loader import load_policy
from tests.hub.federation import NAMESPACE, Federation, Json, Site, federation, until
from tests.hub.test_multikueue_over_http import definition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio, pytest.mark.timeout(300)]

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
SERVED = [{"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}]
NODES_OF = {"east": "1", "north": "16", "west": "16"}


class Proxied:
    """Karmada's way to a member: what is asked below `clusters/NAME/proxy` is asked there."""

    def __init__(self, config: ClusterConfig, prefix: str, user_agent: str, connections: int) -> None:
        self._config, self._prefix = config, prefix
        context = config.tls.context()
        self._inner = default_transport(config, context, user_agent=user_agent, max_connections=connections)

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        assert call.method == "GET", "nothing is written in a member"
        own = await self._config.credentials().current()
        return await self._inner.request(call._replace(target=call.target.removeprefix(self._prefix)), own)

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        own = await self._config.credentials().current()
        stream = self._inner.stream(target.removeprefix(self._prefix), own, accept, read_timeout)
        async with contextlib.aclosing(stream) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        await self._inner.close()


class Karmada:
    """`run` is the scheduler; `three.hub` is Karmada's API server."""

    def __init__(self, three: Federation) -> None:
        self.three = three
        self.client = three.hub.client

    def transports(
        self, config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> Transport:
        for name, site in self.three.members.items():
            path = CLUSTERS.path(None, name, "proxy")
            if config.server.endswith(path):
                return Proxied(load_config(str(site.kubeconfig)), path, user_agent, max_connections)
        return default_transport(config, context, user_agent=user_agent, max_connections=max_connections)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        own = KubeClient(load_config(str(self.three.hub.kubeconfig)))
        service = KarmadaService(own, KarmadaOptions(again=0.5), load_policy(), self.transports)
        running = asyncio.create_task(service.run())
        try:
            yield
        finally:
            service.stop()
            await running
            await own.close()

    async def cluster(self, name: str, served: Any = SERVED, **spec: Any) -> None:
        document = {
            "apiVersion": CLUSTERS.api_version,
            "kind": CLUSTERS.kind,
            "metadata": {"name": name, "labels": {"size": "small" if name == "east" else "large"}},
            "spec": spec,
            "status": {"apiEnablements": served},
        }
        await self.client.create(CLUSTERS.path(), document)
        status = {"status": {"apiEnablements": served}}
        await self.client.patch(CLUSTERS.path(None, name, "status"), status, PatchType.MERGE)

    async def job(self, name: str, pods: int = 2, cpu: str = "4") -> str:
        """Its uid."""
        container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
        template = {
            "spec": {"schedulerName": "phalanx", "restartPolicy": "Never", "containers": [container]},
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "template": template,
            },
        }
        uid: str = (await self.client.create(JOBS, job))["metadata"]["uid"]
        return uid

    async def binding(self, name: str, placement: Any = None, scheduler: str = "phalanx", **spec: Any) -> None:
        """What Karmada's detector makes of a Job that a policy selects."""
        uid = await self.job(name) if "resource" not in spec else ""
        document = {
            "apiVersion": BINDINGS.api_version,
            "kind": BINDINGS.kind,
            "metadata": {"name": f"{name}-job"},
            "spec": {
                "schedulerName": scheduler,
                "placement": placement or {},
                "replicas": 2,
                "resource": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "namespace": NAMESPACE,
                    "name": name,
                    "uid": uid,
                },
                **spec,
            },
        }
        await self.client.create(BINDINGS.path(NAMESPACE), document)

    async def read(self, name: str) -> Json:
        found: Json = await self.client.get(BINDINGS.path(NAMESPACE, f"{name}-job"))
        return found

    async def change(self, name: str, **spec: Any) -> None:
        path = BINDINGS.path(NAMESPACE, f"{name}-job")
        await self.client.patch(path, {"spec": spec}, PatchType.MERGE)

    async def until_sent(self, name: str, cluster: str) -> Json:
        async def sent() -> Json:
            found = await self.read(name)
            there = [each["name"] for each in found["spec"].get("clusters") or ()]
            seen = (found.get("status") or {}).get("schedulerObservedGeneration")
            return found if there == [cluster] and seen == found["metadata"]["generation"] else {}

        return await until(sent, f"{name} is sent to {cluster}", await self.read(name))

    async def until_told(self, name: str, reason: str) -> str:
        async def told() -> str:
            for each in ((await self.read(name)).get("status") or {}).get("conditions") or ():
                if (each["type"], each["status"], each["reason"]) == ("Scheduled", "False", reason):
                    return str(each["message"])
            return ""

        return await until(told, f"{name} is told {reason}", await self.read(name))

    async def stays(self, *names: str) -> None:
        """Nothing is written about these while others come and go."""
        before = [(await self.read(name))["metadata"]["resourceVersion"] for name in names]
        await self.binding("another")
        await self.until_sent("another", "west")
        assert [(await self.read(name))["metadata"]["resourceVersion"] for name in names] == before


@contextlib.asynccontextmanager
async def karmada(folder: Path, **clusters: Any) -> AsyncIterator[Karmada]:
    kinds = [definition(each) for each in (BINDINGS, CLUSTERS)]
    async with federation(folder, definitions=kinds) as three:
        made = Karmada(three)
        for name, cpu in NODES_OF.items():
            site: Site = three.members[name]
            await site.node("n1", cpu)
            await made.cluster(name, **clusters.get(name, {}))
        yield made


async def test_a_gang_goes_whole_to_the_cluster_that_starts_it_first_and_then_nothing_is_written(
    tmp_path: Path,
) -> None:
    async with karmada(tmp_path) as made:
        async with made.run():
            await made.binding("train")
            found = await made.until_sent("train", "north")
            assert found["spec"]["clusters"] == [{"name": "north", "replicas": 2}]
            (condition,) = found["status"]["conditions"]
            assert (condition["type"], condition["status"], condition["reason"]) == ("Scheduled", "True", "Success")
            notes = found["metadata"]["annotations"]
            assert notes[APPLIED_PLACEMENT] == "{}"
            assert "east: not (" in notes[ANSWERS]
            assert "north: starts " in notes[ANSWERS]
            assert notes[PROMISED]
            await made.stays("train")
        async with made.run():  # a second time
            await made.binding("later", {"clusterAffinity": {"clusterNames": ["west"]}})
            await made.until_sent("later", "west")
            assert (await made.read("train"))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_bindings_of_other_schedulers_and_suspended_ones_are_left_alone(tmp_path: Path) -> None:
    async with karmada(tmp_path, north={"taints": [{"key": "mine", "effect": "NoSchedule"}]}) as made, made.run():
        await made.binding("theirs", scheduler="default-scheduler")
        await made.binding("held", suspension={"scheduling": True})
        await made.stays("theirs", "held")
        await made.change("held", suspension={"scheduling": False})
        await made.until_sent("held", "west")


async def test_what_no_single_cluster_can_have_is_refused_by_a_sentence(tmp_path: Path) -> None:
    async with karmada(tmp_path) as made, made.run():
        await made.binding("divided", {"replicaScheduling": {"replicaSchedulingType": "Divided"}})
        assert "divides replicas over clusters" in await made.until_told("divided", "Unschedulable")
        await made.binding("web", resource={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
        assert "Deployment of apps/v1 is not scheduled as a gang" in await made.until_told("web", "Unschedulable")
        small = {"clusterAffinity": {"labelSelector": {"matchLabels": {"size": "small"}}}}
        await made.binding("huge", small)
        assert "Insufficient cpu" in await made.until_told("huge", "NoClusterFit")
        # The policy is mended.
        await made.change("divided", placement={"replicaScheduling": {"replicaSchedulingType": "Duplicated"}})
        await made.until_sent("divided", "north")


@pytest.mark.slow
async def test_what_karmada_evicts_from_a_cluster_is_sent_to_another(tmp_path: Path) -> None:
    async with karmada(tmp_path) as made, made.run():
        await made.binding("train")
        await made.until_sent("train", "north")
        await made.change(
            "train", clusters=None, gracefulEvictionTasks=[{"fromCluster": "north", "reason": "Taint"}]
        )
        found = await made.until_sent("train", "west")
        assert "north: not (it is being evicted from there (Taint))" in found["metadata"]["annotations"][ANSWERS]


@pytest.mark.slow
async def test_a_policy_that_does_not_allow_its_cluster_any_more_moves_it_and_another_does_not(
    tmp_path: Path,
) -> None:
    async with karmada(tmp_path) as made, made.run():
        await made.binding("train")
        await made.until_sent("train", "north")
        await made.change("train", placement={"clusterAffinity": {"exclude": ["east"]}})
        found = await made.until_sent("train", "north")
        assert "exclude" in found["metadata"]["annotations"][APPLIED_PLACEMENT]
        await made.change("train", placement={"clusterAffinity": {"exclude": ["north"]}})
        await made.until_sent("train", "west")


@pytest.mark.slow
async def test_odd_bindings_harm_only_themselves(tmp_path: Path) -> None:
    async with karmada(tmp_path) as made, made.run():
        for number, odd in enumerate(({"clusterAffinity": 5}, {"clusterAffinities": [7, {"clusterNames": {}}]})):
            await made.binding(f"odd-{number}", odd)
        await made.binding("gone", resource={"apiVersion": "batch/v1", "kind": "Job", "name": "never-was"})
        await made.binding("train")
        await made.until_sent("train", "north")
