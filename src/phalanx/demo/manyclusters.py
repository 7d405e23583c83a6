"""Scenario of many clusters: each gang runs in the one with the earliest start, and one cluster is lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from phalanx.demo.localcluster import LocalCluster, LocalOptions, unused_port
from phalanx.demo.stage import NodePlan, Scenario, ScenarioRun, pod, write_nodes
from phalanx.hub.names import DISPATCH_GATE, DISPATCHES, MEMBER_CLUSTERS
from phalanx.kube.core_resources import PODS, SECRETS
from phalanx.kube.paths import Resource

GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
_HUB = "phalanx-system"
# A member accepts a new hub after its second renewal, and a restored cluster is tried again every 15 s.
_PATIENCE = 90.0


class ManyClusters(Scenario):
    """Scenario with the stage's own cluster as the hub, without nodes."""

    name = "many-clusters"
    summary = (
        "gangs run in the cluster with the earliest start; one cluster is lost, and each gang follows its policy"
    )
    nodes = ()

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("A hub and two member clusters")
        async with contextlib.AsyncExitStack() as stack:
            sizes = {"east": 4, "west": 8}
            starting = (stack.enter_async_context(_member(stage, name, gpus)) for name, gpus in sizes.items())
            east, west = await asyncio.gather(*starting)
            await stage.cluster.install("--hub")
            for name, cluster in (("east", east), ("west", west)):
                await _join(stage, name, cluster)
            await stage.cluster.start_hub("--patience", "5")
            await stage.until(lambda: _active(stage, 2), "both member clusters are active", _PATIENCE)
            await stage.show_command("clusters")
            await self._first_start(stage, west)
            await self._loss(stage, east, west)

    async def _first_start(self, stage: ScenarioRun, west: LocalCluster) -> None:
        stage.title("A gang of 8 GPUs: east would never start it")
        await _submit(stage, "large", 8, run_seconds=10)
        await stage.until(lambda: _is(stage, "large", "Granted", "west"), "large is dispatched to west", _PATIENCE)
        await stage.show_command("clusters", "--gangs")
        stage.title("Two gangs of 2: east has free GPUs now, west only after large has ended")
        await _submit(stage, "careful", 2, run_seconds=40)
        await _submit(stage, "eager", 2, when_lost="Rerun", rerun_after="5s")
        for name in ("careful", "eager"):
            await stage.until(partial(_is, stage, name, "Granted", "east"), f"{name} is in east", _PATIENCE)
            await stage.until(partial(_running, stage, name, 2), f"{name} runs, as the hub shows", _PATIENCE)
        await stage.show_pods()
        await stage.until(lambda: _is(stage, "large", "Ended", "west"), "large has ended", _PATIENCE)

    async def _loss(self, stage: ScenarioRun, east: LocalCluster, west: LocalCluster) -> None:
        stage.title("East's API server is killed; its nodes keep running")
        await east.end("apiserver", kill=True)
        await stage.until(lambda: _is(stage, "eager", "Granted", "west"), "eager is started in west", _PATIENCE)
        await stage.until(
            lambda: _unknown(stage, "careful"), "careful waits, and its record has unknownSince", _PATIENCE
        )
        await stage.show_command("clusters", "--gangs")
        stage.say(
            "eager has the policy Rerun: it runs again in west. careful has the default Wait:\n"
            "its pods possibly still run in east."
        )
        stage.title("East is back")
        await east.start_server()
        await stage.until(lambda: _is(stage, "careful", "Ended", "east"), "careful has ended", _PATIENCE)
        await stage.until(lambda: _cleared(east), "east has no copy of eager", _PATIENCE)
        await stage.until(lambda: _running(stage, "eager", 2), "eager runs in west", _PATIENCE)
        await stage.show_command("clusters", "--gangs")
        stage.say(
            "careful ran once, and its result was not lost. Of eager, with Rerun, only the copy in west is left."
        )


@contextlib.asynccontextmanager
async def _member(stage: ScenarioRun, name: str, gpus: int) -> AsyncIterator[LocalCluster]:
    directory = stage.cluster.options.directory / name
    directory.mkdir()
    options = LocalOptions(
        directory=directory,
        nodes_file=directory / "nodes.yaml",
        kubeconfig=directory / "kubeconfig",
        port=unused_port(),
        data=directory / "data",
    )
    cluster = LocalCluster(options)
    node = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
    write_nodes(cluster, [NodePlan(f"{name}-0", node)])
    async with cluster.running():
        await cluster.install("--member")
        stage.say(f"{name}: one node with {gpus} GPUs")
        yield cluster


async def _join(stage: ScenarioRun, name: str, cluster: LocalCluster) -> None:
    """Create the Secret with the kubeconfig and the MemberCluster."""
    content = base64.b64encode((await cluster.hub_kubeconfig()).read_bytes()).decode()
    secret = {"metadata": {"name": name}, "data": {"kubeconfig": content}}
    await stage.client.create(SECRETS.path(_HUB), secret)
    member = {"metadata": {"name": name}, "spec": {"kubeconfigSecret": name}}
    body = {"apiVersion": MEMBER_CLUSTERS.api_version, "kind": MEMBER_CLUSTERS.kind, **member}
    await stage.client.create(MEMBER_CLUSTERS.path(), body)


async def _submit(
    stage: ScenarioRun, name: str, size: int, run_seconds: float | None = None, **annotations: str
) -> None:
    keys = {f"phalanx.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await stage.create(GROUPS, {"metadata": {"name": name, "annotations": keys}, "spec": {"minMember": size}})
    for index in range(size):
        labels = {"scheduling.x-k8s.io/pod-group": name}
        requests = {"cpu": "1", "nvidia.com/gpu": "1"}
        document = pod(f"{name}-{index}", requests=requests, labels=labels, run_seconds=run_seconds)
        document["spec"]["schedulingGates"] = [{"name": DISPATCH_GATE}]
        await stage.create(PODS, document)


async def _record(stage: ScenarioRun, gang: str) -> dict[str, Any]:
    dispatches = await stage.client.list_all(DISPATCHES.path(stage.namespace))
    records = [record for record in dispatches["items"] if record["spec"]["gang"]["name"] == gang]
    return (records[0].get("status") or {}) if records else {}


async def _is(stage: ScenarioRun, gang: str, phase: str, cluster: str) -> bool:
    record = await _record(stage, gang)
    return bool(record.get("phase") == phase and record.get("cluster") == cluster)


async def _unknown(stage: ScenarioRun, gang: str) -> bool:
    return bool((await _record(stage, gang)).get("unknownSince"))


async def _running(stage: ScenarioRun, gang: str, count: int) -> bool:
    return sum(stage_pod.running and stage_pod.name.startswith(gang) for stage_pod in await stage.pods()) == count


async def _active(stage: ScenarioRun, count: int) -> bool:
    clusters = (await stage.client.list_all(MEMBER_CLUSTERS.path()))["items"]
    conditions = [
        condition for item in clusters for condition in (item.get("status") or {}).get("conditions") or ()
    ]
    return sum(bool(condition["status"] == "True") for condition in conditions) == count


async def _cleared(east: LocalCluster) -> bool:
    pods = (await east.client.list_all(PODS.path("default")))["items"]
    return not [listed_pod for listed_pod in pods if listed_pod["metadata"]["name"].startswith("eager")]
