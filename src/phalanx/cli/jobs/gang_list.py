"""Command `phalanx jobs`: gangs with state, and nodes or reason."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from phalanx.cli.connection import scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.jobs.job_kinds import KINDS, parse_kinds, refuse_unknown_kinds
from phalanx.cli.listing.options import NamespacedListArguments, list_options, parse_requirements, queues_option
from phalanx.cli.server.options import server_options
from phalanx.kube.core_resources import PODS
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.server.requests import Server
    from phalanx.daemon.gang_entries import GangEntry
    from phalanx.kube.client import KubeClient
    from phalanx.kube.paths import Resource
    from phalanx.model.selectors import Requirement

# Seconds for which an ended gang is still listed, as Slurm's MinJobAge.
_ENDED_FOR = 300


@dataclass(frozen=True, kw_only=True)
class GangListArguments(NamespacedListArguments):
    """Arguments of `phalanx jobs`."""

    me: bool
    users: tuple[str, ...]
    queues: tuple[str, ...]
    states: tuple[str, ...]
    kinds: tuple[str, ...]
    scheduler: str | None
    scheduler_ca: str | None
    start: bool
    selector: str

    @property
    def selected_queues(self) -> tuple[str, ...]:
        return self.queues

    @property
    def filters(self) -> bool:
        """Whether an option is set that cannot be combined with --start."""
        return bool(
            self.states or self.kinds or self.me or self.users or self.selector or self.sort_by or self.no_headers
        )


@click.command("jobs", short_help="List gangs and jobs with state, members, nodes or reason.")
@click.option("--me", is_flag=True, help="Only your gangs, by the user label or annotation of the policy.")
@click.option("-u", "--of", "users", multiple=True, metavar="USER", help="Only gangs of this user; repeatable.")
@queues_option
@click.option(
    "-t",
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only gangs in these states, such as PD, R or Pending,Running; all: also gangs that ended long ago.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help=f"Only these kinds: {', '.join(KINDS)} (gangs without job), pytorchjob, ...",
)
@click.option(
    "--scheduler",
    envvar="PHALANX_SCHEDULER",
    metavar="URL",
    help="URL of the scheduler (its --metrics-address) to list gangs from; fast on large clusters.",
)
@click.option(
    "--scheduler-ca",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="CA certificates for --scheduler.",
)
@click.option("--start", is_flag=True, help="List expected starts of waiting gangs, earliest first.")
@pass_invocation(
    GangListArguments,
    list_options(),
    server_options,
    scheduler_options("are listed"),
)
def jobs(invocation: Invocation, arguments: GangListArguments) -> None:
    """Return the names of the states that --state selects; None for the default (unfinished or recently ended).

    The list has Volcano Jobs, native Jobs, JobSets, PodGroups of all dialects, gangs declared by pods, and pods.

    ST is PD (pending), CF (has nodes, starting), R (running), PT (fewer members running than its minimum), CG
    (ending), CD (completed), F (failed), CA (terminated) or S (suspended). AGE/RUN is the age and the time
    since the minimum of members runs. MEMBERS is running/minimum/all. START is the promised start. The last
    column has the nodes or, in brackets, the reason (-o wide: with message). Ended gangs are listed for five
    minutes; --state all lists all.

    With --scheduler the scheduler itself answers, authorized by your token (or PHALANX_SCHEDULER_TOKEN); you
    need the right to list pods. It lists gangs and single pods. With --server the page's server does the same.

    With --start the command lists the starts of waiting gangs and single pods. NO-LATER-THAN is a promise,
    based on enforced limits. EXPECTED is the median: half of the gangs with an equal forecast have started by
    then; 80%-UNTIL is the 80th percentile. REASON is the basis of the forecast, or why there is none. The
    forecast is a dry run over the live cluster and needs rights to read all of it.

    \b
    phalanx jobs -A
    phalanx jobs --me -w
    phalanx jobs -q research -t PD --sort-by -gpus
    phalanx jobs -A --start
    """
    requirements = parse_requirements(arguments.selector)
    if arguments.start:
        if arguments.filters:
            raise click.UsageError("--start works with -n, -A, -q, -o and -w only")
        if len(arguments.queues) > 1:
            raise click.UsageError("--start works with one --queue only")
        _show_starts(invocation, arguments)
        return
    gang_filter = _Filter(
        arguments.me,
        set(arguments.users),
        set(arguments.queues),
        _states(arguments.states),
        parse_kinds(arguments.kinds),
    )
    scheduler, server = arguments.scheduler, invocation.client.server
    if requirements and (scheduler is not None or server):
        option, noun = ("--scheduler", "scheduler") if scheduler is not None else ("--server", "server")
        raise click.UsageError(f"--selector excludes {option}: the {noun} does not store labels of jobs")
    if scheduler is None and server:
        reader = _reader_of_server(invocation, arguments.queues)
    elif scheduler is not None:
        reader = _Scheduler(scheduler, arguments.scheduler_ca, arguments.queues).reader()
    else:
        reader = _reader_of_lists(invocation, gang_filter, requirements, arguments.queues, arguments.watch)
    if arguments.watch and (scheduler is not None or server):
        noun = "scheduler" if scheduler is not None else "server"
        click.echo(f"the {noun} has no watch; it is polled every --interval", err=True)
    _show_gangs(invocation, arguments, gang_filter, reader)


def _states(texts: tuple[str, ...]) -> set[str] | None:
    """Return the names of the selected states; None for the default (unfinished or recently ended)."""
    from phalanx.views.gang_state import CODES

    spellings: dict[str, set[str]] = {"all": {str(state) for state in CODES}}
    for state, code in CODES.items():
        for spelling in (state.lower(), code.lower()):
            spellings.setdefault(spelling, set()).add(str(state))
    states: set[str] = set()
    for text in texts:
        for word in filter(None, text.split(",")):
            if word.lower() not in spellings:
                known = ", ".join(f"{code} ({state})" for state, code in CODES.items() if state != "Deleted")
                raise click.UsageError(f"unknown --state {quoted(word)}; expected all, or one of {known}")
            states |= spellings[word.lower()]
    return states or None


class _Filter:
    """Filter of gangs. With `me`, the names of the user are added to `users` before the first list."""

    def __init__(
        self, me: bool, users: set[str], queues: set[str], states: set[str] | None, kinds: set[str]
    ) -> None:
        self.me = me
        self.users = users
        self._queues = queues
        self._states = states
        self._kinds = kinds

    def refuse_unknown_kinds(self, listed: set[str]) -> None:
        """Raise click.UsageError if a selected kind is neither among the kinds `listed` nor a kind of jobs."""
        refuse_unknown_kinds(self._kinds, listed)

    def shows(self, entry: GangEntry, now: float) -> bool:
        from phalanx.dialects.times import parse_time

        if self._states is None:
            if entry.over and now - parse_time(entry.finished) > _ENDED_FOR:
                return False
        elif entry.state not in self._states:
            return False
        if (self.me or self.users) and entry.user not in self.users:
            return False
        if self._queues and entry.queue not in self._queues:
            return False
        without_job = "gang" in self._kinds and entry.target.startswith("podgroup/")
        return not self._kinds or without_job or entry.kind in self._kinds


Reader = Callable[["KubeClient", str], Awaitable[tuple["list[GangEntry]", "list[str]"]]]
"""Function that reads the gangs of a namespace ("" for all) and returns them with warnings."""


class _Scheduler(NamedTuple):
    """Scheduler process that answers at `url`, verified by the CA certificates in the file `authority`."""

    url: str
    authority: str | None
    queues: tuple[str, ...]

    def reader(self) -> Reader:
        from phalanx.cli.jobs.scheduler_list import read_scheduler

        token = os.environ.get("PHALANX_SCHEDULER_TOKEN", "")
        queue = self.queues[0] if len(self.queues) == 1 else ""

        async def read(client: KubeClient, namespace: str) -> tuple[list[GangEntry], list[str]]:
            return (await read_scheduler(client, self.url, self.authority, token, namespace, queue)).items, []

        return read


def _reader_of_server(invocation: Invocation, queues: tuple[str, ...]) -> Reader:
    """Return a reader that asks the page's server (--server), which knows all gangs."""

    async def read(client: KubeClient, namespace: str) -> tuple[list[GangEntry], list[str]]:
        from phalanx.cli.server.rights import by_rights
        from phalanx.daemon.gang_entries import ListedGangs

        async def ask(server: Server) -> ListedGangs:
            question = {"namespace": namespace, "queue": queues[0] if len(queues) == 1 else ""}
            return await server.get("commands/jobs", ListedGangs, question | {"own": client.namespace})

        async def never(client: KubeClient) -> ListedGangs:
            raise AssertionError("--server is asked first")

        return (await by_rights(invocation, never, ask)(client)).items, []

    return read


