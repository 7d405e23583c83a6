"""`phalanx top`: the command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    import asyncio

    from phalanx.dashboard.watch import WatchOptions
    from phalanx.kube.client import KubeClient


@dataclass(frozen=True, kw_only=True)
class TopArguments:
    """Arguments of `phalanx top`."""

    panel: str
    namespace: str
    queue: str

    @property
    def words(self) -> str:
        """Return the filter with which the list of gangs begins."""
        words = [f"ns:{self.namespace}" if self.namespace else "", f"queue:{self.queue}" if self.queue else ""]
        return " ".join(filter(None, words))


@click.command("top", short_help="Queues, gangs and nodes in the terminal, live.")
@click.argument("panel", type=click.Choice(["queues", "gangs", "nodes"]), default="gangs", required=False)
@click.option("-n", "--namespace", default="", metavar="NAMESPACE", help="Begin with its gangs alone.")
@click.option("-q", "--queue", default="", metavar="QUEUE", help="Begin with the gangs of this queue alone.")
@scheduler_options("are shown")
@pass_invocation(TopArguments, connection_options)
def top(invocation: Invocation, arguments: TopArguments) -> None:
    """Look at queues, gangs and nodes in the terminal, live, and read why and until when gangs wait.

    It watches the cluster once and rehearses the scheduler over it, as `phalanx dashboard`. Nothing is
    changed. Press ? for the keys, q ends.

    \b
    phalanx top
    phalanx top nodes
    phalanx top -n team-a
    """
    from phalanx.dashboard.watch import WatchOptions

    invocation.refuse_empty_names()
    # Textual draws on stderr.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.ClickException("this needs a terminal; `phalanx jobs`, `nodes` and `queue` print lists")
    options = WatchOptions(invocation.scheduler_names, invocation.config, invocation.lease_namespace)

    async def work(client: KubeClient) -> None:
        await _show(client, options, arguments)

    invocation.run(work)


async def _show(client: KubeClient, options: WatchOptions, arguments: TopArguments) -> None:
    """Show the panels until the user quits, a signal ends the process, or the watch of the cluster fails."""
    import asyncio
    import logging
    import signal
    import subprocess

    from phalanx.cli.top.app import Top
    from phalanx.cli.top.feed import following
    from phalanx.dashboard.rehearsal.process import RehearsalEnded
    from phalanx.kube.errors import ApiError, ConnectionLost
    from phalanx.kube.process import STOP_SIGNALS, StoppableWork, run_until_signal
    from phalanx.scheduling.framework.errors import PolicyError

    # The log must not write over the panels; the first line of the screen shows its warnings.
    logging.getLogger("phalanx").addHandler(logging.NullHandler())
    # A connection that fails is reported in one line, before the screen is in use.
    await client.get("/version")

    async def work(stopping: asyncio.Event) -> None:
        async with following(client, options, errors=subprocess.DEVNULL) as (feed, watching):
            app = Top(feed, start=arguments.panel, words=arguments.words)
            stopped = asyncio.create_task(stopping.wait())
            for task in (watching, stopped):
                task.add_done_callback(lambda task: app.exit())
            await app.run_async(mouse=False)
            stopped.cancel()
            if watching.done():
                watching.result()

    try:
        # A terminal that is closed sends SIGHUP.
        await run_until_signal(StoppableWork(work), signals=(*STOP_SIGNALS, signal.SIGHUP))
    except BaseExceptionGroup as group:
        errors, rest = group.split((RehearsalEnded, PolicyError, ApiError, ConnectionLost, OSError))
        if rest is not None or errors is None:
            raise
        raise click.ClickException(str(errors.exceptions[0])) from group
    except (PolicyError, RehearsalEnded) as error:
        raise click.ClickException(str(error)) from error
