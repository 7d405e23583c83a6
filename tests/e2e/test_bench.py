"""`phalanx bench` as a child process: it measures a scheduler that runs, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from phalanx.cli.bench import silence
from phalanx.cli.bench.objects import LABEL, NAMESPACES, BenchWorkload, Groups
from phalanx.cli.bench.silence import report_silence
from phalanx.cli.bench.stopwatch import Stopwatch
from tests.e2e.processes import Process
from tests.e2e.world import NODES, PODS, Cluster, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def swept(cluster: Cluster) -> AsyncIterator[None]:
    """Delete the pods of a removed namespace, as a cluster's controllers would; else other tests would see
    them.
    """
    yield
    for item in (await cluster.client.list_all(PODS.path()))["items"]:
        if (namespace := item["metadata"]["namespace"]).startswith("bench-"):
            await cluster.client.delete(PODS.path(namespace, item["metadata"]["name"]), grace_seconds=0)


@pytest_asyncio.fixture(loop_scope="session")
async def scheduler(world: World) -> AsyncIterator[str]:
    name = f"{world.name}-measured"
    process = await Process.start("scheduler", "--kubeconfig", world.cluster.kubeconfig, "--scheduler-name", name)
    await process.says("ready")
    yield name
    await process.end()


@pytest.mark.parametrize("mode", ["backlog", "live"])
async def test_bench_measures_and_deletes_its_objects(world: World, scheduler: str, mode: str) -> None:
    size = ["--pods", "42", "--gang", "4", "--nodes", "2"]
    process = await Process.start(
        *("bench", mode, *size, "--scheduler-name", scheduler, "-o", "json"),
        *("--kubeconfig", world.cluster.kubeconfig),
    )
    assert await process.ends() == 0, process.output
    answer = json.loads(process.output)
    # Whole gangs only.
    assert answer["scheduler"]["pods"] == answer["bare"]["pods"] == 40
    assert answer["scheduler"]["bindings_per_second"] > 0
    assert answer["ratio"] == pytest.approx(
        answer["scheduler"]["bindings_per_second"] / answer["bare"]["bindings_per_second"]
    )
    assert min(answer[who]["created_per_second"] for who in ("scheduler", "bare")) > 0
    # A value that was not measured is not printed.
    assert ("p99_milliseconds" in answer["scheduler"]) == (mode == "live")
    assert answer["scheduler"].get("p99_milliseconds", 1) > 0
    assert await left(world) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_bench_that_is_terminated_deletes_its_objects(
    world: World, number: signal.Signals, code: int
) -> None:
    size = ["--pods", "8", "--nodes", "2", "--scheduler-name", f"{world.name}-nobody"]
    process = await Process.start("bench", "live", *size, "--kubeconfig", world.cluster.kubeconfig)

    async def begun() -> bool:
        return len(await left(world)) == 3

    await world.until(begun, "two nodes and a namespace are there")
    assert await process.end(number) == code, process.output
    assert await left(world) == []


@pytest.mark.parametrize("there", [False, True], ids=["nobody is there", "somebody holds the lease"])
async def test_bench_reports_its_partial_results_for_a_scheduler_that_binds_nothing(
    world: World, there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(silence, "SILENCE", 0.05)
    name = f"{world.name}-nobody"
    if there:
        lease = {"metadata": {"name": f"{name}-scheduler"}, "spec": {"holderIdentity": "somebody"}}
        await world.make({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    workload = BenchWorkload(world.namespace, 1, 4, name, Groups.SCHEDULER_PLUGINS)
    await report_silence(world.client, workload, Stopwatch(world.client, world.namespace))
    said = capsys.readouterr().err
    assert "after 0.05 s 0 pods are bound" in said
    words = "is held by somebody" if there else f"scheduler '{name}' does not seem to run"
    assert words in said


@pytest.mark.slow
async def test_bench_reports_soon_that_no_scheduler_binds_its_pods(world: World) -> None:
    name = f"{world.name}-nobody"
    size = ["--pods", "8", "--nodes", "2", "--scheduler-name", name]
    process = await Process.start("bench", "live", *size, "--kubeconfig", world.cluster.kubeconfig)
    await process.says(f"after 10 s 0 pods are bound: scheduler '{name}' does not seem to run")
    assert await process.end() == 143


async def left(world: World) -> list[str]:
    """Return the objects that measurements have created and not deleted."""
    found: list[str] = []
    for resource in (NODES, NAMESPACES):
        listed = (await world.client.get(resource.path(), {"labelSelector": LABEL}))["items"]
        found += [each["metadata"]["name"] for each in listed if not each["metadata"].get("deletionTimestamp")]
    return found


async def test_bench_that_does_not_fit_the_cluster_is_refused_before_objects_are_created(world: World) -> None:
    process = await Process.start(
        *("bench", "live", "--pods", "1000", "--nodes", "2", "--kubeconfig", world.cluster.kubeconfig)
    )
    assert await process.ends() == 2
    assert "1000 pods do not fit on 2 nodes of 64 pods each: set at least --nodes 16" in process.output