def _reader_of_lists(
    invocation: Invocation,
    gang_filter: _Filter,
    requirements: tuple[Requirement, ...],
    queues: tuple[str, ...],
    watch: bool,
) -> Reader:
    """Return a reader that lists the objects with the user's own rights. A user who cannot list the pods of all
    namespaces gets the answer of the server for all namespaces, which has no watch and no labels."""
    from phalanx.cli.jobs.server_starts import with_server_starts
    from phalanx.cli.listing.progress import Progress
    from phalanx.cli.server.list_settings import list_settings
    from phalanx.model.matching import all_hold
    from phalanx.reports.gangs.gang_list import gang_entries
    from phalanx.reports.jobs.job_report import JobReader
    from phalanx.reports.read_promises import read_promises

    readers: list[JobReader] = []

    async def read(client: KubeClient, namespace: str) -> tuple[list[GangEntry], list[str]]:
        settings, unread = await list_settings(invocation, client, required=gang_filter.me)
        names, dialects = settings.scheduler_names, settings.dialects
        if gang_filter.me and not (dialects.user_label or dialects.user_annotation):
            raise click.UsageError(
                "--me: the scheduler's policy names no label or annotation with the user of a job. Fix: set "
                "phalanx.dialects.userLabel in the policy (an administrator does); until then give your jobs a "
                "label of your own, such as owner=NAME, and list them with: phalanx jobs -l owner=NAME"
            )
        if not readers:
            readers.append(JobReader(client))
        reader = readers[0]
        # Everything read here lives until it is printed; garbage collection would take half of the time.
        gc.disable()
        try:
            with Progress() as progress:
                jobs = await reader.jobs(namespace or None, time.time(), loose=names, progress=progress.advanced)
        finally:
            gc.enable()
        if PODS in reader.forbidden and not (namespace or watch or requirements):
            return await _reader_of_server(invocation, queues)(client, namespace)
        if PODS in reader.forbidden:
            raise click.ClickException(f"request rejected by the API server: {reader.forbidden[PODS]}")
        promises = await read_promises(client, invocation.lease_namespace, names)
        entries = [
            entry for entry in gang_entries(jobs, dialects, promises) if all_hold(requirements, entry.labels)
        ]
        warnings = [*filter(None, [unread]), *reader.warnings]
        completed = None
        if promises.unread:
            completed = await with_server_starts(invocation, client, namespace, entries)
        if completed is None:
            warnings += promises.warnings(time.time())
        return completed or entries, warnings

    return read


