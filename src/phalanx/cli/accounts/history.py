"""`phalanx history` and `phalanx report`: what the accounts say of the past."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import print_structured
from phalanx.cli.explanation.moments import moment, month_of
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FORMATS = ("table", "json", "yaml", "csv", "parquet")
_DIMENSIONS = ("queue", "user", "namespace")
# As sacct has them.
_SHORT_STATES = {
    "PD": "PENDING",
    "R": "RUNNING",
    "CD": "COMPLETED",
    "F": "FAILED",
    "TO": "TIMEOUT",
    "CA": "CANCELLED",
    "PR": "PREEMPTED",
    "EV": "EVICTED",
    "UN": "UNKNOWN",
}

database_option = click.option(
    "--database",
    envvar="PHALANX_ACCOUNTING_DATABASE",
    metavar="FILE|URL",
    help="Where the accounts are: a file, or postgresql://USER@HOST/NAME. By default $PHALANX_ACCOUNTING_DATABASE, "
    "else a file in ~/.local/state/phalanx.",
)
file_option = click.option(
    "-f", "--file", metavar="FILE", type=click.Path(dir_okay=False), help="With -o csv or parquet: write there."
)
format_option = click.option(
    "-o", "--output", type=click.Choice(_FORMATS), default="table", show_default=True, help="How to print it."
)


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of an option that may be repeated, and holds several with commas."""
    found = []
    for each in ",".join(values).upper().split(",") if values else ():
        state = _SHORT_STATES.get(each.strip(), each.strip())
        if state not in _SHORT_STATES.values():
            known = ", ".join(f"{short} ({name})" for short, name in _SHORT_STATES.items())
            raise click.BadParameter(f"{each!r} is no state; there are {known}")
        found.append(state)
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class HistoryArguments:
    """Arguments of `phalanx history`; `since` and `until` are in seconds since 1970."""

    gang: str | None
    database: str | None
    namespace: str
    all_namespaces: bool
    queues: tuple[str, ...]
    users: tuple[str, ...]
    states: tuple[str, ...]
    since: int
    until: int
    file: str | None


