"""`phalanx up`: pods that its scheduler accepts, and the list of label gangs with their phase."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from tests.e2e.world import pod

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
LABELS = {
    "pod-group.scheduling.sigs.k8s.io/name": "train",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}


async def until(client: KubeClient, path: str, holds: Callable[[list[dict]], bool]) -> list[dict]:  # type: ignore[type-arg]
    for _ in range(600):
        items: list[dict] = (await client.get(path))["items"]  # type: ignore[type-arg]
        if holds(items):
            return items
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited in vain: {items}")


async def test_the_scheduler_of_up_takes_the_pods_of_its_names(tmp_path: Path) -> None:
    command = ["-m", "phalanx.cli", "up", "--directory", str(tmp_path), "--scheduler-name", "mine"]
    up = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert up.stdout is not None
        async with asyncio.timeout(90):
            assert (await up.stdout.readline()).startswith(b"phalanx up: ")
        async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
            for name in ("a", "b"):
                await client.create(PODS, pod(name, labels=LABELS, scheduler="mine"))
            await client.create(PODS, pod("other", scheduler="default-scheduler"))
            await until(
                client, GROUPS, lambda groups: [g.get("status", {}).get("phase") for g in groups] == ["Running"]
            )
            pods = await until(client, PODS, lambda pods: len(pods) == 3)
            placed = {each["metadata"]["name"]: bool(each["spec"].get("nodeName")) for each in pods}
            assert placed == {"a": True, "b": True, "other": False}
            # The garbage collector takes the group away with its members.
            for name in ("a", "b"):
                await client.delete(f"{PODS}/{name}")
            await until(client, GROUPS, lambda groups: not groups)
    finally:
        up.terminate()
        await up.wait()


async def test_unchanged_volcano_job_runs_on_a_plain_cluster(tmp_path: Path) -> None:
    command = ["-m", "phalanx.cli", "up", "--directory", str(tmp_path)]
    up = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert up.stdout is not None
        async with asyncio.timeout(90):
            assert (await up.stdout.readline()).startswith(b"phalanx up: ")
        async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
            template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
            spec = {
                "schedulerName": "volcano",
                "minAvailable": 2,
                "tasks": [{"name": "w", "replicas": 2, "template": template}],
            }
            body = {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": "train"},
                "spec": spec,
            }
            await client.create("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs", body)
            pods = await until(
                client, PODS, lambda pods: len(pods) == 2 and all(each["spec"].get("nodeName") for each in pods)
            )
            assert {each["spec"]["schedulerName"] for each in pods} == {"volcano"}
    finally:
        up.terminate()
        await up.wait()
