"""Parts of a gang in one process: a hub on a loopback address, workers and clients with certificates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from phalanx.sdk.errors import GangEndedError, PhalanxError
from phalanx.sdk.gang.calls import CallPickler
from phalanx.sdk.gang.certificates import HUB, WORKER, GangKeys, client_context, context_of, make_keys
from phalanx.sdk.gang.client import GangClient, PickledCall, pickle_call
from phalanx.sdk.gang.hub import Hub

VERSION = list(sys.version_info[:2])
WORKER_COMMAND = (sys.executable, "-m", "phalanx.sdk.gang.worker")


def written(keys: GangKeys, directory: Path) -> Path:
    for name, content in keys.of_members.items():
        (directory / name).write_bytes(content)
    return directory


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalGang:
    """Hub at 127.0.0.1 with worker processes and one client."""

    def __init__(self, directory: Path, python: list[int], client_timeout: float) -> None:
        self.keys = make_keys()
        self.port = unused_port()
        self.client_timeout = client_timeout
        self._directory = written(self.keys, directory)
        self.hub = Hub(client_timeout, {"python": python, "port": 1})
        self.workers: dict[int, asyncio.subprocess.Process] = {}
        self.clients: list[asyncio.Task[None]] = []
        self.ends: list[Callable[[PhalanxError], None]] = []
        self.numbers = iter(range(1, 1_000_000))

    def context(self, role: str = HUB) -> ssl.SSLContext:
        return context_of(self._directory, role)

    async def start_worker(self, rank: int) -> None:
        environment = {
            **os.environ,
            "PHALANX_GANG_TASK": "worker" if rank else "hub",
            "PHALANX_GANG_POD": f"w-{rank - 1 if rank else 0}",
            "PHALANX_GANG_HUB": "127.0.0.1",
            "PHALANX_GANG_ADDRESS": f"10.0.0.{rank}",
            "PHALANX_GANG_PORT": str(self.port),
            "PHALANX_GANG_CLIENT_TIMEOUT": str(self.client_timeout),
            "PHALANX_VOLUME_GANG_KEYS": str(self._directory),
        }
        self.workers[rank] = await asyncio.create_subprocess_exec(*WORKER_COMMAND, env=environment)

    def client(self, *, keys: GangKeys | None = None, retries: int = 2, timeout: float = 0.0) -> GangClient:
        @contextlib.asynccontextmanager
        async def reach() -> AsyncIterator[tuple[str, int]]:
            yield "127.0.0.1", self.port

        client = GangClient(client_context(keys or self.keys), reach, retries=retries, timeout=timeout)
        self.clients.append(asyncio.create_task(client.run()))
        self.ends.append(client.end)
        return client

    def task(self, function: object, *arguments: object, rank: int = -1) -> PickledCall:
        return pickle_call(CallPickler(), next(self.numbers), function, arguments, {}, rank)


@contextlib.asynccontextmanager
async def local_gang(
    directory: Path, *, workers: int = 1, python: list[int] = VERSION, client_timeout: float = 30.0
) -> AsyncIterator[LocalGang]:
    gang = LocalGang(directory, python, client_timeout)
    server = await gang.hub.serve("127.0.0.1", gang.port, gang.context())
    try:
        for rank in range(workers):
            await gang.start_worker(rank)
        yield gang
    finally:
        for running in gang.clients:
            running.cancel()
        await asyncio.gather(*gang.clients, return_exceptions=True)
        for end in gang.ends:
            end(GangEndedError("the test has ended"))
        server.close()
        for process in gang.workers.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


__all__ = ["WORKER", "LocalGang", "local_gang"]
