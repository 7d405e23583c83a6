"""`phalanx queue` and `phalanx quota`: who has what, from the live cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from phalanx.cli.arguments import Dress
from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import watch_options
from phalanx.cli.listing.outages import survived_outage

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.account_entries import AccountEntry, QueueReport
    from phalanx.scheduling.framework.policy import Policy

Render = Callable[["QueueReport", str], "list[str] | object"]
"""What to print of a report: lines for people, or a document."""


@dataclass(frozen=True, kw_only=True)
class AccountArguments:
    """Arguments of questions about queues or quotas."""

    watch: bool
    interval: float


@dataclass(frozen=True, kw_only=True)
class OneAccountArguments(AccountArguments):
    """Arguments of questions about one queue or quota."""

    name: str


def _report_options(*, wide: bool = False) -> tuple[Dress, ...]:
    formats = ["table", *(["wide"] if wide else []), "json", "yaml"]
    return (
        connection_options,
        scheduler_options("are charged to queues"),
        click.option(
            "-o",
            "--output",
            type=click.Choice(formats),
            default="table",
            show_default=True,
            help="How to print it.",
        ),
        watch_options("Print it again whenever something has changed; ctrl-c ends."),
    )


@click.group()
def queue() -> None:
    """Say what queues have, deserve and wait for.

    The numbers come from a dry run of the scheduler over the live cluster, so they are current even while no
    scheduler runs. Nothing is changed.

    \b
    phalanx queue list
    phalanx queue tree --watch
    phalanx queue describe team-a
    """


@queue.command("list")
@pass_invocation(AccountArguments, *_report_options(wide=True))
def queue_list(invocation: Invocation, arguments: AccountArguments) -> None:
    """One line a queue, parents first.

    DESERVED is what the policy gives the queue now, SHARE the largest part it uses of any resource of the cluster,
    GANGS are running/pending, BORROWED is used above what the queue is entitled to. WAITS FOR is why the first unit
    that waits in the queue does not start, START its promised start. -o wide shows the rest.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_table

        return _queues(report) if output in ("json", "yaml") else queue_table(report, output == "wide", time.time())

    _show_report(invocation, arguments, render)


@queue.command("tree", short_help="The queues as a tree, with bars.")
@pass_invocation(AccountArguments, *_report_options())
def queue_tree(invocation: Invocation, arguments: AccountArguments) -> None:
    """The queues as a tree, each with a bar of its part of the cluster.

    The bar is about the resource of which the queue uses the largest part; so are the amounts beside it.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_tree

        return _queues(report) if output in ("json", "yaml") else queue_tree(report)

    _show_report(invocation, arguments, render)


@queue.command("describe", short_help="Everything about one queue.")
@click.argument("name")
@pass_invocation(OneAccountArguments, *_report_options())
def queue_describe(invocation: Invocation, arguments: OneAccountArguments) -> None:
    """Everything about one queue: amounts by resource, ceilings, loans, tenants, and what waits first."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_queue

        entry = _find(arguments.name, "queue", report.queues)
        return entry if output in ("json", "yaml") else describe_queue(entry, time.time())

    _show_report(invocation, arguments, render)


@click.group()
def quota() -> None:
    """Say what elastic quotas have, borrow and lend.

    All families are shown: ElasticQuotas of scheduler-plugins, Koordinator's trees, ACK's ElasticQuotaTree. As
    `phalanx queue`, it is a dry run over the live cluster, and nothing is changed.

    \b
    phalanx quota list
    phalanx quota describe team-a
    """


@quota.command("list")
@pass_invocation(AccountArguments, *_report_options(wide=True))
def quota_list(invocation: Invocation, arguments: AccountArguments) -> None:
    """One line a quota, parents first.

    BORROWED is used above min, LENT is the part of min that others hold now. RUNTIME, where Koordinator's
    quotas are, is what a quota may use while idle siblings lend. -o wide shows the rest.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_table

        return _quotas(report) if output in ("json", "yaml") else quota_table(report, output == "wide")

    _show_report(invocation, arguments, render)


@quota.command("tree")
@pass_invocation(AccountArguments, *_report_options())
def quota_tree(invocation: Invocation, arguments: AccountArguments) -> None:
    """The quotas as trees, each with a bar of its part of the cluster."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_tree

        return _quotas(report) if output in ("json", "yaml") else quota_tree(report)

    _show_report(invocation, arguments, render)


@quota.command("describe")
@click.argument("name")
@pass_invocation(OneAccountArguments, *_report_options())
def quota_describe(invocation: Invocation, arguments: OneAccountArguments) -> None:
    """Everything about one quota. NAME is that of the object or node, its namespace, or NAMESPACE/NAME."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_quota

        entry = _find(arguments.name, "quota", report.quotas)
        return entry if output in ("json", "yaml") else describe_quota(entry, time.time())

    _show_report(invocation, arguments, render)


def _show_report(invocation: Invocation, arguments: AccountArguments, render: Render) -> None:
    """Print the report as `render` has it, with --watch again whenever it has changed."""
    from phalanx.cli.display import Display

    read_policy = invocation.policy_reader()
    display = Display(invocation.output, live=arguments.watch)

    async def work(client: KubeClient) -> None:
        async def look() -> None:
            report = await _read(client, *await read_policy(client), invocation.lease_namespace)
            display.show(render(report, invocation.output), report.warnings)

        await look()
        while arguments.watch:
            await asyncio.sleep(arguments.interval)
            with survived_outage(display.complain):
                await look()

    invocation.show(work, watch=arguments.watch)


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


def _find(name: str, what: str, entries: Sequence[E_co]) -> E_co:
    """The entry of that name, else the only one of which it is a part. Raises ClickException."""
    exact = [entry for entry in entries if entry.name == name]
    found = exact or [entry for entry in entries if name in entry.name.split("/")]
    if len(found) == 1:
        return found[0]
    if found:
        raise click.ClickException(f"{name!r} may be {', '.join(entry.name for entry in found)}")
    raise click.ClickException(f"no {what} {name!r}{_known(name, what, [entry.name for entry in entries])}")


def _known(name: str, what: str, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    if not names:
        return f": there is no {what} at all"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"; there are {shown}"
