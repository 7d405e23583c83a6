"""Kinds that the controllers watch: served ones, in their served version, from the moment of their definition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from phalanx.controllers import served_watches
from phalanx.controllers.controller import WatchedKind
from phalanx.controllers.served_watches import ServedWatches
from phalanx.kube import reflector
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx_local.server import ApiServer, ServerOptions

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD, NEW = (Resource("example.com", version, "teams", "Team") for version in ("v1", "v2"))


class Watcher:
    """Watches pods and `teams`, which it can read in both versions."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return [
            WatchedKind(PODS, lambda change: None),
            WatchedKind(NEW, self._sink("v2")),
            WatchedKind(OLD, self._sink("v1")),
        ]

    def _sink(self, version: str) -> Any:
        def sink(change: Change[bytes]) -> None:
            if isinstance(change, Upsert):
                self.known[change.key[1]] = version
            elif isinstance(change, Delete):
                self.known.pop(change.key[1], None)

        return sink

    async def until(self, **known: str) -> None:
        async with asyncio.timeout(30):
            while self.known != known:  # noqa: ASYNC110 - it stands in the API
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[KubeClient]:
    server = ApiServer(ServerOptions(insecure=True))
    await server.start()
    async with KubeClient(ClusterConfig(server.url)) as connected:
        yield connected
    await server.stop()


async def define(client: KubeClient, *versions: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = [{"name": name, "served": True, "storage": name == versions[0], "schema": schema} for name in versions]
    names = {"plural": "teams", "singular": "team", "kind": "Team", "listKind": "TeamList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": served}
    await client.create(DEFINITIONS, {"metadata": {"name": "teams.example.com"}, "spec": spec})


async def team(client: KubeClient, version: str) -> None:
    body = {"apiVersion": f"example.com/{version}", "kind": "Team", "metadata": {"name": "a"}}
    async with asyncio.timeout(30):
        while True:  # until it is served
            try:
                await client.create(f"/apis/example.com/{version}/namespaces/default/teams", body)
            except Exception:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_kind_is_watched_from_when_it_is_defined_until_it_is_not(
    client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watcher = Watcher()
    watches = ServedWatches(client, [watcher], Failures())
    running = asyncio.create_task(watches.run())
    try:
        async with asyncio.timeout(30):
            await watches.synced()
        said = [record.getMessage() for record in caplog.records if "teams" in record.getMessage()]
        assert said == ["not served, so not watched until it is: teams.example.com"]
        for version in ("v1", "v2"):
            await define(client, version)
            await team(client, version)
            await watcher.until(a=version)
            await client.delete(f"{DEFINITIONS}/teams.example.com")
            await watcher.until()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert said == []


async def test_one_of_two_served_versions_is_watched(client: KubeClient) -> None:
    await define(client, "v1", "v2")
    await team(client, "v1")
    watcher, other = Watcher(), Watcher()
    watches = ServedWatches(client, [watcher, other], Failures())
    running = asyncio.create_task(watches.run())
    try:
        async with asyncio.timeout(30):
            await watches.synced()
        assert watcher.known == other.known == {"a": "v2"}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_controller_without_list_rights_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reflector, "REFUSED", 0.1)
    monkeypatch.setattr(reflector, "REFUSED_PAUSE", 0.02)
    monkeypatch.setattr(served_watches, "_RETRY_SECONDS", 0.01)
    server = ApiServer(ServerOptions(insecure=True))
    server.faults.answer("GET", "/pods", 403, times=10_000)
    await server.start()
    async with KubeClient(ClusterConfig(server.url)) as client:
        watches = ServedWatches(client, [Watcher()], Failures())
        running = asyncio.create_task(watches.run())
        waiting = asyncio.create_task(watches.synced())
        try:
            async with asyncio.timeout(60):
                while "cannot list any" not in caplog.text:  # noqa: ASYNC110 - nothing tells of lines
                    await asyncio.sleep(0.01)
            # Ten more checks, which must not be logged.
            done, _ = await asyncio.wait({waiting, running}, timeout=0.1)
            assert not done
            said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert sum("cannot list any" in each for each in said) == 1
        finally:
            for task in (running, waiting):
                task.cancel()
            await asyncio.gather(running, waiting, return_exceptions=True)
    await server.stop()
