"""`phalanx what-if` predicts the later outcome and changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import NODES, PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)


async def phalanx(*arguments: str, code: int = 0) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert result.exit_code == code, result.output
    return str(result.stdout)


async def ask(world: World, *arguments: str) -> dict[str, Any]:
    """Return the answer, after a check that it changed nothing while no other client writes."""
    await world.settled(*world.schedulers)
    before = await versions(world)
    told = await phalanx(
        "what-if", "--kubeconfig", str(world.cluster.kubeconfig), "-n", world.namespace, "-o", "json", *arguments
    )
    assert await versions(world) == before
    answer: dict[str, Any] = json.loads(told)
    return answer


async def versions(world: World) -> dict[str, str]:
    found = {}
    for resource in (PODS, NODES, GROUPS, QUEUES):
        for each in await world.list(resource):
            found[f"{resource.plural}/{each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
    return found


def pod(world: World, name: str, cpu: str, group: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": world.namespace, "annotations": annotations},
        "spec": {"schedulerName": "phalanx", "containers": [container], **spec},
    }


def gang(world: World, name: str, pods: int, cpu: str, **spec: Any) -> list[dict[str, Any]]:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"minMember": pods, "queue": "default"},
    }
    return [group, *(pod(world, f"{name}-{number}", cpu, name, **spec) for number in range(pods))]


def written(tmp_path: Path, documents: list[dict[str, Any]]) -> str:
    path = tmp_path / "asked.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


async def applied(world: World, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        await world.make(document)


async def running(world: World, name: str, **spec: Any) -> None:
    """A pod that runs since now."""
    await world.pod(name, **spec)
    await world.until_bound(name)
    started = (await world.get(PODS, name))["metadata"]["creationTimestamp"]
    await world.patch(PODS, name, {"status": {"phase": "Running", "startTime": started}}, status=True)


async def test_gang_that_fits_starts_where_what_if_predicts(world: World, tmp_path: Path) -> None:
    await world.scheduler()
    await world.node("n1", cpu="4")
    await world.node("n2", cpu="8")
    await running(world, "runs", cpu="3")
    documents = gang(world, "train", 2, "4")
    answer = await ask(world, "-f", written(tmp_path, documents))
    (start,) = answer["asked"]
    assert (start["name"], start["state"]) == (f"{world.namespace}/train", "Now")
    await applied(world, documents)
    bound = await world.until_bound("train-0", "train-1")
    said = [room["node"].removeprefix(f"{world.name}-") for room in start["nodes"] for _ in range(room["pods"])]
    assert sorted(bound[name] for name in ("train-0", "train-1")) == said


async def test_a_gang_that_does_not_fit_waits_for_an_end_and_starts_when_it_comes(
    world: World, tmp_path: Path
) -> None:
    await world.scheduler()
    await world.node("n1", cpu="4")
    await running(world, "runs", cpu="2", activeDeadlineSeconds=600, terminationGracePeriodSeconds=5)
    documents = gang(world, "train", 2, "2")
    (start,) = (await ask(world, "-f", written(tmp_path, documents)))["asked"]
    assert start["state"] == "Later"
    assert 590 <= start["wait_seconds"] <= 605
    assert [blocker["name"] for blocker in start["blockers"]] == [f"{world.namespace}/runs"]
    await applied(world, documents)
    await world.until_held("train-0")
    await world.phase("Succeeded", "runs")
    await world.until_bound("train-0", "train-1")


async def test_what_if_lists_the_pods_that_would_be_evicted(world: World, tmp_path: Path) -> None:
    await world.scheduler()
    name = f"high-{world.namespace}"
    await world.make(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    )
    await world.node("n1", cpu="4")
    await running(world, "low", cpu="3")
    await running(world, "lower", cpu="1")
    documents = [pod(world, "urgent", "3", priorityClassName=name)]
    answer = await ask(world, "-f", written(tmp_path, documents))
    assert [start["state"] for start in answer["asked"]] == ["AfterEvictions"]
    assert [(each["name"], each["lost"]) for each in answer["evicted"]] == [(f"{world.namespace}/low", True)]
    await applied(world, documents)
    gone = await world.until(lambda: leaving(world), "somebody is told to leave")
    assert gone == {"low"}


async def leaving(world: World) -> set[str]:
    pods = await world.list(PODS)
    there = {each["metadata"]["name"] for each in pods if not each["metadata"].get("deletionTimestamp")}
    return {"low", "lower"} - there


async def test_a_gang_above_its_queues_capability_starts_with_a_higher_one(world: World, tmp_path: Path) -> None:
    await world.scheduler()
    queue = f"q-{world.namespace}"
    stated = {"weight": 1, "capability": {"cpu": "2"}}
    await world.make(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": queue},
            "spec": stated,
        }
    )
    await world.node("n1", cpu="8")
    documents = gang(world, "train", 2, "2")
    documents[0]["spec"]["queue"] = queue
    asked = written(tmp_path, documents)
    (start,) = (await ask(world, "-f", asked))["asked"]
    assert start["state"] == "NotWithinHorizon"
    assert queue in start["verdict"]["message"]
    (start,) = (await ask(world, "-f", asked, "--queue", queue, "--capability", "cpu=4"))["asked"]
    assert start["state"] == "Now"
    await applied(world, documents)
    await world.until_event("QuotaExceeded", "train-0", words=queue)
    await world.patch(QUEUES, queue, {"spec": {"capability": {"cpu": "4"}}})
    await world.until_bound("train-0", "train-1")


@pytest.mark.slow
async def test_a_waiting_gang_starts_with_two_more_nodes(world: World, tmp_path: Path) -> None:
    await world.scheduler()
    await world.node("n1", cpu="4")
    await applied(world, gang(world, "train", 3, "4"))
    await world.until_held("train-0")
    name = f"{world.namespace}/train"
    (start,) = (await ask(world, "--gang", name))["asked"]
    assert start["state"] == "NotWithinHorizon"
    (start,) = (await ask(world, "--gang", name, "--add-nodes", "1", "--like", f"{world.name}-n1"))["asked"]
    assert start["state"] == "NotWithinHorizon"
    answer = await ask(world, "--gang", name, "--add-nodes", "2", "--like", f"{world.name}-n1")
    assert [start["state"] for start in answer["asked"]] == ["Now"]
    assert (answer["without"]["now"], answer["changed"]["now"]) == (0, 1)
    await world.node("n2", cpu="4")
    await world.node("n3", cpu="4")
    await world.until_bound("train-0", "train-1", "train-2")


@pytest.mark.slow
async def test_what_if_starts_only_jobs_that_fit_the_free_resources(world: World) -> None:
    await world.scheduler()
    await world.node("n1", cpu="4")
    await world.node("n2", cpu="8")
    await running(world, "runs", cpu="3")
    (row,) = (await ask(world, "--free", "--pod", "cpu=2"))["rows"]
    await applied(world, gang(world, "less", row["pods"], "2"))
    await world.until_bound(*(f"less-{number}" for number in range(row["pods"])))
    (row,) = (await ask(world, "--free", "--pod", "cpu=2"))["rows"]
    assert row["pods"] == 0


async def test_no_secret_is_asked_for_and_nothing_is_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[tuple[str, str]] = []
    request = KubeClient.request

    async def noted(self: KubeClient, method: str, path: str, **more: Any) -> bytes:
        asked_for.append((method, path))
        return await request(self, method, path, **more)

    await world.node("n1", cpu="4")
    monkeypatch.setattr(KubeClient, "request", noted)
    await phalanx("capture", "--kubeconfig", str(world.cluster.kubeconfig), "-o", str(tmp_path / "c.json"))
    assert {method for method, _ in asked_for} == {"GET"}
    assert not [path for _, path in asked_for if "secrets" in path]


async def test_user_who_may_list_pods_of_one_namespace_only_sees_the_limits_of_the_answer(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = KubeClient.request
    closed = ("/api/v1/pods", "/apis/scheduling.volcano.sh/v1beta1/queues")

    async def confined(self: KubeClient, method: str, path: str, **more: Any) -> bytes:
        if path in closed:
            raise ApiError(403, "Forbidden", f"may not list {path}")
        return await request(self, method, path, **more)

    await world.scheduler()
    await world.node("n1", cpu="4")
    await applied(world, gang(world, "train", 2, "4"))
    await world.until_held("train-0")
    await world.settled(*world.schedulers)
    monkeypatch.setattr(KubeClient, "request", confined)
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = world.namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    told = await phalanx("what-if", "--kubeconfig", str(kubeconfig), "--gang", f"{world.namespace}/train")
    assert "would not start within 7d" in told
    assert "Based on readable objects only. Cannot read:" in told
    assert f"pods.core: outside of namespace {world.namespace}: may not list /api/v1/pods" in told
    assert "queues.scheduling.volcano.sh: may not list" in told


async def test_a_capture_is_simulated_and_asked_about_like_the_cluster(world: World, tmp_path: Path) -> None:
    await world.scheduler()
    await world.node("n1", cpu="4")
    await running(world, "runs", cpu="3", activeDeadlineSeconds=600, terminationGracePeriodSeconds=5)
    await applied(world, gang(world, "train", 2, "2", activeDeadlineSeconds=100))
    await world.until_held("train-0")
    path = tmp_path / "capture.json.gz"
    await phalanx("capture", "--kubeconfig", str(world.cluster.kubeconfig), "-o", str(path))
    name = f"{world.namespace}/train"
    told = await phalanx("what-if", "--capture", str(path), "--gang", name, "-o", "json")
    (captured,) = json.loads(told)["asked"]
    (live,) = (await ask(world, "--gang", name))["asked"]
    assert (captured["state"], captured["start"]) == (live["state"], live["start"])
    report = tmp_path / "report"
    await phalanx("simulate", "--cluster", str(path), "--report", str(report), "--quiet")
    (row,) = [line for line in (report / "jobs.csv").read_text().splitlines() if name in line]
    assert "done" in row
