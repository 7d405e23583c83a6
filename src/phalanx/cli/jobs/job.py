"""Command `phalanx job`: list, describe and control jobs of all kinds."""

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
from phalanx.cli.jobs.job_kinds import KINDS, has_kind, known_kinds
from phalanx.cli.orders.confirmation import CancelArguments, cancel_options, confirmed

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.jobs.job_report import FoundJob
    from phalanx.reports.jobs.pod_logs import LogSelection

_SHORTEST = 0.5


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
    """Name of a job on the command line ([KIND/]NAME), in `namespace` (None: that of the kubeconfig's context)."""

    name: str
    namespace: str | None


@dataclass(frozen=True, kw_only=True)
class JobWaitArguments(TargetsArguments):
    """Arguments of `phalanx job wait`; `timeout` is in seconds, None for no limit."""

    state: str
    timeout: float | None
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class JobLogsArguments(JobArguments):
    """Arguments of `phalanx job logs`; `prefix` None means: with several pods."""

    task: str | None
    index: int | None
    container: str | None
    follow: bool
    tail: int | None
    previous: bool
    timestamps: bool
    prefix: bool | None

    @property
    def selection(self) -> LogSelection:
        from phalanx.reports.jobs.pod_logs import LogSelection

        return LogSelection(
            task=self.task,
            index=self.index,
            container=self.container,
            follow=self.follow,
            tail=self.tail,
            previous=self.previous,
            timestamps=self.timestamps,
        )


@click.group()
def job() -> None:
    """List, describe, suspend, resume and cancel jobs, and print their logs.

    NAME is a Volcano Job, a native Job, a JobSet, or a gang without a job (its PodGroup). KIND/NAME selects one
    of several with the same name: vcjob/train, job/train, jobset/train, podgroup/train.

    \b
    phalanx job list
    phalanx job describe train
    phalanx job logs train -f
    phalanx job wait train --timeout 600
    """