@click.command()
@click.argument("gang", required=False)
@database_option
@click.option("-n", "--namespace", default="", help="Only of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces, as without -n.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only of this queue; may be repeated.")
@click.option("-u", "--user", "users", multiple=True, help="Only of this user; may be repeated.")
@click.option(
    "-s", "--state", "states", multiple=True, callback=_states, help="Only in these states: PD, R, CD, F, ..."
)
@click.option(
    "-S", "--starttime", "since", callback=moment, default="today", show_default=True, help="What was there since."
)
@click.option(
    "-E", "--endtime", "until", callback=moment, default="now", show_default=True, help="What was there by."
)
@pass_invocation(HistoryArguments, format_option, file_option)
def history(invocation: Invocation, arguments: HistoryArguments) -> None:
    """List runs of gangs, also of those whose objects are gone, as sacct lists jobs.

    WAIT is from the submission to the first pod on a node, RUN how long any pod held a node, EVICTIONS how often
    the gang was evicted and went on, HOURS what its pods held: core-hours of cpu, GiB-hours of memory, else hours
    of a device. A ~ before RUN tells that something happened while nobody watched, so that a moment is an estimate.
    All times are UTC. The accounts are written by `phalanx accounting run`.

    \b
    phalanx history
    phalanx history -S 2026-11-01 -u ada -s F,TO
    phalanx history train -n ml -S now-7days -o json
    phalanx history -S 2026-01-01 -o parquet -f runs.parquet
    """
    from phalanx.accounting.history import RunFilter, read_runs
    from phalanx.accounting.runs import State
    from phalanx.cli.accounts import history_tables

    if arguments.namespace and arguments.all_namespaces:
        raise click.UsageError("-n and -A exclude each other")
    output = invocation.output
    history_tables.check_file(output, arguments.file)
    asked = RunFilter(
        since=arguments.since,
        # What began within this second is there, too.
        until=arguments.until + 1,
        namespace=arguments.namespace,
        queues=arguments.queues,
        users=arguments.users,
        states=tuple(map(State, arguments.states)),
        gang=arguments.gang or "",
    )
    with connected(arguments.database) as connection:
        entries = read_runs(connection, asked, int(time.time()))
    if output in ("csv", "parquet"):
        history_tables.write_rows(output, arguments.file, history_tables.run_rows(entries))
    elif output == "table":
        if not entries:
            click.echo("No runs were there then.", err=True)
            return
        click.echo("\n".join(history_tables.run_table(entries, namespaces=not arguments.namespace)))
    else:
        invocation.print_document([history_tables.run_document(each) for each in entries])


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Arguments of `phalanx report`; `since` and `until` are in seconds since 1970."""

    database: str | None
    by: str
    month: str | None
    since: int | None
    until: int | None
    queues: tuple[str, ...]
    as_json: bool
    file: str | None


@click.command()
@database_option
@click.option(
    "--by",
    default="queue",
    show_default=True,
    metavar="NAMES",
    help=f"One line each: any of {', '.join(_DIMENSIONS)}.",
)
@click.option("--month", metavar="YYYY-MM", help="A month, in UTC.")
@click.option("--from", "since", callback=moment, help="From this moment; by default the first of this month.")
@click.option("--to", "until", callback=moment, help="Until this moment; by default now.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only of this queue; may be repeated.")
@format_option
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@pass_invocation(ReportArguments, file_option)
def report(invocation: Invocation, arguments: ReportArguments) -> None:
    """Say what queues, users and namespaces used in a month, or between two moments, as sreport does.

    Hours are core-hours of cpu, GiB-hours of memory, else hours of a device. EVICTED is the part whose pods were
    evicted, FAILED whose pods failed; waits are of the runs that started then. What is under way counts until now.

    \b
    phalanx report --month 2026-11
    phalanx report --by queue,user --from 2026-11-01 --to 2026-11-08 -o csv
    """
    from phalanx.accounting.report import read_report
    from phalanx.cli.accounts import history_tables

    output = "json" if arguments.as_json else invocation.output
    history_tables.check_file(output, arguments.file)
    dimensions = tuple(dict.fromkeys(each.strip() for each in arguments.by.split(",") if each.strip()))
    if unknown := [each for each in dimensions if each not in _DIMENSIONS]:
        raise click.UsageError(f"--by {unknown[0]}: there are {', '.join(_DIMENSIONS)}")
    begin, end = _window(arguments.month, arguments.since, arguments.until)
    with connected(arguments.database) as connection:
        lines = read_report(connection, dimensions, begin, end, int(time.time()), arguments.queues)
    if output in ("csv", "parquet"):
        history_tables.write_rows(output, arguments.file, history_tables.report_rows(dimensions, lines))
    elif output == "table":
        if not lines:
            click.echo("Nothing was used then.", err=True)
            return
        click.echo("\n".join(history_tables.report_table(dimensions, lines)))
    else:
        print_structured(history_tables.report_document(dimensions, begin, end, lines), output)


def _window(month: str | None, since: int | None, until: int | None) -> tuple[int, int]:
    if month is not None:
        if since is not None or until is not None:
            raise click.UsageError("--month says both ends; give no --from and --to beside it")
        try:
            return month_of(month)
        except ValueError as error:
            raise click.UsageError(f"--month {month}: write it as 2026-11") from error
    now = int(time.time())
    begin = since if since is not None else month_of(time.strftime("%Y-%m", time.gmtime(now)))[0]
    end = until if until is not None else now
    if end <= begin:
        raise click.UsageError("--to is not after --from")
    return begin, end


@contextmanager
def connected(database: str | None) -> Iterator[Connection]:
    """A read of the accounts; what fails becomes one plain line."""
    from phalanx.accounting.database import Database, DatabaseError, default_location

    try:
        accounts = Database(database or default_location())
        try:
            with accounts.reading() as connection:
                yield connection
        finally:
            accounts.close()
    except DatabaseError as error:
        raise click.ClickException(str(error)) from error
