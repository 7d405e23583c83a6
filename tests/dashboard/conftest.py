"""One API server for all tests of the page: its tenants, queues and gangs are seeded once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.dashboard.cluster import Page, Site
from tests.e2e.conftest import install


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory: Path = tmp_path_factory.mktemp("dashboard")
    server = ApiServer(ServerOptions(controllers=frozenset({"definitions"})))
    await server.start()
    server.write_kubeconfig(directory / "kubeconfig")
    try:
        await install(directory / "kubeconfig")
        async with KubeClient(load_config(str(directory / "kubeconfig"))) as client:
            made = Site(server, client, directory)
            await made.install_dashboard()
            await seed(made)
            yield made
    finally:
        await server.stop()


async def seed(site: Site) -> None:
    """`ours` waits for what `hidden-ns` has; each may see itself alone."""
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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def page(site: Site) -> AsyncIterator[Page]:
    """With the administrator's own rights, as on a laptop."""
    async with site.dashboard() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(site: Site) -> AsyncIterator[Page]:
    """In the cluster: people bring tokens."""
    async with site.dashboard("token") as made:
        yield made
