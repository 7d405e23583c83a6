"""A small cluster with an example of everything: running and waiting gangs with reasons, loans, evictions,
reservations.

Names and sizes are fixed, and events have a fixed order, each awaited; ages and uids are those of the day.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from phalanx.demo.localcluster import LocalCluster, LocalOptions
from phalanx.kube.client import KubeClient
from tests.e2e.world import pod

GPU = "nvidia.com/gpu"
RACK = "topology.kubernetes.io/rack"
POLICY = """\
actions: "enqueue, allocate, preempt, reserve, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: fairshare
    arguments: {fairshare.half-life: 24h}
  - name: drf
  - name: predicates
  - name: capacity
  - name: nodeorder
  - name: binpack
configurations:
- name: reserve
  arguments: {depth: 1}
"""
_VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
_OURS = "/apis/phalanx.dev/v1alpha1"
_QUEUES = {"vision": 40, "language": 32, "speech": 24}
_PATIENCE = 90.0
_HOUR = 3600


class SeededCluster:
    """A cluster of `phalanx up`, and its events."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def client(self) -> KubeClient:
        return self.cluster.client

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.options.kubeconfig

    @property
    def policy(self) -> str:
        return self.cluster.options.policy

    async def seed(self) -> None:
        for namespace in _QUEUES:
            await self._make("/api/v1/namespaces", "v1", "Namespace", namespace)
        for queue, gpus in _QUEUES.items():
            spec = {"deserved": {GPU: str(gpus)}}
            await self._make(f"{_VOLCANO}/queues", "scheduling.volcano.sh/v1beta1", "Queue", queue, spec=spec)
        priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await self._make(priorities, "scheduling.k8s.io/v1", "PriorityClass", "urgent", value=1000)
        await self._gang("language", "llama-pretrain", 5, 8, 9 * _HOUR)
        await self._gang("language", "eval-suite", 4, 2, 2 * _HOUR)
        await self._gang("vision", "segment", 2, 8, 3 * _HOUR)
        await self._gang("vision", "detector", 2, 4, 1 * _HOUR)
        await self._gang("speech", "whisper-tune", 2, 4, 2 * _HOUR)
        await self._gang("speech", "notebooks", 4, 1, 4 * _HOUR, minimum=1)
        # The last free room, and an urgent gang that needs an eviction.
        await self._gang("vision", "augment", 3, 4, _HOUR * 2 // 3)
        await self._gang("speech", "hotfix", 1, 2, 1 * _HOUR, priority="urgent")
        await self._gang("vision", "detr-large", 2, 8, 6 * _HOUR, runs=False)
        await self._gang("language", "bert-finetune", 2, 4, 2 * _HOUR, runs=False)
        await self._gang("speech", "asr-sweep", 14, 8, 2 * _HOUR, runs=False)
        await self._reservations()

    async def _reservations(self) -> None:
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        start = (hour + timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%SZ")
        seat = {"name": "seat", "resources": {"requests": {"cpu": "4", GPU: "1"}}}
        spec: dict[str, Any] = {
            "template": {"spec": {"containers": [seat]}},
            "count": 8,
            "start": start,
            "duration": "3h",
            "owners": [{"namespaces": ["vision"]}],
            "queue": "vision",
        }
        await self._make(f"{_OURS}/reservations", "phalanx.dev/v1alpha1", "Reservation", "course", spec=spec)
        close = (hour + timedelta(hours=19)).strftime("%Y-%m-%dT%H:%M:%SZ")
        window = {"nodes": {"names": ["gpu-12"]}, "start": close, "duration": "2h"}
        windows = f"{_OURS}/maintenancewindows"
        await self._make(windows, "phalanx.dev/v1alpha1", "MaintenanceWindow", "firmware", spec=window)

    async def _make(self, path: str, version: str, kind: str, name: str, **fields: Any) -> None:
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
        await self.client.create(path, document)

    async def _gang(
        self, namespace: str, name: str, members: int, gpus: int, seconds: int, *, minimum: int = 0,
        runs: bool = True, priority: str = "",
    ) -> None:  # fmt: skip
        """Create a gang in its namespace's queue with a run time; wait until it runs or has a waiting reason."""
        groups = f"{_VOLCANO}/namespaces/{namespace}/podgroups"
        spec = {"minMember": minimum or members, "queue": namespace}
        if priority:
            spec["priorityClassName"] = priority
        await self._make(groups, "scheduling.volcano.sh/v1beta1", "PodGroup", name, spec=spec)
        more: dict[str, Any] = {"priorityClassName": priority} if priority else {}
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for number in range(members):
            document = pod(
                f"{name}-{number}",
                annotations={"scheduling.k8s.io/group-name": name},
                requests={"cpu": str(4 * gpus), "memory": f"{20 * gpus}Gi", GPU: str(gpus)},
                activeDeadlineSeconds=seconds,
                **more,
            )
            await self.client.create(pods, document)

        async def running() -> bool:
            found = (await self.client.get(pods))["items"]
            mine = [each for each in found if each["metadata"]["name"].startswith(f"{name}-")]
            return sum(bool(each["status"].get("phase") == "Running") for each in mine) == members

        async def told() -> bool:
            group = await self.client.get(f"{groups}/{name}")
            return bool((group.get("status") or {}).get("conditions"))

        await until(running if runs else told, f"{namespace}/{name}")


async def until(holds: Callable[[], Awaitable[object]], what: str) -> None:
    """Waits until something holds. Raises TimeoutError, with its name."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        await asyncio.sleep(0.1)


def _node(number: int) -> str:
    """One of a nodes file; four of them are a rack."""
    offered = f"{{cpu: 64, memory: 512Gi, {GPU}: 8, pods: 110}}"
    return f"- name: gpu-{number:02}\n  allocatable: {offered}\n  labels: {{{RACK}: r{(number + 3) // 4}}}\n"


@contextlib.asynccontextmanager
async def seeded_cluster(directory: Path) -> AsyncIterator[SeededCluster]:
    """It runs with its page, and everything has happened. `directory` is empty."""
    (directory / "policy.yaml").write_text(POLICY, "utf-8")
    options = LocalOptions(
        directory=directory,
        nodes_file=directory / "nodes.yaml",
        kubeconfig=directory / "kubeconfig",
        policy=str(directory / "policy.yaml"),
        dashboard=True,
    )
    cluster = LocalCluster(options)
    options.nodes_file.write_text("".join(_node(number) for number in range(1, 13)), "utf-8")
    async with cluster.running():
        made = SeededCluster(cluster)
        await made.seed()
        yield made
