"""`phalanx jobs`: every gang with its state, and where it runs or why it does not."""

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
from phalanx.cli.listing.options import NamespacedListArguments, list_options, parse_requirements, queues_option
from phalanx.kube.core_resources import PODS

if TYPE_CHECKING:
    from phalanx.daemon.gang_entries import GangEntry
    from phalanx.kube.client import KubeClient
    from phalanx.kube.paths import Resource
    from phalanx.model.selectors import Requirement

_KINDS = ("vcjob", "job", "jobset", "podgroup", "gang")
# As Slurm's MinJobAge: those that have ended stay in the list for so many seconds.
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
    def filters(self) -> bool:
        """Whether an option is set that --start does not honour."""
        return bool(
            self.states or self.kinds or self.me or self.users or self.selector or self.sort_by or self.no_headers
        )


@click.command("jobs", short_help="One line a gang or job: state, members, nodes or reason.")
@click.option("--me", is_flag=True, help="Only yours, by the label or annotation that the policy names users by.")
@click.option("-u", "--of", "users", multiple=True, metavar="USER", help="Only those of a user; may be repeated.")
@queues_option
@click.option(
    "-t",
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only those in it, such as PD, R or Pending,Running; all shows those that ended long ago too.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help=f"Only these: {', '.join(_KINDS)} (whatever has no job), pytorchjob, ...",
)
@click.option(
    "--scheduler",
    envvar="PHALANX_SCHEDULER",
    metavar="URL",
    help="Ask the scheduler's process itself (its --metrics-address), which is quick on large clusters.",
)
@click.option(
    "--scheduler-ca",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Certificates to trust there.",
)
@click.option("--start", is_flag=True, help="When those that wait start, the earliest first.")
@pass_invocation(
    GangListArguments,
    list_options(),
    scheduler_options("on their own to show, and with --start to tell starts of,"),
)
def jobs(invocation: Invocation, arguments: GangListArguments) -> None:
    """One line a gang, whoever made it: Volcano Jobs, native Jobs, JobSets, PodGroups of every dialect, gangs that
    only their pods declare, and pods on their own.

    ST is PD (pending), CF (has nodes, starting), R (running), PT (fewer than its minimum run), CG (ending), CD
    (completed), F (failed), CA (terminated) or S (suspended). AGE/RUN is how long ago it was made and since when
    as many run as it needs, MEMBERS are those that run, that start together, and all. START is promised to it. The
    last column has its nodes, or (why it waits); -o wide says that in full. Those that have ended are shown for
    five minutes, with --state all for as long as they are there.

    With --scheduler the process is asked that knows all of it already, by your token (or PHALANX_SCHEDULER_TOKEN);
    you need the right to list the pods. It lists gangs, and pods on their own.

    With --start it lists the gangs, and pods on their own, that wait, whoever made them: NO-LATER-THAN is a promise
    that rests on enforced limits, EXPECTED when half of those that were told the like have started, and 80%-UNTIL
    when 80 of 100 have. REASON says what that rests on, or why nothing is told. It is a dry run over the live
    cluster and wants rights to read all of it.

    \b
    phalanx jobs -A
    phalanx jobs --me -w
    phalanx jobs -q research -t PD --sort-by -gpus
    phalanx jobs -A --start
    """
    requirements = parse_requirements(arguments.selector)
    if arguments.start:
        if arguments.filters:
            raise click.UsageError("--start goes with -n, -A, -q, -o and -w, not with other filters")
        if len(arguments.queues) > 1:
            raise click.UsageError("--start goes with one --queue")
        _show_starts(invocation, arguments)
        return
    wanted = _Filter(
        arguments.me,
        set(arguments.users),
        set(arguments.queues),
        _states(arguments.states),
        {kind.lower() for kind in arguments.kinds},
    )
    scheduler = arguments.scheduler
    if scheduler is not None and requirements:
        raise click.UsageError("--selector does not go with --scheduler, which does not keep labels of jobs")
    if scheduler is not None:
        reader = _Scheduler(scheduler, arguments.scheduler_ca, arguments.queues).reader()
    else:
        reader = _reader_of_lists(invocation, wanted, requirements)
    if scheduler is not None and arguments.watch:
        click.echo("the scheduler has no stream of changes: it is asked again every --interval", err=True)
    _show_gangs(invocation, arguments, wanted, reader)


def _states(texts: tuple[str, ...]) -> set[str] | None:
    """The words of the states that are meant; None for those that have not ended, or not long ago."""
    from phalanx.views.gang_state import CODES

    spellings: dict[str, set[str]] = {"all": {str(state) for state in CODES}}
    for state, code in CODES.items():
        for spelling in (state.lower(), code.lower()):
            spellings.setdefault(spelling, set()).add(str(state))
    found: set[str] = set()
    for text in texts:
        for word in filter(None, text.split(",")):
            if word.lower() not in spellings:
                known = ", ".join(f"{code} ({state})" for state, code in CODES.items() if state != "Deleted")
                raise click.UsageError(f"--state {word!r}: write all, or one of {known}")
            found |= spellings[word.lower()]
    return found or None


