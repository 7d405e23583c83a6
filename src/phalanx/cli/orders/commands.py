"""Commands `phalanx hold`, `release`, `cancel` and `move` for gangs of any API, executed through the API of their
owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.arguments import TargetsArguments
from phalanx.cli.completion import gangs, names_from, queues
from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.orders.confirmation import CancelArguments, cancel_options, confirmed, on_terminal

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target

Order = Callable[["KubeClient", "Target"], Awaitable[str]]

_names = click.argument(
    "names", metavar="[KIND/]NAME...", nargs=-1, required=True, shell_complete=names_from(gangs)
)


@dataclass(frozen=True, kw_only=True)
class MoveArguments(TargetsArguments):
    """Arguments of `phalanx move`; `queue` is the target."""

    queue: str


def _apply_to_each(invocation: Invocation, arguments: TargetsArguments, order: Order) -> None:
    """Execute a command such as hold on each named gang and print its result. A failure does not stop the remaining
    gangs."""
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
                click.echo(
                    f"Error: {name}: request rejected by the API server: {harmless(error.message)}", err=True
                )
                failed += 1
        return failed

    if invocation.run(work):
        raise click.exceptions.Exit(1)


@click.command("hold", short_help="Hold waiting gangs: they do not start until released.")
@_names
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def hold(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Hold waiting gangs: they do not start until they are released.

    A Volcano Job is held by a Command (AbortJob). Jobs, JobSets, training jobs, RayJobs and TrainJobs are
    suspended by their own field; jobs in a Phalanx queue get the annotation phalanx.dev/hold. A gang without a
    job cannot be held, nor can a running gang (use phalanx job suspend, which ends its pods). NAME is the job,
    its PodGroup, or one of its pods (pod/NAME).

    \b
    phalanx hold train
    phalanx hold pytorchjob/bert -n research
    """
    from phalanx.orders.holding import hold as order

    _apply_to_each(invocation, arguments, order)


@click.command("release", short_help="Release held gangs.")
@_names
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def release(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Release held gangs, so that they can start.

    \b
    phalanx release train
    """
    from phalanx.orders.holding import release as order

    _apply_to_each(invocation, arguments, order)


@click.command("cancel", short_help="Delete gangs with their pods and their owner.")
@_names
@cancel_options
@pass_invocation(CancelArguments, namespace_option, connection_options)
def cancel(invocation: Invocation, arguments: CancelArguments) -> None:
    """Delete gangs with their pods and the top-level owner that would recreate the pods.

    For a CronJob only the run is deleted. For a gang without a job the PodGroup and its pods are deleted. The
    command lists the objects and asks for confirmation.

    \b
    phalanx cancel train
    phalanx cancel podgroup/bert-xyz --yes
    """
    from phalanx.cli.listing.harmless import harmless
    from phalanx.orders import cancelling

    if not arguments.yes and not arguments.dry_run and not on_terminal():
        raise click.UsageError("cannot ask for confirmation: stdin is not a terminal; add --yes")

    async def order(client: KubeClient, target: Target) -> str:
        cancelling.refuse_foreign_members(target)
        if arguments.dry_run:
            return f"would delete {cancelling.described(target)}"
        if not confirmed(harmless(cancelling.described(target)), arguments):
            return f"{target.title} is not deleted"
        return await cancelling.cancel(client, target)

    _apply_to_each(invocation, arguments, order)


@click.command("move", short_help="Move waiting gangs to another queue.")
@_names
@click.option(
    "-q", "--queue", required=True, metavar="QUEUE", help="Target queue.", shell_complete=names_from(queues)
)
@pass_invocation(MoveArguments, namespace_option, connection_options)
def move(invocation: Invocation, arguments: MoveArguments) -> None:
    """Move waiting gangs to another queue.

    The command changes the object that names the queue: a PodGroup without controller, the label
    phalanx.dev/queue of a suspended job, or the annotation scheduling.volcano.sh/queue-name of pods without
    controller. The queue of a Volcano Job cannot be changed. A gang whose pods have nodes is not moved.

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

    _apply_to_each(invocation, arguments, order)
