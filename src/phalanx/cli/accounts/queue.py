"""`phalanx queue` and `phalanx quota`: who has what, from the live cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from phalanx.cli.connection import (
    connection_options,
    lease_namespace_option,
    policy_option,
    scheduler_names_option,
)
from phalanx.cli.listing.options import watch_options

if TYPE_CHECKING:
    from phalanx.reports.account_entries import AccountEntry, QueueReport
    from phalanx.scheduling.framework.policy import Policy

F = TypeVar("F", bound=Callable[..., Any])
Render = Callable[["QueueReport", str], "list[str] | object"]
"""What to print of a report: lines for people, or a document."""


def _asking(*, wide: bool = True) -> Callable[[F], F]:
    """The options that every question has."""
    formats = ["table", *(["wide"] if wide else []), "json", "yaml"]
    options = [
        connection_options,
        scheduler_names_option("are charged to queues"),
        policy_option,
        lease_namespace_option,
        click.option(
            "-o",
            "--output",
            type=click.Choice(formats),
            default="table",
            show_default=True,
            help="How to print it.",
        ),
        watch_options("Print it again whenever something has changed; ctrl-c ends."),
    ]

    def dress(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return dress


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
@_asking()
def queue_list(**options: Any) -> None:
    """One line a queue, parents first.

    DESERVED is what the policy gives the queue now, SHARE the largest part it uses of any resource of the cluster,
    GANGS are running/pending, BORROWED is used above what the queue is entitled to, WAITS FOR is why the first that
    waits in the queue does not start. -o wide shows the rest.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_table

        return _queues(report) if output in ("json", "yaml") else queue_table(report, output == "wide")

    _ask(render, **options)


@queue.command("tree", short_help="The queues as a tree, with bars.")
@_asking(wide=False)
def queue_tree(**options: Any) -> None:
    """The queues as a tree, each with a bar of its part of the cluster.

    The bar is about the resource of which the queue uses the largest part; so are the amounts beside it.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import queue_tree

        return _queues(report) if output in ("json", "yaml") else queue_tree(report)

    _ask(render, **options)


@queue.command("describe", short_help="Everything about one queue.")
@click.argument("name")
@_asking(wide=False)
def queue_describe(name: str, **options: Any) -> None:
    """Everything about one queue: amounts by resource, ceilings, loans, tenants, and what waits first."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_queue

        entry = _find(name, "queue", report.queues)
        return entry if output in ("json", "yaml") else describe_queue(entry)

    _ask(render, **options)


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
@_asking()
def quota_list(**options: Any) -> None:
    """One line a quota, parents first.

    BORROWED is used above min, LENT is the part of min that others hold now. RUNTIME, where Koordinator's
    quotas are, is what a quota may use while idle siblings lend. -o wide shows the rest.
    """

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_table

        return _quotas(report) if output in ("json", "yaml") else quota_table(report, output == "wide")

    _ask(render, **options)


@quota.command("tree")
@_asking(wide=False)
def quota_tree(**options: Any) -> None:
    """The quotas as trees, each with a bar of its part of the cluster."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import quota_tree

        return _quotas(report) if output in ("json", "yaml") else quota_tree(report)

    _ask(render, **options)


@quota.command("describe")
@click.argument("name")
@_asking(wide=False)
def quota_describe(name: str, **options: Any) -> None:
    """Everything about one quota. NAME is that of the object or node, its namespace, or NAMESPACE/NAME."""

    def render(report: QueueReport, output: str) -> list[str] | object:
        from phalanx.cli.accounts.queue_tables import describe_quota

        entry = _find(name, "quota", report.quotas)
        return entry if output in ("json", "yaml") else describe_quota(entry)

    _ask(render, **options)


def _ask(
    render: Render,
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    lease_namespace: str,
    output: str,
    watch: bool,
    interval: float,
) -> None:
    from phalanx.cli.connection import run_connected
    from phalanx.cli.display import Display
    from phalanx.cli.scheduler_policy import policy_reader

    read_policy = policy_reader(config, lease_namespace, scheduler_names)
    display = Display(output, live=watch)

    async def work(client: Any) -> None:
        async def look() -> None:
            report = await _read(client, *await read_policy(client), lease_namespace)
            display.show(render(report, output), report.warnings)

        await look()
        while watch:
            await _look_again(look, display, interval)

    try:
        run_connected(work, kubeconfig)
    except KeyboardInterrupt:
        if not watch:
            raise


async def _read(client: Any, policy: Policy, scheduler_names: Sequence[str], lease_namespace: str) -> QueueReport:
    import time

    from phalanx.daemon.policy_file import dialect_options
    from phalanx.reports.queue_report import report
    from phalanx.reports.snapshot import read_cluster
    from phalanx.reports.stored_usage import read_usage

    snapshot = await read_cluster(client, scheduler_names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, scheduler_names)
    return report(snapshot, policy, time.time())


async def _look_again(look: Callable[[], Any], display: Any, interval: float) -> None:
    """Once more after a pause; what is the matter with the connection is told, and tried again."""
    import asyncio

    from phalanx.kube.errors import ApiError, ConnectionLost

    await asyncio.sleep(interval)
    try:
        await look()
    except ConnectionLost as error:
        display.complain(f"no connection to the API server: {error}")
    except ApiError as error:
        if error.status < 500 and error.status != 429:
            raise
        display.complain(f"the API server refused: {error}")


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
