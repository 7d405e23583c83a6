"""`phalanx history` and `phalanx report`: past usage from the accounting database."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.accounts.recorded_usage import read_usage, usage_options
from phalanx.cli.connection import print_structured
from phalanx.cli.explanation.moments import moment, month_of
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from phalanx.accounting.questions import ReportAnswer, RunsAnswer
    from phalanx.cli.server.requests import Server

_FORMATS = ("table", "json", "yaml", "csv", "parquet")
_DIMENSIONS = ("queue", "user", "namespace")
# Abbreviations as in sacct.
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

file_option = click.option(
    "-f", "--file", metavar="FILE", type=click.Path(dir_okay=False), help="Output file (with -o csv or -o parquet)."
)
format_option = click.option(
    "-o", "--output", type=click.Choice(_FORMATS), default="table", show_default=True, help="Output format."
)


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Parse the values of the repeatable option --state, with comma-separated states."""
    states = []
    for text in ",".join(values).upper().split(",") if values else ():
        state = _SHORT_STATES.get(text.strip(), text.strip())
        if state not in _SHORT_STATES.values():
            known = ", ".join(f"{short} ({name})" for short, name in _SHORT_STATES.items())
            raise click.BadParameter(f"unknown state {quoted(text)}; expected one of {known}")
        states.append(state)
    return tuple(states)


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
@click.option("-n", "--namespace", default="", help="Only gangs in this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="List gangs in all namespaces. This is the default.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only gangs of this queue; repeatable.")
@click.option("-u", "--user", "users", multiple=True, help="Only gangs of this user; repeatable.")
@click.option(
    "-s", "--state", "states", multiple=True, callback=_states, help="Only gangs in these states: PD, R, CD, F, ..."
)
@click.option(
    "-S", "--starttime", "since", callback=moment, default="today", show_default=True, help="Start of the period."
)
@click.option(
    "-E", "--endtime", "until", callback=moment, default="now", show_default=True, help="End of the period."
)
@pass_invocation(HistoryArguments, *usage_options, format_option, file_option)
def history(invocation: Invocation, arguments: HistoryArguments) -> None:
    """List past and current runs of gangs, like sacct.

    WAIT is the time from submission to the first bound pod. RUN is the time in which any pod had a node.
    EVICTIONS is the number of evictions after which the gang continued. HOURS is the usage: core-hours of CPU,
    GiB-hours of memory, hours of devices. A ~ before RUN marks an estimate (accounting did not run at that
    time). All times are UTC. The database is written by `phalanx accounting run`. Without a database the page's
    server answers about the namespaces in which you can list pods.

    \b
    phalanx history
    phalanx history -S 2026-11-01 -u ada -s F,TO
    phalanx history train -n ml -S now-7days -o json
    phalanx history -S 2026-01-01 -o parquet -f runs.parquet
    """
    from phalanx.accounting.questions import RunFilter, RunsAnswer
    from phalanx.cli.accounts import history_tables

    if arguments.namespace and arguments.all_namespaces:
        raise click.UsageError("-n and -A exclude each other")
    output = invocation.output
    history_tables.check_file(output, arguments.file)
    asked = RunFilter(
        since=arguments.since,
        # `until` is exclusive: a run that started within this second counts.
        until=arguments.until + 1,
        namespace=arguments.namespace,
        queues=arguments.queues,
        users=arguments.users,
        states=arguments.states,
        gang=arguments.gang or "",
    )

    def read(connection: Connection) -> RunsAnswer:
        from phalanx.accounting.history import read_runs

        return RunsAnswer(read_runs(connection, asked, int(time.time())))

    async def ask(server: Server, own: str) -> RunsAnswer:
        question = {"namespace": arguments.namespace, "own": own}
        return await server.post("commands/history", RunsAnswer, asked, question)

    answer = read_usage(invocation, arguments.database, read, ask)
    _note_namespace(answer, arguments.namespace)
    entries = answer.runs
    if output in ("csv", "parquet"):
        history_tables.write_rows(output, arguments.file, history_tables.run_rows(entries))
    elif output == "table":
        if not entries:
            click.echo("No runs in this period.", err=True)
            return
        click.echo("\n".join(history_tables.run_table(entries, namespaces=not arguments.namespace)))
    else:
        invocation.print_document([history_tables.run_document(entry) for entry in entries])


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
@click.option(
    "--by",
    default="queue",
    show_default=True,
    metavar="NAMES",
    help=f"Group by these, comma-separated: {', '.join(_DIMENSIONS)}.",
)
@click.option("--month", metavar="YYYY-MM", help="Report this month (UTC).")
@click.option("--from", "since", callback=moment, help="Start of the period. Default: the first of this month.")
@click.option("--to", "until", callback=moment, help="End of the period. Default: now.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue; repeatable.")
@format_option
@click.option("--json", "as_json", is_flag=True, help="Short form of -o json.")
@pass_invocation(ReportArguments, *usage_options, file_option)
def report(invocation: Invocation, arguments: ReportArguments) -> None:
    """Report the usage of queues, users and namespaces in a month or period, like sreport.

    Hours are core-hours of CPU, GiB-hours of memory, hours of devices. EVICTED is the usage of evicted pods,
    FAILED of failed pods. Waits are those of runs that started in the period. Running gangs count until now.
    Without a database the page's server answers about the namespaces in which you can list pods.

    \b
    phalanx report --month 2026-11
    phalanx report --by queue,user --from 2026-11-01 --to 2026-11-08 -o csv
    """
    from phalanx.accounting.questions import ReportAnswer, ReportQuestion
    from phalanx.cli.accounts import history_tables

    output = "json" if arguments.as_json else invocation.output
    history_tables.check_file(output, arguments.file)
    dimensions = tuple(dict.fromkeys(name.strip() for name in arguments.by.split(",") if name.strip()))
    if unknown := [name for name in dimensions if name not in _DIMENSIONS]:
        raise click.UsageError(f"unknown --by {quoted(unknown[0])}; expected any of {', '.join(_DIMENSIONS)}")
    begin, end = _window(arguments.month, arguments.since, arguments.until)

    def read(connection: Connection) -> ReportAnswer:
        from phalanx.accounting.report import read_report

        return ReportAnswer(read_report(connection, dimensions, begin, end, int(time.time()), arguments.queues))

    async def ask(server: Server, own: str) -> ReportAnswer:
        question = ReportQuestion(dimensions, begin, end, arguments.queues)
        return await server.post("commands/report", ReportAnswer, question, {"own": own})

    answer = read_usage(invocation, arguments.database, read, ask)
    _note_namespace(answer, "")
    lines = answer.lines
    if output in ("csv", "parquet"):
        history_tables.write_rows(output, arguments.file, history_tables.report_rows(dimensions, lines))
    elif output == "table":
        if not lines:
            click.echo("No usage in this period.", err=True)
            return
        click.echo("\n".join(history_tables.report_table(dimensions, lines)))
    else:
        print_structured(history_tables.report_document(dimensions, begin, end, lines), output)


def _note_namespace(answer: RunsAnswer | ReportAnswer, namespace: str) -> None:
    """Print one line if the answer is about one namespace only and the question was not."""
    if answer.namespace and answer.namespace != namespace:
        click.echo(f"not shown: usage of other namespaces than {answer.namespace}", err=True)


def _window(month: str | None, since: int | None, until: int | None) -> tuple[int, int]:
    if month is not None:
        if since is not None or until is not None:
            raise click.UsageError("--month excludes --from and --to")
        try:
            return month_of(month)
        except ValueError as error:
            raise click.UsageError(
                f"invalid --month {quoted(month)}; write it as YYYY-MM, such as 2026-11"
            ) from error
    now = int(time.time())
    begin = since if since is not None else month_of(time.strftime("%Y-%m", time.gmtime(now)))[0]
    end = until if until is not None else now
    if end <= begin:
        raise click.UsageError("--to must be later than --from")
    return begin, end
