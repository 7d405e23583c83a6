"""The observer against the embedded API server: its state follows the stored objects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from phalanx.cluster.state import ClusterState
from phalanx.daemon.observer import Observer
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient, PatchType
from phalanx.reports.snapshot import read_cluster
from phalanx_local.server import ApiServer, ServerOptions

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = {"type": "Ready", "status": "True"}

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ApiServer]:
    running = ApiServer(ServerOptions(insecure=True))
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def client(server: ApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(ClusterConfig(server.url)) as connected:
        yield connected


@contextlib.asynccontextmanager
async def observing(client: KubeClient) -> AsyncIterator[tuple[Observer, ClusterState]]:
    state = ClusterState()
    observer = Observer(
        client,
        Intake(["phalanx"]),
        state,
        changed=lambda: None,
        pod_seen=lambda pod: None,
        pod_gone=lambda uid: None,
        gang_touched=lambda key: None,
    )
    task = asyncio.create_task(observer.run())
    try:
        async with asyncio.timeout(10):
            await observer.synced()
        yield observer, state
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the state is changed by another task, and tells nobody
            await asyncio.sleep(0.01)


def pod(name: str, **labels: str) -> dict[str, Any]:
    spec = {"schedulerName": "phalanx", "nodeName": "n1", "containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def budget(selector: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"selector": selector, **spec},
    }


def budgets_of(state: ClusterState) -> dict[str, tuple[str, ...]]:
    return {record.pod.name: record.pod.budgets for record in state.pods.values()}


async def test_the_cluster_is_seen_as_a_whole_once_and_for_all(client: KubeClient) -> None:
    async with observing(client) as (observer, _):
        assert observer.complete
        observer.list_again()
        assert observer.complete


async def test_pods_and_nodes_alone_are_not_the_whole_cluster(client: KubeClient) -> None:
    async with observing(client) as (observer, _):
        observer._others[0].synced.clear()
        assert not observer.complete


async def test_a_budget_is_followed_from_its_beginning_to_its_end(client: KubeClient) -> None:
    await client.create(PODS, pod("a", app="web"))
    await client.create(PODS, pod("b", app="db"))
    async with observing(client) as (_, state):
        await client.create(BUDGETS, budget({"matchLabels": {"app": "web"}}, maxUnavailable=1))
        await until(lambda: budgets_of(state) == {"a": ("web",), "b": ()})
        assert state.budgets["default"]["web"].allowed == 0
        ready = {"status": {"phase": "Running", "conditions": [READY]}}
        await client.patch(f"{PODS}/a/status", ready, PatchType.MERGE)
        await until(lambda: state.budgets["default"]["web"].allowed == 1)
        await client.patch(f"{BUDGETS}/web", {"spec": {"selector": {"matchLabels": None}}}, PatchType.MERGE)
        await until(lambda: budgets_of(state) == {"a": ("web",), "b": ("web",)})
        await client.delete(f"{BUDGETS}/web")
        await until(lambda: budgets_of(state) == {"a": (), "b": ()})
        assert not state.budgets["default"]


async def test_scheduler_without_the_right_to_budgets_schedules_without_them(
    server: ApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.kube.reflector.REFUSED", 0.05)
    monkeypatch.setattr("phalanx.kube.reflector.REFUSED_PAUSE", 0.02)
    server.faults.answer("GET", "/poddisruptionbudgets", 403, times=1000)
    async with observing(client) as (_, state):
        await client.create(PODS, pod("a", app="web"))
        await until(lambda: budgets_of(state) == {"a": ()})


async def test_snapshot_equals_the_observed_state(client: KubeClient) -> None:
    await client.create(PODS, pod("a", app="web"))
    await client.create(BUDGETS, budget({}, minAvailable=1))
    snapshot = await read_cluster(client, ["phalanx"], DialectOptions())
    assert budgets_of(snapshot.state) == {"a": ("web",)}
    assert snapshot.state.budgets["default"]["web"].allowed == 0
