"""Commands that change queues and quotas: create, open, close, delete and edit of a queue, set of a quota."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.completion import names_from, queues
from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Amounts = dict[str, str] | None


def _amounts(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Amounts:
    """Parse `NAME=AMOUNT[,NAME=AMOUNT]`, repeatable; `none` stands for no amounts. Return None without any."""
    from phalanx.model.text.quantity import QuantityError, parse_quantity
    from phalanx.orders.submission.job_request import GPU

    if not texts:
        return None
    amounts: dict[str, str] = {}
    for pair in ",".join(texts).split(","):
        name, equals, amount = pair.strip().partition("=")
        if pair.strip() == "none":
            continue
        try:
            valid = bool(name and equals) and parse_quantity(amount, 1000) >= 0
        except QuantityError:
            valid = False
        if not valid:
            raise click.BadParameter(f"{quoted(pair)} is not NAME=AMOUNT, such as cpu=64 or gpu=8", ctx, param)
        amounts[GPU if name == "gpu" else name] = amount
    return amounts


_queue_name = click.argument("name", metavar="QUEUE", shell_complete=names_from(queues))


@dataclass(frozen=True, kw_only=True)
class QueueArguments:
    """Arguments of commands about one queue."""

    name: str


@dataclass(frozen=True, kw_only=True)
class QueueFieldArguments(QueueArguments):
    """Arguments of `phalanx queue create` and `edit`; None leaves a field, an empty amount removes it."""

    parent: str | None
    weight: int | None
    priority: int | None
    capability: Amounts
    deserved: Amounts
    guarantee: Amounts
    reclaimable: bool | None
    order: str | None

    def spec(self) -> dict[str, Any]:
        """Return the stated fields of a Queue's spec; None removes a field."""
        values: dict[str, Any] = {
            "parent": self.parent,
            "weight": self.weight,
            "priority": self.priority,
            "reclaimable": self.reclaimable,
            "dequeueStrategy": self.order,
        }
        spec = {field: value for field, value in values.items() if value is not None}
        for field, amounts in (("capability", self.capability), ("deserved", self.deserved)):
            if amounts is not None:
                spec[field] = amounts or None
        if self.guarantee is not None:
            spec["guarantee"] = {"resource": self.guarantee} if self.guarantee else None
        return spec


