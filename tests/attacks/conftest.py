"""The API server of the end-to-end suite (the embedded one, or that of PHALANX_E2E_KUBECONFIG), with tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.attacks.arena import Arena
from tests.e2e.conftest import cluster
from tests.e2e.world import Cluster

__all__ = ["arena", "cluster"]


@pytest_asyncio.fixture(loop_scope="session")
async def arena(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Arena]:
    made = Arena(cluster, tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