@job.command("list", short_help="List jobs, one line each.")
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="List jobs in all namespaces.")
@click.option("-q", "--queue", help="Only jobs in this queue.")
@click.option("--state", "states", multiple=True, metavar="STATUS", help="Only jobs in this state; repeatable.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help=f"Only jobs of this kind: {', '.join(KINDS)} (gangs without job), pytorchjob, ...; repeatable.",
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Label selector, such as team=a,tier!=b.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option("--start", is_flag=True, help="List expected starts of waiting gangs, earliest first.")
@click.option("-w", "--watch", is_flag=True, help="Print the list again after each change, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=_SHORTEST),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two refreshes of --watch.",
)
@pass_invocation(JobListArguments, scheduler_options("are forecast by --start"), connection_options)
def job_list(invocation: Invocation, arguments: JobListArguments) -> None:
    """List jobs: Volcano Jobs, native Jobs, JobSets, and gangs without a job.

    MIN is the number of pods that start together. RUN/READY/ALL is running/ready/desired pods. RETRIES is
    restarts/limit. REASON is the reason why the job waits, or how it ended (-o wide: with message).

    With --start the command lists the starts of waiting gangs and single pods. NO-LATER-THAN is a promise,
    based on enforced limits. EXPECTED is the median: half of the gangs with an equal forecast have started by
    then; 80%-UNTIL is the 80th percentile. REASON is the basis of the forecast, or why there is none. The
    forecast is a dry run over the live cluster and needs rights to read all of it.

    \b
    phalanx job list
    phalanx job list -A --state Pending -o wide
    phalanx job list --start -q research
    """
    from phalanx.cli.display import Display
    from phalanx.cli.jobs.job_tables import job_table, selected_states
    from phalanx.cli.jobs.selector import matches, parse_selector
    from phalanx.cli.jobs.starts import StartQuestion
    from phalanx.cli.listing.known_names import refuse_unknown_scope
    from phalanx.cli.listing.outages import survived_outage
    from phalanx.reports.jobs.job_report import JobReader

    output, queue = invocation.output, arguments.queue
    if arguments.start and (arguments.states or arguments.kinds or arguments.selector):
        raise click.UsageError("--start excludes --state, --kind and --selector")
    requirements = parse_selector(arguments.selector)
    spellings, kinds = selected_states(arguments.states), known_kinds(arguments.kinds)
    display = Display("table" if output == "name" else output, live=arguments.watch)

    def is_shown(entry: JobEntry) -> bool:
        states = {word.lower() for word in (entry.state, entry.state.code, entry.phase or "New")}
        selected = (not queue or entry.queue == queue) and (not spellings or bool(spellings & states))
        return selected and matches(requirements, entry.labels)

    async def refresh(client: KubeClient, reader: JobReader) -> None:
        namespace = None if arguments.all_namespaces else arguments.namespace or client.namespace
        if arguments.start:
            display.show(*await StartQuestion(invocation, namespace, queue or "").answer(client, output))
            return
        jobs = await reader.jobs(namespace, time.time())
        jobs = [job for job in jobs if is_shown(job.entry) and has_kind(job, kinds)]
        if not jobs:
            await refuse_unknown_scope(client, namespace and arguments.namespace, (queue,) if queue else ())
        entries = [job.entry for job in jobs]
        if output in ("table", "wide") and entries:
            table = job_table(entries, time.time(), wide=output == "wide", namespaces=arguments.all_namespaces)
            display.show(table, reader.warnings)
        else:
            display.show(_without_table(jobs, output, namespace), reader.warnings)

    async def work(client: KubeClient) -> None:
        reader = JobReader(client)
        await refresh(client, reader)
        while arguments.watch:
            await asyncio.sleep(arguments.interval)
            with survived_outage(display.complain):
                await refresh(client, reader)

    invocation.show(work, watch=arguments.watch)


def _without_table(jobs: list[FoundJob], output: str, namespace: str | None) -> list[str] | object:
    """Return the output of a job list that is no table: names, a document, or the line that `namespace` (None: any)
    has no jobs."""
    if output == "name":
        return [job.target for job in jobs]
    if output in ("json", "yaml"):
        return {"jobs": [job.entry for job in jobs]}
    return [f"no jobs in {'any namespace' if namespace is None else f'namespace {namespace}'}"]


@job.command("describe", short_help="Show the details of one job.")
@click.argument("name", metavar="[KIND/]NAME")
@namespace_option
@pass_invocation(JobArguments, output_option, connection_options)
def job_describe(invocation: Invocation, arguments: JobArguments) -> None:
    """Show one job: tasks, pods, policies, conditions of its PodGroup, events, and the next command.

    \b
    phalanx job describe train
    phalanx job describe jobset/sweep -n research -o yaml
    """
    import msgspec

    from phalanx.cli.jobs.job_tables import description
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.reports.jobs.entries import JobDescription
    from phalanx.reports.jobs.job_report import JobReader

    kind, name = parse_job(arguments.name)

    async def work(client: KubeClient) -> JobDescription:
        reader = JobReader(client)
        details = await reader.describe(await find_job(reader, kind, name, arguments.namespace or client.namespace))
        for warning in reader.warnings:
            click.echo(f"warning: {warning}", err=True)
        return details

    details = invocation.run(work)
    if invocation.prints_table:
        click.echo("\n".join(description(details, time.time())))
    else:
        invocation.print_document(msgspec.to_builtins(details))


Order = Callable[["KubeClient", "FoundJob"], Coroutine[Any, Any, str]]
FieldOrder = Callable[["KubeClient", "Target"], Coroutine[Any, Any, str]]


def _apply_to_each(
    invocation: Invocation, arguments: TargetsArguments, order: Order, by_field: FieldOrder | None = None
) -> None:
    """Execute a command (suspend, resume, ...) on each named job and print its result; a failure does not stop the
    remaining jobs.

    `by_field` is the order for jobs of other operators.
    """
    from phalanx.cli.jobs.orders import order_by_field
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.kube.errors import ApiError
    from phalanx.reports.jobs.job_report import JobReader

    if by_field is None:
        for name in arguments.names:
            parse_job(name)

    async def run_order(client: KubeClient, reader: JobReader, name: str) -> str:
        namespace = arguments.namespace or client.namespace
        try:
            job = await find_job(reader, *parse_job(name), namespace)
        except click.ClickException:
            if by_field is None:
                raise
        else:
            if by_field is None or job.entry.kind != "gang":
                return await order(client, job)
        return await order_by_field(client, namespace, name, by_field)

    async def work(client: KubeClient) -> int:
        reader, failed = JobReader(client), 0
        for name in arguments.names:
            try:
                click.echo(await run_order(client, reader, name))
            except click.UsageError:
                raise
            except click.ClickException as error:
                click.echo(f"Error: {error.message}", err=True)
                failed += 1
            except ApiError as error:
                click.echo(f"Error: {name}: request rejected by the API server: {error.message}", err=True)
                failed += 1
        return failed

    if invocation.run(work):
        raise click.exceptions.Exit(1)


_names_argument = click.argument("names", metavar="[KIND/]NAME...", nargs=-1, required=True)


@job.command("suspend")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_suspend(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Suspend jobs: their pods are deleted, the jobs are kept and can be resumed.

    A Volcano Job is suspended by a Command (AbortJob), as by vcctl. Jobs, JobSets, training jobs, RayJobs and
    TrainJobs are suspended by their own field. For a gang NAME is its job, such as pytorchjob/bert, or its
    PodGroup.

    \b
    phalanx job suspend train
    phalanx job suspend pytorchjob/bert -n research
    """
    from phalanx.cli.jobs.orders import suspend_job
    from phalanx.orders.holding import suspend

    _apply_to_each(invocation, arguments, suspend_job, suspend)


@job.command("resume")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_resume(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Resume suspended jobs: their pods are created again.

    \b
    phalanx job resume train
    phalanx job resume pytorchjob/bert -n research
    """
    from phalanx.cli.jobs.orders import resume_job
    from phalanx.orders.holding import release

    _apply_to_each(invocation, arguments, resume_job, release)


@job.command("restart")
@_names_argument
@pass_invocation(TargetsArguments, namespace_option, connection_options)
def job_restart(invocation: Invocation, arguments: TargetsArguments) -> None:
    """Recreate all pods of Volcano Jobs. A restart counts as one retry of the job.

    \b
    phalanx job restart train
    """
    from phalanx.cli.jobs.orders import restart_job

    _apply_to_each(invocation, arguments, restart_job)


@job.command("cancel")
@_names_argument
@cancel_options
@pass_invocation(CancelArguments, namespace_option, connection_options)
def job_cancel(invocation: Invocation, arguments: CancelArguments) -> None:
    """Delete jobs with their pods; for a gang without a job, its PodGroup and pods.

    On a terminal the command asks for confirmation; --yes skips the question. In a script it does not ask.

    \b
    phalanx job cancel train
    phalanx job cancel podgroup/sweep --yes
    phalanx job cancel train --dry-run
    """
    from phalanx.cli.jobs import orders
    from phalanx.cli.listing.harmless import harmless

    async def order(client: KubeClient, job: FoundJob) -> str:
        orders.refuse_owned(job)
        what = harmless(orders.described(job))
        if arguments.dry_run:
            return f"would delete {what}"
        if not confirmed(what, arguments):
            return f"{job.entry.target} is not deleted"
        return await orders.cancel_job(client, job)

    _apply_to_each(invocation, arguments, order)


@job.command("wait", short_help="Wait for a state of jobs.")
@_names_argument
@click.option(
    "--for",
    "state",
    type=click.Choice(["running", "completed", "failed", "finished", "suspended", "deleted"]),
    default="completed",
    show_default=True,
    help="State to wait for. running: the minimum of pods runs; finished: ended with any result.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Maximum seconds to wait. Default: no limit."
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@pass_invocation(JobWaitArguments, namespace_option, connection_options)
def job_wait(invocation: Invocation, arguments: JobWaitArguments) -> None:
    """Wait until jobs reach a state, and print each change.

    Exit codes: 0 all jobs reached the state, 1 a job ended in another state or was deleted, 124 timeout (as
    timeout(1)).

    \b
    phalanx job wait train
    phalanx job wait train --for running --timeout 600
    """
    from phalanx.cli.jobs.target import parse_job
    from phalanx.cli.jobs.wait import wait_for_all

    targets = [(kind, arguments.namespace or "", name) for kind, name in map(parse_job, arguments.names)]
    code = wait_for_all(invocation, targets, arguments.state, arguments.timeout, quiet=arguments.quiet)
    raise click.exceptions.Exit(code)


@job.command("logs", short_help="Print the logs of a job's pods.")
@click.argument("name", metavar="[KIND/]NAME")
@click.option("--task", help="Only pods of this task.")
@click.option("--index", type=click.IntRange(min=0), help="Only pods with this index in their task.")
@click.option("-c", "--container", help="Only this container.")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the job ends, including new pods.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last LINES of each container.")
@click.option(
    "--previous", is_flag=True, help="Print the logs of the previous containers (before the last restart)."
)
@click.option("--timestamps", is_flag=True, help="Prefix each line with its timestamp.")
@click.option(
    "--prefix/--no-prefix", default=None, help="Prefix each line with the pod name.  [default: with several pods]"
)
@pass_invocation(JobLogsArguments, namespace_option, connection_options)
def job_logs(invocation: Invocation, arguments: JobLogsArguments) -> None:
    """Print the logs of all pods of a job, each line prefixed with the pod name.

    \b
    phalanx job logs train
    phalanx job logs train --task worker --index 0 -f
    phalanx job logs train --previous --tail 50
    """
    from phalanx.cli.jobs.log_lines import LogPrinter
    from phalanx.cli.jobs.target import find_job, parse_job
    from phalanx.reports.jobs.job_report import JobReader
    from phalanx.reports.jobs.pod_logs import LogReader, NoPodsError

    kind, name = parse_job(arguments.name)

    async def work(client: KubeClient) -> None:
        reader = JobReader(client)
        job = await find_job(reader, kind, name, arguments.namespace or client.namespace)
        several = job.entry.total > 1 and arguments.index is None
        printer = LogPrinter(prefix=several if arguments.prefix is None else arguments.prefix)
        try:
            await LogReader(client, reader, job, arguments.selection, printer.line, printer.unreadable).run()
        except NoPodsError as error:
            raise click.ClickException(error.message) from error

    invocation.run(work)
