"""`phalanx job`: jobs of all kinds, and what can be done to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.arguments import TargetsArguments
from phalanx.cli.connection import connection_options, namespace_option, output_option, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.jobs.pod_logs import PodLogArguments

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.jobs.job_report import FoundJob

_SHORTEST = 0.5
_KINDS = ("vcjob", "job", "jobset", "gang")


@dataclass(frozen=True, kw_only=True)
class JobListArguments:
    """Arguments of `phalanx job list`."""

    namespace: str | None
    all_namespaces: bool
    queue: str | None
    states: tuple[str, ...]
    kinds: tuple[str, ...]
    selector: str
    start: bool
    watch: bool
    interval: float


@dataclass(frozen=True, kw_only=True)
class JobArguments:
    """The name of a job, [KIND/]NAME, in a namespace (None: that of the kubeconfig's context)."""

    name: str
    namespace: str | None


@dataclass(frozen=True, kw_only=True)
class JobWaitArguments(TargetsArguments):
    """Arguments of `phalanx job wait`; `timeout` is in seconds, None for no limit."""

    state: str
    timeout: float | None
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class JobLogsArguments(JobArguments, PodLogArguments):
    """Arguments of `phalanx job logs`."""


@click.group()
def job() -> None:
    """Look at jobs, suspend and resume them, end them, read their output.

    NAME is a Volcano Job, a native Job, a JobSet or a gang without a job (its PodGroup); KIND/NAME says which,
    where several have one name: vcjob/train, job/train, jobset/train, podgroup/train.

    \b
    phalanx job list
    phalanx job describe train
    phalanx job logs train -f
    phalanx job wait train --timeout 600
    """


@job.command("list", short_help="One line a job.")
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Those of all namespaces.")
@click.option("-q", "--queue", help="Only those in this queue.")
@click.option("--state", "states", multiple=True, metavar="STATUS", help="Only those with it; may be repeated.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only these; may be repeated.")
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Only those with labels, such as team=a,tier!=b."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="How to print it.",
)
@click.option("--start", is_flag=True, help="When those that wait start, the earliest first.")
@click.option("-w", "--watch", is_flag=True, help="Print it again whenever something has changed; ctrl-c ends.")
@click.option(
    "--interval",
    type=click.FloatRange(min=_SHORTEST),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
@pass_invocation(JobListArguments, scheduler_options("--start tells the starts of"), connection_options)
def job_list(invocation: Invocation, arguments: JobListArguments) -> None:
    """One line a job: Volcano Jobs, native Jobs, JobSets, and gangs that no job has made.

    MIN are the pods that start together, RUN/READY/ALL those that run, are ready, and are wanted. RETRIES counts
    restarts, of those that are allowed. REASON is why the job waits or how it ended; -o wide says it in full.

    With --start it lists the gangs, and pods on their own, that wait, whoever made them: NO-LATER-THAN is a promise
    that rests on enforced limits, EXPECTED when half of those that were told the like have started, and 80%-UNTIL
    when 80 of 100 have. REASON says what that rests on, or why nothing is told. It is a dry run over the live
    cluster and wants rights to read all of it.
    """
    from phalanx.cli.display import Display
    from phalanx.cli.jobs.job_tables import job_table
    from phalanx.cli.jobs.selector import matches, parse_selector
    from phalanx.cli.jobs.starts import StartQuestion
    from phalanx.cli.listing.outages import survived_outage
    from phalanx.reports.jobs.job_report import JobReader

    output, queue = invocation.output, arguments.queue
    if arguments.start and (arguments.states or arguments.kinds or arguments.selector):
        raise click.UsageError("--start goes with -n, -A, -q, -o and -w, not with --state, --kind or --selector")
    wanted = parse_selector(arguments.selector)
    spellings = {state.lower() for state in arguments.states}
    display = Display("table" if output == "name" else output, live=arguments.watch)

    def shown(entry: JobEntry) -> bool:
        words = {word.lower() for word in (entry.state, entry.state.code, entry.phase or "New")}
        named = (not queue or entry.queue == queue) and (not spellings or bool(spellings & words))
        return named and matches(wanted, entry.labels)

    async def look(client: KubeClient, reader: JobReader) -> None:
        where = None if arguments.all_namespaces else arguments.namespace or client.namespace
        if arguments.start:
            display.show(*await StartQuestion(invocation, where, queue or "").answer(client, output))
            return
        jobs = await reader.jobs(where, time.time(), arguments.kinds)
        jobs = [each for each in jobs if shown(each.entry)]
        entries = [each.entry for each in jobs]
        if output in ("table", "wide") and entries:
            table = job_table(entries, time.time(), wide=output == "wide", namespaces=arguments.all_namespaces)
            display.show(table, reader.warnings)
        else:
            display.show(_without_table(jobs, output, where), reader.warnings)

    async def work(client: KubeClient) -> None:
        reader = JobReader(client)
        await look(client, reader)
        while arguments.watch:
            await asyncio.sleep(arguments.interval)
            with survived_outage(display.complain):
                await look(client, reader)

    invocation.show(work, watch=arguments.watch)


def _without_table(jobs: list[FoundJob], output: str, namespace: str | None) -> list[str] | object:
    """Return names, a document, or the line that there are no jobs in `namespace` (None: in any)."""
    if output == "name":
        return [found.target for found in jobs]
    if output in ("json", "yaml"):
        return {"jobs": [found.entry for found in jobs]}
    return [f"no jobs in {'any namespace' if namespace is None else f'namespace {namespace}'}"]


@job.command("describe", short_help="Everything about one job.")
@click.argument("name", metavar="[KIND/]NAME")
@namespace_option
@pass_invocation(JobArguments, output_option, connection_options)
def job_describe(invocation: Invocation, arguments: JobArguments) -> None:
    """Everything about one job: tasks, pods, policies, what its PodGroup says, its events, and what helps now."""
    import msgspec

    from phalanx.cli.jobs.job_tables import description
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.reports.jobs.entries import JobDescription
    from phalanx.reports.jobs.job_report import JobReader

    kind, name = parse_job(arguments.name)

    async def work(client: KubeClient) -> JobDescription:
        reader = JobReader(client)
        told = await reader.describe(await find_job(reader, kind, name, arguments.namespace or client.namespace))
        for warning in reader.warnings:
            click.echo(f"warning: {warning}", err=True)
        return told

    told = invocation.run(work)
    if invocation.prints_table:
        click.echo("\n".join(description(told, time.time())))
    else:
        invocation.print_document(msgspec.to_builtins(told))


Order = Callable[["KubeClient", "FoundJob"], Coroutine[Any, Any, str]]
FieldOrder = Callable[["KubeClient", "Target"], Coroutine[Any, Any, str]]


def _order(
    invocation: Invocation, arguments: TargetsArguments, order: Order, by_field: FieldOrder | None = None
) -> None:
    """Does something to each job and prints the line that it returns; one that fails does not keep the others.
    `by_field` does it to jobs of operators."""
    from phalanx.cli.jobs.orders import order_by_field
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.kube.errors import ApiError
    from phalanx.reports.jobs.job_report import JobReader

    if by_field is None:
        for name in arguments.names:
            parse_job(name)

    async def told(client: KubeClient, reader: JobReader, name: str) -> str:
        where = arguments.namespace or client.namespace
        try:
            found = await find_job(reader, *parse_job(name), where)
        except click.ClickException:
            if by_field is None:
                raise
        else:
            if by_field is None or found.entry.kind != "gang":
                return await order(client, found)
        return await order_by_field(client, where, name, by_field)

    async def work(client: KubeClient) -> int:
        reader, failed = JobReader(client), 0
        for name in arguments.names:
            try:
                click.echo(await told(client, reader, name))
            except click.UsageError:
                raise
            except click.ClickException as error:
                click.echo(f"Error: {error.message}", err=True)
                failed += 1
            except ApiError as error:
                click.echo(f"Error: {name}: the API server refused: {error.message}", err=True)
                failed += 1
        return failed

    if invocation.run(work):
        raise click.exceptions.Exit(1)


_names_argument = click.argument("names", metavar="[KIND/]NAME...", nargs=-1, required=True)


@job.command("suspend")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_suspend(invocation: Invocation, arguments: TargetsArguments) -> None:
    """End the pods of jobs, and keep the jobs, so that they can be resumed.

    A Volcano Job gets a Command (AbortJob), as from vcctl; Jobs, JobSets, training jobs, RayJobs and TrainJobs are
    suspended by their own field. Of a gang NAME may be that of its job, such as pytorchjob/bert, or of its
    PodGroup.
    """
    from phalanx.cli.jobs.orders import suspend_job
    from phalanx.orders.holding import suspend

    _order(invocation, arguments, suspend_job, suspend)


@job.command("resume")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_resume(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Let suspended jobs go on: their pods are made anew."""
    from phalanx.cli.jobs.orders import resume_job
    from phalanx.orders.holding import release

    _order(invocation, arguments, resume_job, release)


@job.command("restart")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_restart(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Make all pods of Volcano Jobs anew. It counts as one of the job's retries."""
    from phalanx.cli.jobs.orders import restart_job

    _order(invocation, arguments, restart_job)


@job.command("cancel")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_cancel(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Delete jobs with their pods. Of a gang without a job the PodGroup and its pods are deleted."""
    from phalanx.cli.jobs.orders import cancel_job

    _order(invocation, arguments, cancel_job)


@job.command("wait", short_help="Wait until a job runs, or has ended.")
@_names_argument
@click.option(
    "--for",
    "state",
    type=click.Choice(["running", "completed", "failed", "finished", "suspended", "deleted"]),
    default="completed",
    show_default=True,
    help="running: as many pods as the job needs; finished: however it ended.",
)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="By default without an end.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on the way.")
@pass_invocation(JobWaitArguments, namespace_option, connection_options)
def job_wait(invocation: Invocation, arguments: JobWaitArguments) -> None:
    """Wait for jobs, with a line whenever something changes.

    Exit code: 0 when all have come to the state, 1 when one has ended otherwise or is gone, 124 when the time is up
    (as from timeout(1)).
    """
    from phalanx.cli.jobs.target import parse_job
    from phalanx.cli.jobs.wait import wait_for_all

    targets = [(kind, arguments.namespace or "", name) for kind, name in map(parse_job, arguments.names)]
    code = wait_for_all(invocation, targets, arguments.state, arguments.timeout, quiet=arguments.quiet)
    raise click.exceptions.Exit(code)


@job.command("logs", short_help="The output of a job's pods.")
@click.argument("name", metavar="[KIND/]NAME")
@click.option("--task", help="Only pods of this task.")
@click.option("--index", type=click.IntRange(min=0), help="Only pods with this index in their task.")
@click.option("-c", "--container", help="Only this container.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended, with pods that come later too.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines of each.")
@click.option("--previous", is_flag=True, help="Of the containers before their last restart.")
@click.option("--timestamps", is_flag=True, help="With the time of each line.")
@click.option(
    "--prefix/--no-prefix", default=None, help="Name the pod before each line.  [default: if there are several]"
)
@pass_invocation(JobLogsArguments, namespace_option, connection_options)
def job_logs(invocation: Invocation, arguments: JobLogsArguments) -> None:
    """The output of all pods of a job, each line with the pod's name before it."""
    from phalanx.cli.jobs.pod_logs import LogPrinter
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.reports.jobs.job_report import JobReader

    kind, name = parse_job(arguments.name)

    async def work(client: KubeClient) -> None:
        reader = JobReader(client)
        found = await find_job(reader, kind, name, arguments.namespace or client.namespace)
        await LogPrinter(client, reader, found, arguments).run()

    invocation.run(work)
