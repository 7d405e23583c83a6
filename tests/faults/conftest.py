"""One embedded API server for all tests of faults, and for each test a proxy before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.clock import passing
from tests.e2e.conftest import install
from tests.e2e.world import Cluster, World

from .ledger import BindingLedger
from .proxy import Proxy
from .scenario import Scenario


class Site:
    """A `world` whose schedulers reach the API server through a `proxy`; clients that act for users connect
    directly. `ledger` records the changes on the server.
    """

    def __init__(self, world: World, proxy: Proxy, ledger: BindingLedger) -> None:
        self.world = world
        self.proxy = proxy
        self.ledger = ledger


class Ends:
    """The end of the quiet story."""

    def __init__(self) -> None:
        self.quiet: Sequence[str] = ()

    async def known(self, world: World) -> None:
        """Run the undisturbed story once."""
        if self.quiet:
            return
        apart = World(world.cluster)
        await apart.open()
        try:
            scheduler = await apart.scheduler()
            async with Scenario(apart) as story:
                await story.play()
                await apart.settled(scheduler, quiet=1.5)
                self.quiet = await story.end()
        finally:
            await apart.close()


@pytest.fixture(scope="session")
def ends() -> Ends:
    return Ends()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def behind(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """With our CRDs installed, without controllers: tests play them."""
    server = ApiServer(ServerOptions(insecure=True, controllers=frozenset({"definitions"})))
    await server.start()
    kubeconfig = tmp_path_factory.mktemp("faults") / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    try:
        await install(kubeconfig)
        async with KubeClient(load_config(str(kubeconfig))) as client:
            yield Cluster(kubeconfig, client, server)
    finally:
        await server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def site(behind: Cluster, tmp_path: Path) -> AsyncIterator[Site]:
    server = behind.server
    assert server is not None
    proxy = Proxy(server.url)
    await proxy.start()
    seen = Cluster(proxy.write_kubeconfig(tmp_path / "kubeconfig"), behind.client, server)
    seen.numbers = behind.numbers
    ledger = BindingLedger(server.store)
    with passing():
        world = World(seen)
        await world.open()
        try:
            yield Site(world, proxy, ledger)
        finally:
            await world.close()
            ledger.close()
            await proxy.stop()
