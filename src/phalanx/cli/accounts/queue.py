"""Commands `phalanx queue` and `phalanx quota`: usage and shares of queues and quotas, from the live cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.accounts.queue_orders import (
    queue_close,
    queue_create,
    queue_delete,
    queue_edit,
    queue_open,
    quota_set,
)
from phalanx.cli.arguments import Dress
from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import watch_options
from phalanx.cli.listing.outages import survived_outage
from phalanx.cli.server.options import server_options
from phalanx.cli.server.rights import by_rights
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient
    from phalanx.reports.account_entries import AccountEntry, QueueReport
    from phalanx.scheduling.framework.policy import Policy

Render = Callable[["QueueReport", str], "list[str] | object"]
"""Function that renders a report as table lines or as a document."""


@dataclass(frozen=True, kw_only=True)
class AccountArguments:
    """Arguments of commands about queues or quotas."""

    watch: bool
    interval: float


@dataclass(frozen=True, kw_only=True)
class OneAccountArguments(AccountArguments):
    """Arguments of commands about one queue or quota."""

    name: str


def _report_options(*, wide: bool = False) -> tuple[Dress, ...]:
    formats = ["table", *(["wide"] if wide else []), "json", "yaml"]
    return (
        connection_options,
        server_options,
        scheduler_options("are charged to queues"),
        click.option(
            "-o",
            "--output",
            type=click.Choice(formats),
            default="table",
            show_default=True,
            help="Output format.",
        ),
        watch_options("Print the answer again after each change, until Ctrl-C."),
    )


@click.group()
def queue() -> None:
    """Show the usage, deserved share and waiting gangs of queues, and change queues.

    The numbers come from a dry run of the scheduler over the live cluster. They are current even if no scheduler
    runs.

    \b
    phalanx queue list
    phalanx queue tree --watch
    phalanx queue describe team-a
    phalanx queue create team-a --weight 2
    """


for command in (queue_create, queue_edit, queue_open, queue_close, queue_delete):
    queue.add_command(command)


@queue.command("list")
@pass_invocation(AccountArguments, *_report_options(wide=True))
def queue_list(invocation: Invocation, arguments: AccountArguments) -> None:
    """List queues, one line each, parents first.

    DESERVED is the current deserved amount under the policy. SHARE is the queue's largest share of any resource
    of the cluster. GANGS is running/pending. BORROWED is the usage above the queue's own amount. WAITS FOR is
    the reason of the first waiting unit, START its promised start. -o wide shows all columns.

    \b
    phalanx queue list
    phalanx queue list -o wide -w
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_table

        return _queues(report) if output in ("json", "yaml") else queue_table(report, output == "wide", time.time())

    _show_report(invocation, arguments, render)


@queue.command("tree", short_help="Show the queue tree with bars.")
@pass_invocation(AccountArguments, *_report_options())
def queue_tree(invocation: Invocation, arguments: AccountArguments) -> None:
    """Show the queue tree with a bar of each queue's share of the cluster.

    The bar and the amounts beside it are those of the resource with the queue's largest share.

    \b
    phalanx queue tree
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_tree

        return _queues(report) if output in ("json", "yaml") else queue_tree(report)

    _show_report(invocation, arguments, render)


@queue.command("describe", short_help="Show the details of one queue.")
@click.argument("name")
@pass_invocation(OneAccountArguments, *_report_options())
def queue_describe(invocation: Invocation, arguments: OneAccountArguments) -> None:
    """Show the details of one queue: amounts by resource, limits, loans, tenants and first waiting unit.

    \b
    phalanx queue describe research
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_queue

        entry = _find(arguments.name, "queue", report.queues)
        return entry if output in ("json", "yaml") else describe_queue(entry, time.time())

    _show_report(invocation, arguments, render)


@click.group()
def quota() -> None:
    """Show the usage, borrowing and lending of elastic quotas, and set quotas.

    All families are shown: ElasticQuotas of scheduler-plugins, Koordinator's trees, ACK's ElasticQuotaTree. The
    numbers come from a dry run over the live cluster.

    \b
    phalanx quota list
    phalanx quota describe team-a
    phalanx quota set team-a -n team-a --min cpu=100 --max cpu=200
    """


quota.add_command(quota_set)


