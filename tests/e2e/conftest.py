"""One API server per session: the embedded one, or the one that PHALANX_E2E_KUBECONFIG names."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.metadata
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import ServedResource, discover
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.clock import passing
from tests.e2e.rights import Rights
from tests.e2e.world import DEFINITIONS, NODES, PODS, Cluster, World
from tests.upstream import Shape, newest, oldest

# Schedulers in this process poll more often, so that tests do not wait for their intervals (seconds).
PERIODS = {
    "phalanx.daemon.service_part._CHECK_PERIOD": 0.2,
    "phalanx.daemon.controllers.generated_pod_groups._GATHER": 0.1,
    "phalanx.status.account_status.PERIOD": 0.2,
}


# Each scheduler reads the metadata of all installed packages several times: 10 ms of its start.
_installed = functools.cache(importlib.metadata.entry_points)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in PERIODS.items():
        monkeypatch.setattr(name, seconds)
    monkeypatch.setattr("phalanx.dialects.registry.entry_points", _installed)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A server with our CRDs installed, without controllers and kubelets: tests report phases and delete pods.

    It speaks plain HTTP: each watch of each scheduler is a connection of its own, and their handshakes would
    need half of the time. test_native_releases and test_local_claims use TLS and tokens; so does tests/attacks
    with PHALANX_FULL.
    """
    async with running(tmp_path_factory.mktemp("e2e"), insecure=True) as made:
        yield made


def spare_collector() -> None:
    """Restrict the garbage collector to objects that tests create.

    Repeated scans of the imported and collected objects cost a fifth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@asynccontextmanager
async def running(directory: Path, *, insecure: bool) -> AsyncIterator[Cluster]:
    named = os.environ.get("PHALANX_E2E_KUBECONFIG")
    server = None
    spare_collector()
    kubeconfig = Path(named) if named else directory / "kubeconfig"
    if not named:
        server = ApiServer(ServerOptions(controllers=frozenset({"definitions"}), insecure=insecure))
        await server.start()
        server.write_kubeconfig(kubeconfig)
    try:
        await install(kubeconfig)
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await sweep(client)
            made = Cluster(kubeconfig, client, server)
            yield made
            report_rights(made)
    finally:
        if server is not None:
            await server.stop()


def report_rights(cluster: Cluster) -> None:
    """Write the rights that the schedulers of the session have used, on request (tests/e2e/rights.py)."""
    if file := os.environ.get("PHALANX_RIGHTS_REPORT"):
        path = Path(file)
        before = path.read_text("utf-8").splitlines() if path.exists() else []
        used = Rights("kube-system", "phalanx", "x").used(cluster.asked)
        path.write_text("\n".join([*sorted({*before, *used}), ""]), "utf-8")


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: Cluster) -> AsyncIterator[World]:
    with passing():
        made = World(cluster)
        await made.open()
        try:
            yield made
        finally:
            await made.close()


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="session",
    params=[None, pytest.param(oldest, marks=pytest.mark.slow), newest],
    ids=["our definitions", "their oldest definitions", "their newest definitions"],
)
async def whosever_definitions(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Run the tests of a module on our definitions and on those of the upstream projects."""
    shapes: list[Shape] = request.param() if request.param is not None else []
    for shape in shapes:
        await redefine(cluster.client, shape.name, shape.status(), apart=shape.apart)
    yield
    for shape in shapes:
        (ours,) = shape.ours()["spec"]["versions"]
        status = ours["schema"]["openAPIV3Schema"]["properties"]["status"]
        await redefine(cluster.client, shape.name, status, apart=True)


async def redefine(client: KubeClient, name: str, status: dict[str, Any], *, apart: bool) -> None:
    """Gives a kind another schema of its status, as a subresource or not; returns once that is served."""
    path = DEFINITIONS.path(None, name)
    definition = await client.get(path)
    (version,) = definition["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    version["subresources"] = {"status": {}} if apart else {}
    await client.replace(path, definition)
    plural, _, group = name.partition(".")
    async with asyncio.timeout(30):
        while True:
            found = next((each for each in (await discover(client)).served if _is(each, group, plural)), None)
            if found is not None and ("status" in found.subresources) is apart:
                return
            await asyncio.sleep(0.05)


def _is(entry: ServedResource, group: str, plural: str) -> bool:
    return (entry.resource.group, entry.resource.plural) == (group, plural)


@pytest.fixture
def embedded(cluster: Cluster) -> None:
    """Return the embedded server, for tests that choose its faults."""
    if cluster.server is None:
        pytest.skip("faults are chosen on the embedded server only")


async def sweep(client: KubeClient) -> None:
    """Delete the objects that an interrupted session has left on a server that outlives it."""
    for resource in (PODS, NODES):
        for item in (await client.list_all(resource.path()))["items"]:
            metadata = item["metadata"]
            if metadata.get("namespace", metadata["name"]).startswith("e2e-"):
                path = resource.path(metadata.get("namespace"), metadata["name"])
                await client.delete(path, grace_seconds=0)


async def install(kubeconfig: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "phalanx.cli",
        "install",
        "--kubeconfig",
        str(kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    assert child.returncode == 0, output.decode()
