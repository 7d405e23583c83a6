"""A server with its controllers of Jobs, our controllers of jobs, a scheduler, and kubelets that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from phalanx.controllers.registry import all_controllers
from phalanx.controllers.service import ControllerOptions, ControllerService
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.conftest import install
from tests.e2e.world import PODS, Cluster, World


@contextlib.asynccontextmanager
async def job_cluster(directory: Path, policy: str, *, kubelets: bool = False) -> AsyncIterator[World]:
    """Serve a cluster without nodes. With `kubelets` bound pods run, and deleted pods end at once."""
    async with contextlib.AsyncExitStack() as stack:
        kinds = frozenset({"definitions", "garbage", "jobs"})
        server = ApiServer(ServerOptions(controllers=kinds, insecure=True))
        await server.start()
        stack.push_async_callback(server.stop)
        kubeconfig = directory / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        await install(kubeconfig)
        client = await stack.enter_async_context(KubeClient(load_config(str(kubeconfig))))
        world = World(Cluster(kubeconfig, client, server))
        await world.open()
        stack.push_async_callback(world.close)
        service = ControllerService(client, ControllerOptions(), all_controllers)
        running = asyncio.create_task(service.run())
        await service.ready.wait()
        (directory / "policy.yaml").write_text(policy)
        await world.scheduler(config=str(directory / "policy.yaml"))
        played = asyncio.create_task(_play_kubelets(world)) if kubelets else None
        try:
            yield world
        finally:
            if played is not None:
                played.cancel()
            service.stop()
            await running


async def _play_kubelets(world: World) -> None:
    while True:
        for pod in await world.list(PODS):
            metadata, name = pod["metadata"], pod["metadata"]["name"]
            with contextlib.suppress(ApiError):
                if metadata.get("deletionTimestamp"):
                    await world.client.delete(
                        PODS.path(world.namespace, name), uid=metadata["uid"], grace_seconds=0
                    )
                elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                    path = PODS.path(world.namespace, name, "status")
                    await world.client.patch(path, {"status": {"phase": "Running"}}, PatchType.MERGE)
        await asyncio.sleep(0.25)
