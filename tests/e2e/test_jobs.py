"""Volcano Jobs on a whole cluster as users run them, with kubectl, and with crashes of each process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from phalanx.demo.localcluster import LocalCluster, LocalOptions

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

Json = dict[str, Any]
PATIENCE = 60.0


class Kubectl:
    """The real one."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def __call__(self, *arguments: str, text: str = "") -> str:
        child = await asyncio.create_subprocess_exec(
            *("kubectl", "--kubeconfig", str(self._kubeconfig), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await child.communicate(text.encode())
        assert child.returncode == 0, error.decode()
        return out.decode()

    async def apply(self, *documents: Json) -> None:
        await self("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    async def get(self, *what: str) -> Json:
        found: Json = json.loads(await self("get", *what, "-o", "json"))
        return found

    async def phase(self, job: str, *wanted: str) -> Json:
        """Waits until a job is in one of these phases."""
        state: Json = {}
        for _ in range(int(PATIENCE / 0.3)):
            found = await self.get("vcjob", job)
            state = found.get("status", {}).get("state", {})
            if state.get("phase") in wanted:
                return found
            await asyncio.sleep(0.3)
        raise AssertionError(f"{job} is {state}, not {wanted}")

    async def pods(self, job: str) -> dict[str, str]:
        items = (await self.get("pods", "-l", f"volcano.sh/job-name={job}"))["items"]
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in items}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("jobs")
    nodes = directory / "nodes.yaml"
    nodes.write_text("- {name: 'n-{i}', count: 2, allocatable: {cpu: 8, memory: 16Gi, pods: 50}}\n")
    options = LocalOptions(directory=directory, nodes_file=nodes, kubeconfig=directory / "kubeconfig")
    async with LocalCluster(options).running() as running:
        yield running


@pytest.fixture
def kubectl(cluster: LocalCluster) -> Kubectl:
    return Kubectl(cluster.options.kubeconfig)


def job(name: str, replicas: int = 3, *, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [{"name": "w", "replicas": replicas, "template": template}], **spec},
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_starts_whole_and_restarts_whole(kubectl: Kubectl) -> None:
    await kubectl.apply(job("train", policies=[{"event": "PodEvicted", "action": "RestartJob"}]))
    await kubectl.phase("train", "Running")
    before = {pod["metadata"]["uid"] for pod in (await kubectl.get("pods"))["items"]}
    await kubectl("delete", "pod", "train-w-1", "--now")
    for _ in range(200):
        found = await kubectl.phase("train", "Running")
        if found["status"].get("retryCount") == 1:
            break
        await asyncio.sleep(0.3)
    assert found["status"]["retryCount"] == 1
    pods = (await kubectl.get("pods", "-l", "volcano.sh/job-name=train"))["items"]
    assert len(pods) == 3
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    table = (await kubectl("get", "vcjob", "train")).split()
    assert table[:4] == ["NAME", "STATUS", "MINAVAILABLE", "RUNNINGS"]
    await kubectl("delete", "vcjob", "train", "--wait")
    for _ in range(100):
        if not await kubectl.pods("train"):
            break
        await asyncio.sleep(0.2)
    assert await kubectl.pods("train") == {}


@pytest.mark.asyncio(loop_scope="module")
async def test_controller_killed_while_it_creates_pods_creates_no_duplicates(
    cluster: LocalCluster, kubectl: Kubectl
) -> None:
    jobs = [job(f"many-{number}", 4, cpu="100m") for number in range(12)]
    applying = asyncio.create_task(kubectl.apply(*jobs))
    for pause in (0.4, 0.7, 0.3):
        await asyncio.sleep(pause)
        await cluster.end("controllers", kill=True)
        await cluster.start_controllers()
    await applying
    for number in range(12):
        found = await kubectl.phase(f"many-{number}", "Running")
        assert "retryCount" not in found["status"]
        assert len(await kubectl.pods(f"many-{number}")) == 4
    await kubectl("delete", "vcjob", "--all")


@pytest.mark.asyncio(loop_scope="module")
async def test_quota_holds_a_whole_job_and_admits_it_when_there_is_room(kubectl: Kubectl) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "2"}},
    }
    await kubectl("create", "namespace", "tight")
    await kubectl("apply", "-n", "tight", "-f", "-", text=yaml.safe_dump(quota))
    await asyncio.sleep(0.5)
    await kubectl("apply", "-n", "tight", "-f", "-", text=yaml.safe_dump(job("held")))
    state: Json = {}
    for _ in range(100):
        found = json.loads(await kubectl("get", "-n", "tight", "vcjob", "held", "-o", "json"))
        state = found.get("status", {}).get("state", {})
        if state.get("reason") == "QuotaExceeded":
            break
        await asyncio.sleep(0.2)
    assert state["phase"] == "Pending"
    assert "small" in state["message"]
    assert json.loads(await kubectl("get", "-n", "tight", "pods", "-o", "json"))["items"] == []
    patch = json.dumps({"spec": {"hard": {"pods": "3"}}})
    await kubectl("patch", "-n", "tight", "resourcequota", "small", "--type=merge", "-p", patch)
    for _ in range(200):
        found = json.loads(await kubectl("get", "-n", "tight", "vcjob", "held", "-o", "json"))
        if found["status"]["state"]["phase"] == "Running":
            break
        await asyncio.sleep(0.3)
    assert found["status"]["state"]["phase"] == "Running"
    await kubectl("delete", "namespace", "tight", "--wait=false")


@pytest.mark.asyncio(loop_scope="module")
async def test_commands_suspend_and_resume(kubectl: Kubectl) -> None:
    await kubectl.apply(job("pausing"))
    found = await kubectl.phase("pausing", "Running")
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "pausing",
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    for name, action, phase in (("stop", "AbortJob", "Aborted"), ("go", "ResumeJob", "Running")):
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "action": action,
            "target": owner,
        }
        await kubectl.apply(command)
        await kubectl.phase("pausing", phase)
    assert (await kubectl.get("commands.bus.volcano.sh"))["items"] == []
    assert len(await kubectl.pods("pausing")) == 3
    await kubectl("delete", "vcjob", "pausing")


@pytest.mark.asyncio(loop_scope="module")
async def test_job_that_upstream_would_refuse_gets_a_reason_and_disturbs_no_other_job(kubectl: Kubectl) -> None:
    await kubectl.apply(job("bad", minAvailable=9), job("good", 1))
    await kubectl.phase("good", "Running")
    state = (await kubectl.get("vcjob", "bad"))["status"]["state"]
    assert state["reason"] == "InvalidJob"
    assert "should not be greater than total replicas" in state["message"]
    await kubectl("delete", "vcjob", "--all")
