"""An empty cluster to install into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer


@pytest_asyncio.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """Return the kubeconfig of an administrator of an empty cluster."""
    server = ApiServer(ServerOptions())
    await server.start()
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    yield path
    await server.stop()