class _Filter:
    """Which gangs are shown. `users` grows by who asks where only his are."""

    def __init__(
        self, me: bool, users: set[str], queues: set[str], states: set[str] | None, kinds: set[str]
    ) -> None:
        self.me = me
        self.users = users
        self._queues = queues
        self._states = states
        self._kinds = kinds

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
"""Reads the gangs of a namespace ("" for all), and what could not be read."""


class _Scheduler(NamedTuple):
    """Whose word is asked for: the scheduler's at `url`, by the certificates in a file."""

    url: str
    authority: str | None
    queues: tuple[str, ...]

    def reader(self) -> Reader:
        from phalanx.cli.jobs.scheduler_list import read_scheduler

        token = os.environ.get("PHALANX_SCHEDULER_TOKEN", "")
        queue = self.queues[0] if len(self.queues) == 1 else ""

        async def read(client: KubeClient, where: str) -> tuple[list[GangEntry], list[str]]:
            return (await read_scheduler(client, self.url, self.authority, token, where, queue)).items, []

        return read


def _reader_of_lists(invocation: Invocation, wanted: _Filter, requirements: tuple[Requirement, ...]) -> Reader:
    from phalanx.cli.listing.progress import Progress
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.model.matching import all_hold
    from phalanx.reports.gangs.gang_list import gang_entries
    from phalanx.reports.jobs.job_report import JobReader
    from phalanx.reports.read_promises import read_promises

    read_policy = invocation.policy_reader(names_only=True)
    readers: list[JobReader] = []

    async def read(client: KubeClient, where: str) -> tuple[list[GangEntry], list[str]]:
        policy, names = await read_policy(client)
        dialects = dialect_options(policy)
        if wanted.me and not (dialects.user_label or dialects.user_annotation):
            raise click.UsageError(
                "--me needs to know how pods name their user: a policy with phalanx.dialects.userLabel (--config "
                "POLICY, where the scheduler's may not be read)"
            )
        if not readers:
            readers.append(JobReader(client))
        reader = readers[0]
        # Nothing of what is read is garbage before it is printed, and looking for some takes half of the time.
        gc.disable()
        try:
            with Progress() as progress:
                found = await reader.jobs(where or None, time.time(), loose=names, progress=progress.advanced)
        finally:
            gc.enable()
        if PODS in reader.forbidden:
            raise click.ClickException(f"the API server refused: {reader.forbidden[PODS]}")
        promises = await read_promises(client, invocation.lease_namespace, names)
        entries = gang_entries(found, dialects, promises)
        warnings = [*reader.warnings, *promises.warnings(time.time())]
        return [entry for entry in entries if all_hold(requirements, entry.labels)], warnings

    return read


def _show_gangs(invocation: Invocation, arguments: GangListArguments, wanted: _Filter, reader: Reader) -> None:
    """Print the gangs; a list that goes on follows the objects that it is made of, unless a scheduler is asked."""
    from phalanx.cli.jobs.gang_columns import COLUMNS
    from phalanx.cli.jobs.who_asks import names_of_asker
    from phalanx.cli.listing.listing import Found, Listing, show
    from phalanx.daemon.gang_entries import gone

    async def read(client: KubeClient) -> Found[GangEntry]:
        if wanted.me and not wanted.users:
            wanted.users |= await names_of_asker(client)
        where = "" if arguments.scope is None else arguments.scope or client.namespace
        entries, warnings = await reader(client, where)
        now = time.time()
        return Found([entry for entry in entries if wanted.shows(entry, now)], tuple(warnings))

    listing: Listing[GangEntry] = Listing(
        columns=COLUMNS,
        key=lambda entry: (entry.kind, entry.namespace, entry.name),
        name=lambda entry: entry.target,
        gone=gone,
        namespace=lambda entry: entry.namespace,
    )

    async def kinds(client: KubeClient) -> Sequence[Resource]:
        from phalanx.reports.jobs.job_report import JobReader

        return await JobReader(client).kinds()

    show(invocation, listing, read, arguments, kinds if arguments.scheduler is None else None)


def _show_starts(invocation: Invocation, options: GangListArguments) -> None:
    import asyncio

    from phalanx.cli.display import Display
    from phalanx.cli.jobs.starts import StartQuestion
    from phalanx.cli.listing.outages import survived_outage

    output = options.output.word
    if output not in ("table", "wide", "json", "yaml", "name"):
        raise click.UsageError(f"--start does not go with -o {output}")
    display = Display("table" if output in ("name", "wide") else output, live=options.watch)

    queue = options.queues[0] if options.queues else ""

    async def look(client: KubeClient) -> None:
        where = None if options.scope is None else options.scope or client.namespace
        display.show(*await StartQuestion(invocation, where, queue).answer(client, output))

    async def work(client: KubeClient) -> None:
        await look(client)
        while options.watch:
            await asyncio.sleep(options.interval)
            with survived_outage(display.complain):
                await look(client)

    invocation.show(work, watch=options.watch)
