"""One API server for all tests of the page: its tenants, queues and gangs are seeded once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest
import pytest_asyncio

from phalanx.cli.installation.hub_manifests import hub_access, hub_definitions
from phalanx.dashboard import watch
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.dashboard.cluster import Page, Site
from tests.e2e.conftest import install


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    # Tests wait for the next look of a watch in this process, and the cluster is small (seconds).
    with mock.patch.multiple(watch, _GATHER=0.02, _LEAST_PAUSE=0.1, _REACHABLE_PERIOD=0.1):
        async with seeded_site(tmp_path_factory.mktemp("dashboard"), installed=True) as made:
            yield made


@contextlib.asynccontextmanager
async def seeded_site(directory: Path, *, installed: bool = False) -> AsyncIterator[Site]:
    """A server of its own, with the objects of both `seed`s; with the page's own account if `installed`."""
    server = ApiServer(ServerOptions(controllers=frozenset({"definitions", "clusterroles"})))
    await server.start()
    server.write_kubeconfig(directory / "kubeconfig")
    try:
        await install(directory / "kubeconfig")
        async with KubeClient(load_config(str(directory / "kubeconfig"))) as client:
            made = Site(server, client, directory)
            if installed:
                await made.install_dashboard()
            await seed(made)
            await seed_hub(made)
            yield made
    finally:
        await server.stop()


async def seed(site: Site) -> None:
    """Create two namespaces:

    `ours` waits for room that `hidden-ns` uses; the user of each may see only its own.
    """
    site.token("ours")
    site.token("hidden-ns")
    await site.node("node-1", "r1", **{"nvidia.com/gpu": "4"})
    await site.node("shy-node", "r2", **{"nvidia.com/gpu": "4"})
    await site.queue("our-queue", deserved={"nvidia.com/gpu": "4"}, capability={"nvidia.com/gpu": "8"})
    await site.queue("covert-queue", deserved={"nvidia.com/gpu": "4"})
    gpus = {"cpu": "1", "nvidia.com/gpu": "2"}
    await site.gang("hidden-ns", "covert-train", 4, queue="covert-queue", requests=gpus)
    for number, node in enumerate(("node-1", "node-1", "shy-node", "shy-node")):
        await site.bind("hidden-ns", f"covert-train-{number}", node)
    await site.gang("ours", "train", 2, queue="our-queue", requests=gpus)
    await site.gang("ours", "impossible", 2, queue="our-queue", requests={"cpu": "1000"})
    await site.pod("hidden-ns", "quiet-pod", requests={"cpu": "900"})
    await site.pod("ours", "alone", requests={"cpu": "900"})
    await site.evicted(
        "ours", "train-9", "Preempted by gang hidden-ns/covert-train on node shy-node: queue covert-queue"
    )
    await site.evicted("hidden-ns", "quiet-pod", "Preempted by gang ours/train")


async def seed_hub(site: Site) -> None:
    """It is a hub: west takes gangs of both tenants, east has not answered for a while."""
    await site.apply([*hub_definitions(), *hub_access("phalanx-system")])
    silent = {"reason": "Silent", "message": "no answer for 5m"}
    has = {
        "version": "v1.36.2",
        "nodes": {"total": 10, "ready": 9},
        "allocatable": {"cpu": "80", "memory": "320Gi", "nvidia.com/gpu": "16"},
        "used": {"cpu": "12500m", "nvidia.com/gpu": "4"},
    }
    await site.member("west", {"status": "True", "reason": "Connected"}, has, cost=2)
    await site.member("east", {"status": "False", **silent}, state="Drain")
    answers = [
        {"cluster": "west", "start": "2026-01-02T03:09:00Z", "message": "after gang other/long"},
        {"cluster": "east", "message": "no node has 8 nvidia.com/gpu"},
    ]
    lost = {"epoch": 1, "cluster": "east", "outcome": "Lost", "message": "silent", "time": "2026-01-02T03:00:00Z"}
    sent = {"phase": "Granted", "epoch": 2, "cluster": "west", "promised": "2026-01-02T03:09:00Z"}
    await site.dispatch("ours", "train", {**sent, "answers": answers, "attempts": [lost]})
    await site.dispatch(
        "ours", "parked", {"phase": "Pending", "reason": "NoCluster", "message": "no cluster has room"}
    )
    unknown = {"phase": "Granted", "epoch": 1, "cluster": "east", "unknownSince": "2026-01-02T03:04:05Z"}
    await site.dispatch("hidden-ns", "covert-train", unknown)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def page(site: Site) -> AsyncIterator[Page]:
    """With the administrator's own rights, as on a laptop."""
    async with site.dashboard() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(site: Site) -> AsyncIterator[Page]:
    """A dashboard as in the cluster: users bring tokens."""
    async with site.dashboard("token") as made:
        yield made
