"""The API server of the end-to-end suite (the embedded one, or that of PHALANX_E2E_KUBECONFIG), with tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.attacks.arena import Arena
from tests.e2e.conftest import hurried, running
from tests.e2e.world import Cluster
from tests.extent import FULL

__all__ = ["arena", "cluster", "hurried"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """API server of the session: plain in everyday runs, over TLS and with tokens at full length.

    Over plain HTTP the administrator impersonates the accounts: RBAC is the same, and the handshakes of the 50
    watches of each scheduler, half of the time of these tests, are left out.
    """
    async with running(tmp_path_factory.mktemp("attacks"), insecure=not FULL) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def arena(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Arena]:
    made = Arena(cluster, tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
