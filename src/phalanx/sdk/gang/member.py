"""Process of a pod of a gang: it starts the worker again after each end, and in the pod of rank 0 runs the hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from pathlib import Path

from phalanx.sdk.gang.certificates import HUB, context_of
from phalanx.sdk.gang.hub import Hub
from phalanx.sdk.gang.process import run_in_pod
from phalanx.sdk.gang.settings import MemberSettings
from phalanx.sdk.gang.worker import HUB_GONE

log = logging.getLogger(__name__)

_RESTART_DELAY = 0.2
_STOP_SECONDS = 2.0


async def run_member(settings: MemberSettings, stopping: asyncio.Event) -> int:
    """Run until the gang ends (rank 0), or until this pod is deleted (other ranks). Return the exit code 0."""
    async with contextlib.AsyncExitStack() as stack:
        tasks = [asyncio.create_task(stopping.wait())]
        if settings.rank == 0:
            # Without valid keys this raises, and no port is opened.
            context = context_of(Path(settings.keys), HUB)
            facts = {"python": list(sys.version_info[:2]), "port": _free_port(settings.address)}
            hub = Hub(settings.client_timeout, facts)
            server = await hub.serve(settings.address, settings.port, context)
            stack.callback(server.close)
            log.info("hub listens on %s:%d", settings.address, settings.port)
            watching = asyncio.create_task(hub.watch_client())
            stack.callback(watching.cancel)
            tasks.append(asyncio.create_task(hub.ended.wait()))
        supervising = asyncio.create_task(_supervise())
        stack.callback(supervising.cancel)
        await asyncio.wait([*tasks, supervising], return_when=asyncio.FIRST_COMPLETED)
        supervising.cancel()
        await asyncio.wait([supervising])
    return 0


def _free_port(address: str) -> int:
    """Return a port without a listener, for the functions of rank 0 (MASTER_PORT)."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


async def _supervise() -> None:
    """Run the worker, again after each end: a function can end its process or exceed its timeout."""
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "phalanx.sdk.gang.worker", stdin=subprocess.DEVNULL
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                await _end(process)
        if code == HUB_GONE:
            log.warning("the hub is gone: this pod ends")
            return
        log.warning("the worker process ended with code %d and is started again", code)
        await asyncio.sleep(_RESTART_DELAY)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    sys.exit(run_in_pod(run_member))
