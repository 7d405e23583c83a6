"""The shell of a process: signals, services that end, and the order of drain, lease and close."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import phalanx
import phalanx_local
from phalanx.kube import process
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.leadership import Leadership
from phalanx.kube.process import LeadingService, StoppableWork, run_until_signal


class Service:
    """A service that is ready at once, and fails with `error` where it has one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ready = asyncio.Event()
        self.stopped = asyncio.Event()
        self._error = error

    def stop(self) -> None:
        self.stopped.set()

    async def run(self) -> None:
        self.ready.set()
        if self._error is not None:
            raise self._error
        await self.stopped.wait()


async def silent() -> None:
    """Announce nothing."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_stops_all_services_after_the_announcement(number: signal.Signals) -> None:
    services = Service(), Service()

    async def announce() -> None:
        for service in services:
            await service.ready.wait()
        os.kill(os.getpid(), number)

    async with asyncio.timeout(10):
        await run_until_signal(*services, announce=announce)
    assert all(service.stopped.is_set() for service in services)


async def test_failed_service_stops_the_remaining_ones_and_its_error_is_raised() -> None:
    beside = Service()
    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="broken"):
            await run_until_signal(beside, Service(ValueError("broken")), announce=silent)
    assert beside.stopped.is_set()


async def test_announcement_is_cancelled_when_the_services_end_before_they_are_ready() -> None:
    announcing = asyncio.Event()

    async def announce() -> None:
        announcing.set()
        try:
            await asyncio.Event().wait()
        finally:
            announcing.clear()

    service = Service()
    running = asyncio.create_task(run_until_signal(service, announce=announce))
    await announcing.wait()
    service.stop()
    await running
    await asyncio.sleep(0)
    assert not announcing.is_set()


class Recorded(LeadingService):
    """A leading service that notes its steps."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(Leadership(client, None))
        self.steps: list[str] = []

    async def serve(self) -> None:
        self.steps.append("serve")
        self.ready.set()
        await asyncio.Event().wait()

    async def drain(self) -> None:
        self.steps.append(f"drain, ready: {self.ready.is_set()}")

    async def close(self) -> None:
        self.steps.append("close")


async def reachable(client: KubeClient) -> None:
    """An API server that answers at once."""


async def test_leading_service_drains_before_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "until_reachable", reachable)
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as client:
        service = Recorded(client)
        running = asyncio.create_task(service.run())
        await service.ready.wait()
        service.stop()
        await running
    assert service.steps == ["serve", "drain, ready: False", "close"]


async def test_leading_service_that_is_stopped_before_the_server_answers_only_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(client: KubeClient) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(process, "until_reachable", never)
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as client:
        service = Recorded(client)
        service.stop()
        await service.run()
    assert service.steps == ["close"]


async def test_leading_service_ends_with_the_error_of_its_election(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "until_reachable", reachable)
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as client:
        service = Recorded(client)

        async def fail(lost: Callable[[], None]) -> None:
            await service.ready.wait()
            raise ValueError("broken")

        monkeypatch.setattr(service.leadership, "run", fail)
        async with asyncio.timeout(10):
            with pytest.raises(ValueError, match="broken"):
                await service.run()
    assert service.steps[-2:] == ["drain, ready: False", "close"]


async def test_leading_service_that_is_cancelled_while_it_drains_leaves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draining = asyncio.Event()

    async def drain() -> None:
        draining.set()
        await asyncio.Event().wait()

    async def elect(lost: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(process, "until_reachable", reachable)
    before = asyncio.all_tasks()
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as client:
        service = Recorded(client)
        monkeypatch.setattr(service, "drain", drain)
        monkeypatch.setattr(service.leadership, "run", elect)
        running = asyncio.create_task(service.run())
        await service.ready.wait()
        running.cancel()
        await draining.wait()
        running.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await running
    assert asyncio.all_tasks() <= before


async def test_signal_asks_stoppable_work_to_end() -> None:
    async def work(stopping: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await stopping.wait()

    async with asyncio.timeout(10):
        await run_until_signal(StoppableWork(work), signals=[signal.SIGHUP])


def test_only_the_shell_installs_signal_handlers() -> None:
    """Exceptions are `phalanx bench`, which cleans up after SIGTERM and ends with another exit code, and the
    members of a gang of functions or of Dask, which end their children first.
    """
    root = Path(phalanx.__file__).parent
    folders = {"src": root, "local": Path(phalanx_local.__file__).parent}
    installing = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in folders.items()
        for path in folder.rglob("*.py")
        if "add_signal_handler" in path.read_text("utf-8")
    }
    assert installing == {"src/kube/process.py", "src/cli/bench/command.py", "src/sdk/gang/process.py"}
