"""The client against the embedded API server: TLS, a token, and everything that a real server does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.auth.config import load_config
from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import discover
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.kube.lease import LeaderElector
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.kube.wait import wait_until
from phalanx.kube.wire import read_head
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer

pytestmark = pytest.mark.e2e

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
TEAMS = Resource("example.com", "v1", "teams", "Team")


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "schedulerName": "phalanx"},
    }


def binding(name: str, uid: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def definition() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "teams.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "teams", "singular": "team", "kind": "Team", "listKind": "TeamList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


class View:
    """State of a reflector's sink: names and uids."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.deleted: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, change: Change[Any]) -> None:
        match change:
            case Upsert(_, _, (_, name), uid):
                self.uids[name] = uid
            case Delete((_, name), uid):
                assert self.uids.pop(name) == uid
                self.deleted.append(uid)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._news.wait()


async def nap(_: float) -> None:
    """The reflector's pauses, made short."""
    await asyncio.sleep(0.01)


@asynccontextmanager
async def reflecting(client: KubeClient, resource: Resource, view: View) -> AsyncIterator[Reflector[Any]]:
    reflector = Reflector(client, resource, read_head, view, page_size=2, sleep=nap)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer(ServerOptions())
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def cluster(api: ApiServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    api.write_kubeconfig(tmp_path / "kubeconfig")
    async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
        yield client


async def test_a_pod_is_bound_once(cluster: KubeClient) -> None:
    await cluster.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    created = await cluster.create(PODS.path("default"), pod("a"))
    uid, path = created["metadata"]["uid"], PODS.path("default", "a", "binding")
    with pytest.raises(ApiError, match="409"):
        await cluster.create(path, binding("a", "somebody-else", "n1"))
    assert (await cluster.create(path, binding("a", uid, "n1")))["status"] == "Success"
    with pytest.raises(ApiError, match="409 Conflict"):
        await cluster.create(path, binding("a", uid, "n1"))
    assert (await cluster.get(PODS.path("default", "a")))["spec"]["nodeName"] == "n1"
    with pytest.raises(ApiError, match="409"):
        await cluster.delete(PODS.path("default", "a"), uid="somebody-else")
    await cluster.delete(PODS.path("default", "a"), uid=uid, grace_seconds=0)
    with pytest.raises(ApiError, match="404 NotFound") as caught:
        await cluster.get(PODS.path("default", "a"))
    assert caught.value.details["name"] == "a"


async def test_a_lost_answer_to_a_binding_is_unknown_and_a_look_resolves_it(
    api: ApiServer, cluster: KubeClient
) -> None:
    await cluster.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    uid = (await cluster.create(PODS.path("default"), pod("a")))["metadata"]["uid"]
    api.faults.drop("POST", r"/binding$", after_write=True)
    with pytest.raises(ConnectionLost):
        await cluster.create(PODS.path("default", "a", "binding"), binding("a", uid, "n1"))
    assert (await cluster.get(PODS.path("default", "a")))["spec"]["nodeName"] == "n1"


async def test_discovery_finds_the_served_kinds(cluster: KubeClient) -> None:
    before = await discover(cluster)
    assert before.find("", "pods") == [PODS]
    assert before.find("", "nodes") == [NODES]
    assert before.has_subresource(PODS, "binding")
    assert before.lookup("po") == [PODS]
    assert before.degraded == {}
    assert before.find("example.com", "teams") == []
    await cluster.create(CRDS.path(), definition())

    async with asyncio.timeout(60):
        while (found := (await discover(cluster)).find("example.com", "teams")) != [TEAMS]:
            assert found == []  # a moment later than the definition, and then at once as a whole


async def test_reflector_sees_all_changes_through_every_interruption(api: ApiServer, cluster: KubeClient) -> None:
    created = [await cluster.create(PODS.path("default"), pod(name)) for name in "abcde"]
    view = View()
    async with reflecting(cluster, PODS, view) as reflector:
        await reflector.synced.wait()
        assert view.uids == {made["metadata"]["name"]: made["metadata"]["uid"] for made in created}

        await cluster.create(PODS.path("default"), pod("f"))
        await view.until(lambda: "f" in view.uids)
        await cluster.delete(PODS.path("default", "f"), grace_seconds=0)
        await view.until(lambda: "f" not in view.uids)

        lists = reflector.lists
        assert (
            api.faults.cut_watches(r"/pods") == 1
        )  # cut: the next watch continues at the last version of this one
        await cluster.create(PODS.path("default"), pod("g"))
        await view.until(lambda: "g" in view.uids)
        assert reflector.lists == lists

        # The reflector sees nothing for a while: deleted, created and recreated objects are found by
        # comparison.
        api.faults.answer("GET", r"/pods", 503, times=5, retry_after=1)
        api.faults.cut_watches(r"/pods")
        old = view.uids["a"]
        for name in ("a", "b"):
            await cluster.delete(PODS.path("default", name), grace_seconds=0)
        await cluster.create(PODS.path("default"), pod("a"))
        await cluster.create(PODS.path("default"), pod("h"))
        api.faults.expire_history()
        await view.until(lambda: "h" in view.uids and "b" not in view.uids and view.uids["a"] != old)
        assert old in view.deleted
        assert reflector.lists == lists + 1
        everything = await cluster.list_all(PODS.path(), limit=3)
        assert view.uids == {item["metadata"]["name"]: item["metadata"]["uid"] for item in everything["items"]}


async def test_a_kind_appears_and_disappears_under_a_reflector(cluster: KubeClient) -> None:
    view = View()
    async with reflecting(cluster, TEAMS, view) as reflector:
        await asyncio.wait_for(reflector.synced.wait(), 60)
        assert reflector.state is ReflectorState.ABSENT
        await cluster.create(CRDS.path(), definition())
        await view.until(lambda: reflector.state is ReflectorState.WATCHING)
        team = {"apiVersion": "example.com/v1", "kind": "Team", "metadata": {"name": "t"}, "spec": {"size": 3}}
        await cluster.create(TEAMS.path("default"), team)
        await view.until(lambda: "t" in view.uids)
        await cluster.delete(CRDS.path(None, "teams.example.com"))
        await view.until(lambda: not view.uids and reflector.state is ReflectorState.ABSENT)


async def test_events_reach_the_cluster_as_a_series(cluster: KubeClient) -> None:
    uid = (await cluster.create(PODS.path("default"), pod("a")))["metadata"]["uid"]
    recorder = EventRecorder(cluster, controller="phalanx", instance="phalanx-test")
    task = asyncio.create_task(recorder.run())
    about = ObjectReference("Pod", "a", "default", uid, "v1")
    events = Resource("", "v1", "events")
    for _ in range(2):
        recorder.record(about, type="Warning", reason="FailedScheduling", action="Scheduling", note="no room")
        assert await recorder.drain(5)
    assert recorder.sent == 2
    (event,) = (await cluster.get(events.path("default"), {"fieldSelector": f"involvedObject.uid={uid}"}))["items"]
    assert event["metadata"]["name"].startswith("a.")
    assert (event["reason"], event["message"], event["series"]["count"]) == ("FailedScheduling", "no room", 2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_leadership_passes_on(cluster: KubeClient) -> None:
    def elector(identity: str) -> LeaderElector:
        return LeaderElector(
            cluster, "phalanx", identity=identity, lease_duration=90, renew_deadline=60, retry_period=20, sleep=nap
        )

    first, second = elector("first"), elector("second")
    running = [asyncio.create_task(first.run())]
    await asyncio.wait_for(first.leading.wait(), 60)
    running.append(asyncio.create_task(second.run()))
    async with asyncio.timeout(60):
        while not second.holder:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    assert (first.is_leader(), second.is_leader(), second.holder) == (True, False, "first")
    running[0].cancel()
    await asyncio.wait_for(second.leading.wait(), 60)
    assert not first.is_leader()
    running[1].cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_waiting_for_a_state(cluster: KubeClient) -> None:
    async def later() -> None:
        await asyncio.sleep(0.05)
        await cluster.create(PODS.path("default"), pod("a"))

    task = asyncio.create_task(later())
    objects = await wait_until(cluster, PODS, lambda found: len(found) == 1, seconds=60, namespace="default")
    assert list(objects) == [("default", "a")]
    await task


async def test_a_token_that_is_refused(api: ApiServer, cluster: KubeClient) -> None:
    api.faults.answer("GET", r"/pods$", 401)
    with pytest.raises(ApiError, match="401 Unauthorized"):
        await cluster.get(PODS.path("default"))
