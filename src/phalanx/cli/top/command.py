"""`phalanx top`: the command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import (
    connection_options,
    lease_namespace_option,
    policy_option,
    scheduler_names_option,
)

if TYPE_CHECKING:
    from phalanx.dashboard.watch import WatchOptions
    from phalanx.kube.client import KubeClient


@click.command("top", short_help="Queues, gangs and nodes in the terminal, live.")
@click.argument("panel", type=click.Choice(["queues", "gangs", "nodes"]), default="gangs", required=False)
@click.option("-n", "--namespace", default="", metavar="NAMESPACE", help="Begin with its gangs alone.")
@click.option("-q", "--queue", default="", metavar="QUEUE", help="Begin with the gangs of this queue alone.")
@scheduler_names_option("are shown")
@policy_option
@lease_namespace_option
@connection_options
def top(
    panel: str,
    namespace: str,
    queue: str,
    scheduler_names: tuple[str, ...],
    config: str,
    lease_namespace: str,
    kubeconfig: str | None,
) -> None:
    """Look at queues, gangs and nodes in the terminal, live, and read why and until when gangs wait.

    It watches the cluster once and rehearses the scheduler over it, as `phalanx dashboard`. Nothing is
    changed. Press ? for the keys, q ends.

    \b
    phalanx top
    phalanx top nodes
    phalanx top -n team-a
    """
    from phalanx.cli.connection import run_connected
    from phalanx.dashboard.watch import WatchOptions

    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")
    # Textual draws on stderr.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.ClickException("this needs a terminal; `phalanx jobs`, `nodes` and `queue` print lists")
    words = [f"ns:{namespace}" if namespace else "", f"queue:{queue}" if queue else ""]
    options = WatchOptions(scheduler_names, config, lease_namespace)

    async def work(client: KubeClient) -> None:
        await _show(client, options, panel, " ".join(filter(None, words)))

    run_connected(work, kubeconfig)


async def _show(client: KubeClient, options: WatchOptions, panel: str, words: str) -> None:
    import asyncio
    import logging
    import signal
    import subprocess

    from phalanx.cli.top.app import Top
    from phalanx.cli.top.feed import following
    from phalanx.dashboard.rehearsal.process import RehearsalEnded
    from phalanx.kube.errors import ApiError, ConnectionLost
    from phalanx.scheduling.framework.errors import PolicyError

    # The screen is taken; what matters of it is among the warnings of the first line.
    logging.getLogger("phalanx").addHandler(logging.NullHandler())
    # What is wrong with the connection is said in one line, before the screen is taken.
    await client.get("/version")
    try:
        async with following(client, options, errors=subprocess.DEVNULL) as (feed, watching):
            app = Top(feed, start=panel, words=words)
            watching.add_done_callback(lambda task: app.exit())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, app.exit)
            await app.run_async(mouse=False)
            if watching.done():
                watching.result()
    except BaseExceptionGroup as group:
        errors, rest = group.split((RehearsalEnded, PolicyError, ApiError, ConnectionLost, OSError))
        if rest is not None or errors is None:
            raise
        raise click.ClickException(str(errors.exceptions[0])) from group
    except (PolicyError, RehearsalEnded) as error:
        raise click.ClickException(str(error)) from error