def _field_options(command: Callable[..., Any]) -> Callable[..., Any]:
    amounts = "NAME=AMOUNT,..."
    options = (
        click.option("--parent", metavar="QUEUE", help="Parent queue.", shell_complete=names_from(queues)),
        click.option("--weight", type=click.IntRange(1, 65535), help="Part of the resources shared by weight."),
        click.option("--priority", type=int, help="Queues of higher priority come first."),
        click.option("--capability", callback=_amounts, multiple=True, metavar=amounts, help="Upper limit."),
        click.option("--deserved", callback=_amounts, multiple=True, metavar=amounts, help="Deserved amounts."),
        click.option("--guarantee", callback=_amounts, multiple=True, metavar=amounts, help="Reserved amounts."),
        click.option("--reclaimable/--no-reclaimable", default=None, help="Whether other queues can reclaim."),
        click.option("--order", type=click.Choice(["traverse", "fifo"]), help="dequeueStrategy of the queue."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class CreateQueueArguments(QueueFieldArguments):
    """Arguments of `phalanx queue create`."""

    dry_run: bool


@click.command("create", short_help="Create a queue.")
@click.argument("name", metavar="QUEUE")
@_field_options
@click.option("--dry-run", is_flag=True, help="Let the server validate the queue; create nothing.")
@pass_invocation(CreateQueueArguments, connection_options)
def queue_create(invocation: Invocation, arguments: CreateQueueArguments) -> None:
    """Create a queue. In amounts `gpu` stands for nvidia.com/gpu.

    \b
    phalanx queue create research --weight 2 --capability cpu=200,gpu=32
    phalanx queue create vision --parent research --guarantee gpu=4 --priority 10
    """
    from phalanx.orders.queues import create_queue

    spec = {field: value for field, value in arguments.spec().items() if value is not None}
    _order(invocation, lambda client: create_queue(client, arguments.name, spec, dry_run=arguments.dry_run))


@click.command("edit", short_help="Change fields of a queue.")
@_queue_name
@_field_options
@pass_invocation(QueueFieldArguments, connection_options)
def queue_edit(invocation: Invocation, arguments: QueueFieldArguments) -> None:
    """Change the fields that options state, or without an option the spec in $EDITOR.

    An amount option replaces all amounts of the field; `none` removes the field.

    \b
    phalanx queue edit research --weight 4 --capability cpu=400,gpu=64
    phalanx queue edit research --capability none
    phalanx queue edit research
    """
    from phalanx.orders.queues import edit_queue, read_spec, replacing

    async def work(client: KubeClient) -> str:
        before = await read_spec(client, arguments.name)
        spec = arguments.spec()
        for field in ("capability", "deserved", "guarantee"):
            # A merge patch keeps the resources that it does not name.
            if isinstance(spec.get(field), dict):
                spec[field] = replacing(before.get(field), spec[field])
        if not spec:
            spec = _edited(before)
        return await edit_queue(client, arguments.name, spec) if spec else f"queue {arguments.name} unchanged"

    _order(invocation, work)


@click.command("open", short_help="Open a queue.")
@_queue_name
@pass_invocation(QueueArguments, connection_options)
def queue_open(invocation: Invocation, arguments: QueueArguments) -> None:
    """Open a queue, so that it accepts gangs. Its parent must be open.

    \b
    phalanx queue open research
    """
    from phalanx.orders.queues import set_open

    _order(invocation, lambda client: set_open(client, arguments.name, opened=True))


@click.command("close", short_help="Close a queue for new gangs.")
@_queue_name
@pass_invocation(QueueArguments, connection_options)
def queue_close(invocation: Invocation, arguments: QueueArguments) -> None:
    """Close a queue: it accepts nothing new, and its running pods continue.

    \b
    phalanx queue close research
    """
    from phalanx.orders.queues import set_open

    _order(invocation, lambda client: set_open(client, arguments.name, opened=False))


@dataclass(frozen=True, kw_only=True)
class DeleteQueueArguments(QueueArguments):
    """Arguments of `phalanx queue delete`."""

    yes: bool


@click.command("delete", short_help="Delete a queue without gangs and sub-queues.")
@_queue_name
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation on a terminal.")
@pass_invocation(DeleteQueueArguments, connection_options)
def queue_delete(invocation: Invocation, arguments: DeleteQueueArguments) -> None:
    """Delete a queue that has neither gangs nor sub-queues.

    \b
    phalanx queue delete research --yes
    """
    from phalanx.orders.queues import check_deletion, delete_queue

    async def work(client: KubeClient) -> str:
        if sys.stdin.isatty() and not arguments.yes:
            await check_deletion(client, arguments.name)
            if not click.confirm(f"Delete queue {arguments.name}?", err=True):
                return f"queue {arguments.name} is not deleted"
        return await delete_queue(client, arguments.name)

    _order(invocation, work)


@dataclass(frozen=True, kw_only=True)
class SetQuotaArguments:
    """Arguments of `phalanx quota set`."""

    name: str
    namespace: str | None
    minimum: Amounts
    maximum: Amounts


@click.command("set", short_help="Create an ElasticQuota, or set its min and max.")
@click.argument("name", metavar="QUOTA")
@click.option("--min", "minimum", callback=_amounts, multiple=True, metavar="NAME=AMOUNT,...", help="Own amounts.")
@click.option("--max", "maximum", callback=_amounts, multiple=True, metavar="NAME=AMOUNT,...", help="Upper limit.")
@pass_invocation(SetQuotaArguments, namespace_option, connection_options)
def quota_set(invocation: Invocation, arguments: SetQuotaArguments) -> None:
    """Create an ElasticQuota of scheduler-plugins, or set its min and max. In amounts `gpu` stands for
    nvidia.com/gpu.

    \b
    phalanx quota set team-a -n team-a --min cpu=100,gpu=8 --max cpu=200,gpu=16
    """
    from phalanx.orders.queues import set_quota

    stated = {"min": arguments.minimum, "max": arguments.maximum}
    spec = {field: amounts or None for field, amounts in stated.items() if amounts is not None}
    if not spec:
        raise click.UsageError("state --min, --max or both")
    _order(
        invocation,
        lambda client: set_quota(client, arguments.namespace or client.config.namespace, arguments.name, spec),
    )


def _order(invocation: Invocation, work: Callable[[KubeClient], Coroutine[Any, Any, str]]) -> None:
    """Execute a change and print its message. Raises click.ClickException for one that is refused."""
    from phalanx.orders.errors import OrderError

    try:
        click.echo(invocation.run(work))
    except OrderError as error:
        raise click.ClickException(str(error)) from error


def _edited(before: dict[str, Any]) -> dict[str, Any]:
    """Let the user edit a spec, and return the merge patch. Raises click.ClickException for an invalid text."""
    import yaml

    from phalanx.model.text.yaml_text import decode_yaml
    from phalanx.orders.queues import replacing

    text = click.edit(yaml.safe_dump(before, sort_keys=False), extension=".yaml")
    if text is None:
        return {}
    try:
        after = decode_yaml(text)
    except ValueError as error:
        raise click.ClickException(f"the edited text is not YAML: {error}") from error
    if not isinstance(after, dict):
        raise click.ClickException("the edited text is not a mapping")
    return {} if after == before else replacing(before, after)