@quota.command("list")
@pass_invocation(AccountArguments, *_report_options(wide=True))
def quota_list(invocation: Invocation, arguments: AccountArguments) -> None:
    """List quotas, one line each, parents first.

    BORROWED is the usage above min. LENT is the part of min that other quotas use now. RUNTIME (only with
    Koordinator's quotas) is the amount that a quota can use while idle siblings lend. -o wide shows all
    columns.

    \b
    phalanx quota list
    phalanx quota list -o wide
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_table

        return _quotas(report) if output in ("json", "yaml") else quota_table(report, output == "wide")

    _show_report(invocation, arguments, render)


@quota.command("tree")
@pass_invocation(AccountArguments, *_report_options())
def quota_tree(invocation: Invocation, arguments: AccountArguments) -> None:
    """Show the quota trees with a bar of each quota's share of the cluster.

    \b
    phalanx quota tree
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_tree

        return _quotas(report) if output in ("json", "yaml") else quota_tree(report)

    _show_report(invocation, arguments, render)


@quota.command("describe")
@click.argument("name")
@pass_invocation(OneAccountArguments, *_report_options())
def quota_describe(invocation: Invocation, arguments: OneAccountArguments) -> None:
    """Show the details of one quota. NAME is the object, the tree node, the namespace, or NAMESPACE/NAME.

    \b
    phalanx quota describe team-a
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_quota

        entry = _find(arguments.name, "quota", report.quotas)
        return entry if output in ("json", "yaml") else describe_quota(entry, time.time())

    _show_report(invocation, arguments, render)


def _show_report(invocation: Invocation, arguments: AccountArguments, render: Render) -> None:
    """Print the rendered report of queues or quotas; with --watch print it again after each change."""
    from phalanx.cli.display import Display

    display = Display(invocation.output, live=arguments.watch)

    async def read(client: KubeClient) -> QueueReport:
        return await _read(client, *await invocation.read_policy(client), invocation.lease_namespace)

    async def work(client: KubeClient) -> None:
        async def refresh() -> None:
            report = await by_rights(invocation, read, partial(_ask, client.namespace))(client)
            display.show(render(report, invocation.output), report.warnings)

        await refresh()
        while arguments.watch:
            await asyncio.sleep(arguments.interval)
            with survived_outage(display.complain):
                await refresh()

    invocation.show(work, watch=arguments.watch)


async def _ask(own_namespace: str, server: Server) -> QueueReport:
    from phalanx.reports.account_entries import QueueReport

    return await server.get("commands/queues", QueueReport, {"own": own_namespace})


async def _read(
    client: KubeClient, policy: Policy, scheduler_names: Sequence[str], lease_namespace: str
) -> QueueReport:
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.reports.queue_report import report
    from phalanx.reports.read_promises import read_promises
    from phalanx.reports.snapshot import read_cluster
    from phalanx.reports.stored_usage import read_usage

    snapshot = await read_cluster(client, scheduler_names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, scheduler_names)
    promises = await read_promises(client, lease_namespace, scheduler_names)
    return report(snapshot, policy, time.time(), promises)


def _queues(report: QueueReport) -> object:
    document = {"cluster": report.cluster, "plugins": report.plugins, "queues": report.queues}
    return document | ({"warnings": report.warnings} if report.warnings else {})


def _quotas(report: QueueReport) -> object:
    document = {"cluster": report.cluster, "quotas": report.quotas}
    return document | ({"warnings": report.warnings} if report.warnings else {})


E_co = TypeVar("E_co", bound="AccountEntry")


def _find(name: str, kind: str, entries: Sequence[E_co]) -> E_co:
    """Return the queue or quota called `name`, else the only one with `name` as a part of its path. Raises
    click.ClickException."""
    exact = [entry for entry in entries if entry.name == name]
    matches = exact or [entry for entry in entries if name in entry.name.split("/")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise click.ClickException(
            f"{quoted(name)} is ambiguous; use one of: {', '.join(entry.name for entry in matches)}"
        )
    raise click.ClickException(f"no {kind} {quoted(name)}{_known(name, kind, [entry.name for entry in entries])}")


def _known(name: str, kind: str, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {quoted(close[0])}?"
    if not names:
        return f": the cluster has no {kind}s"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"; expected one of {shown}"
