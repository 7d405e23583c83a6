"""Command `phalanx defrag --schedule`: windows, remaining evictions and next moves of the scheduler's
defragmentation."""

from __future__ import annotations

import time
from itertools import islice

import click
import msgspec

from phalanx.cli.columns import columns
from phalanx.cli.invocation import Invocation
from phalanx.daemon.controllers.defragmentation_record import DATA_KEY, NAME, decode
from phalanx.daemon.policy_file import dialect_options
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.stored_usage import read_usage
from phalanx.scheduling.actions.defragment import moves_for
from phalanx.scheduling.actions.proved_moves import ProvedMoves
from phalanx.scheduling.defragmentation.plugin import MOST_ATTEMPTED, may_lack_room
from phalanx.scheduling.defragmentation.relocation import counted
from phalanx.scheduling.defragmentation.runs import DefragmentationRuns
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.whatif.relocation_proof import ClusterFacts


class ScheduledMove(msgspec.Struct, frozen=True):
    pod: str
    source: str
    target: str


class ScheduleStatus(msgspec.Struct, frozen=True):
    """Schedule of the scheduler's action defragment.

    `opens` and `closes` are the limits of the open window (`open`) or of the next one ("" if there is none).
    `moves` are the moves of a run now that let `starts` start, even if the eviction budget is used up.
    """

    open: bool = False
    opens: str = ""
    closes: str = ""
    opens_in_seconds: int = 0
    evictions_left: int = 0
    evictions_per_hour: int = 0
    starts: str = ""
    moves: list[ScheduledMove] = []
    warning: str = ""


def show_schedule(invocation: Invocation) -> None:
    """Print the defragmentation windows and the moves that the scheduler would make now."""
    read_policy, lease_namespace = invocation.policy_reader(), invocation.lease_namespace

    async def work(client: KubeClient) -> ScheduleStatus:
        policy, names = await read_policy(client)
        settings = policy.defragmentation
        if settings is None:
            raise click.ClickException(
                "the policy has no action defragment; set the scheduler's policy with --config FILE"
            )
        snapshot = await read_cluster(client, names, dialect_options(policy))
        await read_usage(client, snapshot, policy, lease_namespace, names)
        now = time.time()
        runs = DefragmentationRuns()
        warning = await _read_budget(client, lease_namespace, names, runs, now)
        promises = await read_promises(client, lease_namespace, names)
        facts = ClusterFacts(snapshot.events, policy, now, names, snapshot.usages, promises.promises)
        return _status(settings, runs, facts.build(), now, warning)

    status = invocation.run(work)
    if invocation.prints_table:
        for line in _lines(status):
            click.echo(line)
    else:
        invocation.print_document(msgspec.to_builtins(status))


async def _read_budget(
    client: KubeClient, namespace: str, schedulers: tuple[str, ...], runs: DefragmentationRuns, now: float
) -> str:
    """Load the scheduler's eviction record into `runs`; return a warning if it is unreadable, else ""."""
    name = f"{name_prefix(schedulers)}-{NAME}"
    try:
        document = await client.get(CONFIG_MAPS.path(namespace, name))
        runs.load(decode(str((document.get("data") or {}).get(DATA_KEY, ""))), now)
    except ApiError as error:
        return "" if error.status == 404 else f"configmap {namespace}/{name} cannot be read: {error.message}"
    except ValueError as error:
        return f"configmap {namespace}/{name}, key {DATA_KEY}: {error}"
    return ""


def _status(
    settings: DefragmentSettings, runs: DefragmentationRuns, scheduler: Scheduler, now: float, warning: str
) -> ScheduleStatus:
    window = runs.window(settings, now)
    moves_found = _next_moves(scheduler, settings, now)
    names = scheduler.state.nodes.names
    moves = (
        [ScheduledMove(record.pod.key, record.pod.node, names[row]) for record, row in moves_found.targets.items()]
        if moves_found is not None
        else []
    )
    return ScheduleStatus(
        window is not None and window.start <= now,
        format_moment(window.start) if window is not None else "",
        format_moment(window.end) if window is not None else "",
        max(0, int(window.start - now)) if window is not None else 0,
        runs.left(settings, now),
        settings.per_hour,
        moves_found.preemptor.name if moves_found is not None else "",
        sorted(moves, key=lambda move: move.pod),
        warning,
    )


def _next_moves(scheduler: Scheduler, settings: DefragmentSettings, now: float) -> ProvedMoves | None:
    session = scheduler.begin(now)
    waiting = sorted(scheduler.waiting_units(session), key=lambda unit: unit.rank)
    for unit in islice((unit for unit in waiting if may_lack_room(session, unit)), MOST_ATTEMPTED):
        if (moves := moves_for(session, unit, settings)) is not None:
            return moves
    return None


def _lines(status: ScheduleStatus) -> list[str]:
    if not status.opens:
        when = "none"
    elif status.open:
        when = f"open now, until {status.closes}"
    else:
        when = f"{status.opens} to {status.closes}, in {format_duration(status.opens_in_seconds)}"
    lines = [
        f"Window:          {when}",
        f"Evictions left:  {status.evictions_left} of {status.evictions_per_hour} per hour",
    ]
    if status.moves:
        lines.append(f"Would move now:  {counted(len(status.moves), 'pod')}, to start {status.starts}")
        rows = [(move.pod, move.source, move.target) for move in status.moves]
        lines += ["", *columns(("POD", "FROM", "FITS ON"), rows)]
    else:
        lines.append("Would move now:  none; no move would start a waiting gang or pod")
    return [*lines, *(["", f"warning: {status.warning}"] if status.warning else [])]
