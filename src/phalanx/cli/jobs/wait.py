"""Wait of a command for jobs to reach a state, with an exit code for the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.kube.client import KubeClient
    from phalanx.reports.jobs.entries import JobEntry


def wait_for_all(
    invocation: Invocation,
    targets: Sequence[tuple[str, str, str]],
    state: str,
    timeout: float | None,
    *,
    quiet: bool = False,
) -> int:
    """Wait until all jobs reach a state and return the worst exit code. Targets are (kind, namespace or "",
    name)."""

    from phalanx.orders.job_wait import TIMED_OUT

    async def work(client: KubeClient) -> int:
        try:
            async with asyncio.timeout(timeout):
                waits = [
                    _wait(client, kind, namespace or client.namespace, name, state, quiet, alone=len(targets) == 1)
                    for kind, namespace, name in targets
                ]
                return max(await asyncio.gather(*waits))
        except TimeoutError:
            click.echo(f"not {state} after {timeout:g} s", err=True)
            return TIMED_OUT

    return invocation.run(work)


async def _wait(
    client: KubeClient, kind: str, namespace: str, name: str, state: str, quiet: bool, *, alone: bool
) -> int:
    from phalanx.cli.jobs.order_errors import shown_errors
    from phalanx.orders.job_wait import ENDED_OTHERWISE, progress, wait_for_job

    start, last = time.monotonic(), ""

    def changed(entry: JobEntry | None) -> None:
        nonlocal last
        line = progress(entry) if entry is not None else "deleted"
        if line != last and not quiet:
            click.echo(f"{time.monotonic() - start:7.1f} s  {'' if alone else f'{name}: '}{line}")
        last = line

    with shown_errors():
        code, entry = await wait_for_job(client, (kind, namespace, name), state, changed)
    if code == ENDED_OTHERWISE:
        result = f"is {entry.state}, not {state}" if entry is not None else f"was deleted, not {state}"
        click.echo(f"{name} {result}", err=True)
    return code
