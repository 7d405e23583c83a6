"""GPUs that an annotation of their node cordons, as a reason of the node; read from an embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.dialects.options import DialectOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.reports.nodes.node_list import read_nodes
from phalanx_local.server import ApiServer, ServerOptions


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    server = ApiServer(ServerOptions())
    await server.start()
    server.write_kubeconfig(tmp_path / "admin")
    async with KubeClient(load_config(str(tmp_path / "admin"))) as admin:
        yield admin
    await server.stop()


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("", []),
        (" , ", []),
        ("GPU-8f2a", ["DeviceCordon: 1 GPU: GPU-8f2a"]),
        ("GPU-2, GPU-1,GPU-2", ["DeviceCordon: 2 GPUs: GPU-1, GPU-2"]),
    ],
)
async def test_node_names_its_cordoned_cards(client: KubeClient, listed: str, told: list[str]) -> None:
    metadata = {"name": "n0", "annotations": {"hami.io/device-cordon": listed}}
    await client.create("/api/v1/nodes", {"metadata": metadata, "status": {"allocatable": {"cpu": "8"}}})
    (entry,) = await read_nodes(client, "", "", DialectOptions(), lambda *told: None)
    assert [str(reason) for reason in entry.reasons] == told
