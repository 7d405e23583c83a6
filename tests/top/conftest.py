"""One API server and one watch of it for all tests of `phalanx top`, with the tenants of the page's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from phalanx.cli.top.feed import Feed, following
from phalanx.dashboard.watch import WatchOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from tests.dashboard.cluster import Site, until
from tests.dashboard.conftest import site

__all__ = ["feed", "site"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def feed(site: Site) -> AsyncIterator[Feed]:
    """One that has its first verdicts."""
    async with (
        KubeClient(load_config(str(site.directory / "kubeconfig"))) as client,
        following(client, WatchOptions()) as (made, watching),
    ):
        await until(lambda: made.watch.last is not None or watching.done(), "a rehearsal")
        if watching.done():
            watching.result()
        yield made
