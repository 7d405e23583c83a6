"""One embedded API server per end-to-end test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer

from .world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = ApiServer(ServerOptions())
    await server.start()
    try:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
            made = World(server, client, tmp_path)
            try:
                yield made
            finally:
                await made.close()
    finally:
        await server.stop()