def _show_gangs(invocation: Invocation, arguments: GangListArguments, gang_filter: _Filter, reader: Reader) -> None:
    """Print the gangs; with -w refresh after changes of their objects (with --scheduler: by polling)."""
    from phalanx.cli.jobs.gang_columns import COLUMNS
    from phalanx.cli.jobs.own_user import own_user_names
    from phalanx.cli.listing.listing import Found, Listing, show
    from phalanx.daemon.gang_entries import gone

    async def read(client: KubeClient) -> Found[GangEntry]:
        if gang_filter.me and not gang_filter.users:
            gang_filter.users |= await own_user_names(client)
        namespace = "" if arguments.scope is None else arguments.scope or client.namespace
        entries, warnings = await reader(client, namespace)
        gang_filter.refuse_unknown_kinds({entry.kind for entry in entries})
        now = time.time()
        return Found([entry for entry in entries if gang_filter.shows(entry, now)], tuple(warnings))

    listing: Listing[GangEntry] = Listing(
        columns=COLUMNS,
        key=lambda entry: (entry.kind, entry.namespace, entry.name),
        name=lambda entry: entry.target,
        gone=gone,
        namespace=lambda entry: entry.namespace,
    )

    reads_lists = arguments.scheduler is None and not invocation.client.server

    async def kinds(client: KubeClient) -> Sequence[Resource]:
        from phalanx.reports.jobs.job_report import JobReader

        return await JobReader(client).kinds()

    show(invocation, listing, read, arguments, kinds if reads_lists else None)


def _show_starts(invocation: Invocation, options: GangListArguments) -> None:
    import asyncio

    from phalanx.cli.display import Display
    from phalanx.cli.jobs.starts import StartQuestion
    from phalanx.cli.listing.outages import survived_outage

    output = options.output.word
    if output not in ("table", "wide", "json", "yaml", "name"):
        raise click.UsageError(f"--start does not support -o {output}")
    display = Display("table" if output in ("name", "wide") else output, live=options.watch)

    queue = options.queues[0] if options.queues else ""

    async def refresh(client: KubeClient) -> None:
        namespace = None if options.scope is None else options.scope or client.namespace
        display.show(*await StartQuestion(invocation, namespace, queue).answer(client, output))

    async def work(client: KubeClient) -> None:
        await refresh(client)
        while options.watch:
            await asyncio.sleep(options.interval)
            with survived_outage(display.complain):
                await refresh(client)

    invocation.show(work, watch=options.watch)
