"""Process of a pod of a Dask gang: the scheduler in the first pod, a worker in every other one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import distributed
from distributed import Scheduler, Worker

from phalanx.dask.security import member_security
from phalanx.sdk.gang.process import run_in_pod
from phalanx.sdk.gang.settings import MemberSettings, resolve

#: Handler of the scheduler that the client calls while it lives.
ALIVE = "phalanx_alive"
_RETRY = 0.5
# Ends of a worker after which its pod starts again; after a retirement ("scheduler-close-worker") it does not.
_LOST = ("connection-broken", "heartbeat", "fail-hard")
# A scheduler whose pod is deleted or evicted closes its workers. If the gang ends, they are deleted anyway.
_SCHEDULER_ENDED = "scheduler-close"


def versions() -> dict[str, Any]:
    return {"python": list(sys.version_info[:2]), "distributed": distributed.__version__}


async def run_scheduler(settings: MemberSettings, stopping: asyncio.Event) -> int:
    """Run Dask's scheduler until its client stops it, or is gone for the timeout. Return the exit code."""
    seen = time.monotonic()

    async def alive() -> dict[str, Any]:
        nonlocal seen
        seen = time.monotonic()
        return versions()

    async with Scheduler(
        host=settings.address,
        port=settings.port,
        protocol="tls",
        security=member_security(Path(settings.keys)),
        # Whoever reaches the dashboard sees all tasks, and it has no login.
        dashboard_address="127.0.0.1:0",
    ) as scheduler:
        scheduler.handlers[ALIVE] = alive
        finished = asyncio.create_task(scheduler.finished())
        stopped = asyncio.create_task(stopping.wait())
        while not finished.done() and not stopped.done():
            if time.monotonic() - seen > settings.client_timeout:
                print(f"the client is gone for {settings.client_timeout:g} s: the gang ends", flush=True)
                break
            await asyncio.wait([finished, stopped], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        finished.cancel()
    return 0


class GangWorker(Worker):  # type: ignore[misc]
    """Worker that records why it ends."""

    end_reason = ""

    async def close(self, *args: Any, reason: str = "worker-close", **kwargs: Any) -> Any:
        self.end_reason = self.end_reason or reason
        return await super().close(*args, reason=reason, **kwargs)


async def run_worker(settings: MemberSettings, stopping: asyncio.Event) -> int:
    """Run a worker until it is retired (0) or has lost the scheduler (1). Return the exit code."""
    deadline = time.monotonic() + settings.client_timeout
    address = ""
    while not address:
        with contextlib.suppress(OSError):
            address = resolve(settings.hub)
            _, writer = await asyncio.open_connection(address, settings.port)
            writer.close()
            break
        address = ""
        if time.monotonic() > deadline or stopping.is_set():
            print("no scheduler: this pod ends", flush=True)
            return 0
        await asyncio.sleep(_RETRY)
    with tempfile.TemporaryDirectory(prefix="dask-") as scratch:
        async with GangWorker(
            f"tls://{address}:{settings.port}",
            name=f"worker-{settings.rank - 1}",
            host=settings.address,
            nthreads=int(os.environ.get("PHALANX_DASK_THREADS", "1")),
            memory_limit=os.environ.get("PHALANX_DASK_MEMORY") or "auto",
            security=member_security(Path(settings.keys)),
            dashboard_address="127.0.0.1:0",
            local_directory=scratch,
        ) as worker:
            finished = asyncio.create_task(worker.finished())
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait([finished, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not finished.done():
                # The pod is deleted or evicted: results move to other workers first.
                await worker.close_gracefully(reason="pod-ends")
            reason = worker.end_reason
    print(f"the worker ends: {reason}", flush=True)
    return exit_code(reason)


def exit_code(reason: str) -> int:
    """Return the exit code of a worker that ended for a reason: with 1 its pod starts again."""
    return int(reason == _SCHEDULER_ENDED or any(text in reason for text in _LOST))


async def run_member(settings: MemberSettings, stopping: asyncio.Event) -> int:
    """Run the scheduler in the pod of rank 0, else a worker. Return the exit code."""
    return await (run_worker if settings.rank else run_scheduler)(settings, stopping)


if __name__ == "__main__":
    sys.exit(run_in_pod(run_member))
