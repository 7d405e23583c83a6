"""How a command keeps a service running: until a signal, with a line when it is ready."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

import click


class RunningService(Protocol):
    """`run` returns after `stop`; `ready` is set while it serves."""

    @property
    def ready(self) -> asyncio.Event: ...

    def stop(self) -> None: ...

    async def run(self) -> None: ...


async def run_until_signal(service: RunningService, announcement: Callable[[], str]) -> None:
    """SIGTERM and Ctrl-C stop it. What `announcement` gives is printed once it is ready."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)

    async def announce() -> None:
        await service.ready.wait()
        click.echo(announcement())

    announcing = asyncio.create_task(announce())
    try:
        await service.run()
    finally:
        announcing.cancel()
