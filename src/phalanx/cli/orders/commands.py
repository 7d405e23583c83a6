"""`phalanx hold`, `release`, `cancel` and `move`: for gangs of any dialect, by their owners' own API."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.arguments import TargetsArguments
from phalanx.cli.completion import gangs, names_from, queues
from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target

Order = Callable[["KubeClient", "Target"], Awaitable[str]]

_names = click.argument(
    "names", metavar="[KIND/]NAME...", nargs=-1, required=True, shell_complete=names_from(gangs)
)


@dataclass(frozen=True, kw_only=True)
class CancelArguments(TargetsArguments):
    """Arguments of `phalanx cancel`."""

    yes: bool
    dry_run: bool


@dataclass(frozen=True, kw_only=True)
class MoveArguments(TargetsArguments):
    """Arguments of `phalanx move`; `queue` is the target."""

    queue: str


def _each(invocation: Invocation, arguments: TargetsArguments, order: Order) -> None:
    """Does something to each and prints the line that it returns; one that fails does not keep the others."""
    from phalanx.cli.listing.harmless import harmless
    from phalanx.kube.errors import ApiError
    from phalanx.orders.errors import BadNameError, OrderError
    from phalanx.orders.target import TargetFinder

    async def work(client: KubeClient) -> int:
        finder, failed = TargetFinder(client, arguments.namespace or client.namespace), 0
        for name in arguments.names:
            try:
                click.echo(harmless(await order(client, await finder.find(name))))
            except click.UsageError:
                raise
            except BadNameError as error:
                raise click.UsageError(error.message) from error
            except (click.ClickException, OrderError) as error:
                click.echo(f"Error: {harmless(error.message)}", err=True)
                failed += 1
            except ApiError as error:
                click.echo(f"Error: {name}: the API server refused: {harmless(error.message)}", err=True)
                failed += 1
        return failed

    if invocation.run(work):
        raise click.exceptions.Exit(1)


@click.command("hold", short_help="Keep gangs that wait from starting.")
@_names
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def hold(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Keep gangs that wait from starting, until they are released.

    A Volcano Job gets a Command (AbortJob); Jobs, JobSets, training jobs, RayJobs and TrainJobs are suspended by
    their own field, and in one of our queues they get the annotation phalanx.dev/hold. A gang without a job cannot
    be held, nor can what runs (phalanx job suspend ends its pods). NAME may be that of the job, of its PodGroup or,
    as pod/NAME, of one of its pods.

    \b
    phalanx hold train
    phalanx hold pytorchjob/bert -n research
    """
    from phalanx.orders.holding import hold as order

    _each(invocation, arguments, order)


@click.command("release", short_help="Let gangs that are held take their turn.")
@_names
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def release(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Let gangs that are held take their turn again.

    \b
    phalanx release train
    """
    from phalanx.orders.holding import release as order

    _each(invocation, arguments, order)


@click.command("cancel", short_help="Delete gangs with what made them.")
@_names
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@pass_invocation(CancelArguments, namespace_option, connection_options)
def cancel(invocation: Invocation, arguments: CancelArguments) -> None:
    """Delete gangs with their pods, and with the object at the top that would make the pods anew.

    Of a run of a CronJob only the run is deleted. Of a gang without a job the PodGroup and its pods are. It asks
    first, with the names of what goes.

    \b
    phalanx cancel train
    phalanx cancel podgroup/bert-xyz --yes
    """
    from phalanx.cli.listing.harmless import harmless
    from phalanx.orders import cancelling

    if not arguments.yes and not arguments.dry_run and not sys.stdin.isatty():
        raise click.UsageError("it asks before it deletes, and there is nobody to ask here: add --yes")

    async def order(client: KubeClient, target: Target) -> str:
        cancelling.refuse_foreign_members(target)
        if arguments.dry_run:
            return f"would delete {cancelling.described(target)}"
        if not arguments.yes and not click.confirm(f"Delete {harmless(cancelling.described(target))}?", err=True):
            return f"{target.title} is left alone"
        return await cancelling.cancel(client, target)

    _each(invocation, arguments, order)


@click.command("move", short_help="Move gangs that wait to another queue.")
@_names
@click.option(
    "-q", "--queue", required=True, metavar="QUEUE", help="Where they go.", shell_complete=names_from(queues)
)
@pass_invocation(MoveArguments, namespace_option, connection_options)
def move(invocation: Invocation, arguments: MoveArguments) -> None:
    """Move gangs that wait to another queue.

    Only what says its queue itself is changed: a PodGroup that nobody controls, the label phalanx.dev/queue of a
    suspended job, the annotation scheduling.volcano.sh/queue-name of pods that nobody makes. A Volcano Job keeps
    its queue. What has nodes is not moved.

    \b
    phalanx move podgroup/train --queue research
    """
    from phalanx.cli.orders import moving

    checked: list[str] = []

    async def order(client: KubeClient, target: Target) -> str:
        if not checked:
            checked.append(await moving.check_queue(client, arguments.queue))
        if checked[0]:
            raise click.ClickException(f"{target.title}: {checked[0]}")
        return await moving.move(client, target, arguments.queue)

    _each(invocation, arguments, order)
