"""Execution of a long-running command until a signal, with one line on stdout when it is ready."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from phalanx.kube.process import RunningService, run_until_signal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from phalanx.cli.invocation import Invocation
    from phalanx.kube.client import KubeClient


async def run_announced(
    service: RunningService,
    announcement: Callable[[], str],
    *,
    address: str = "",
    part: str = "",
    leads: Callable[[], bool] = lambda: True,
) -> None:
    """Run a service until a signal, and print `announcement()` when it is ready. With an `address` serve health and
    metrics of this `part`. Raises click.ClickException for an unusable address."""

    async def announce() -> None:
        await service.ready.wait()
        click.echo(announcement())

    if not address:
        await run_until_signal(service, announce=announce)
        return
    from phalanx.kube.health_endpoint import health_endpoint
    from phalanx.kube.listening import ListenError

    try:
        async with health_endpoint(address, part, service.ready.is_set, leads):
            await run_until_signal(service, announce=announce)
    except ListenError as error:
        raise click.ClickException(str(error)) from error


def run_leading(invocation: Invocation, work: Callable[[KubeClient], Coroutine[Any, Any, str]]) -> None:
    """Call `work`, which returns the cause of a lost lease ("" if it was not lost); then raise ClickException."""
    if cause := invocation.run(work, fastest_loop()):
        raise click.ClickException(cause)


def fastest_loop() -> Callable[[], AbstractEventLoop] | None:
    """Return the factory of uvloop's event loops; None selects asyncio's where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return factory
