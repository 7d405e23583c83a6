"""The columns of `phalanx jobs`, squeue's: the reason is in the last."""

from __future__ import annotations

from phalanx.cli.listing.ages import age, relative, span
from phalanx.cli.listing.node_names import compress
from phalanx.cli.listing.table import Column
from phalanx.daemon.gang_entries import GangEntry
from phalanx.dialects.times import parse_time
from phalanx.views.gang_state import GangState

_COLOURS = {
    GangState.PENDING: "yellow",
    GangState.GATED: "yellow",
    GangState.PARTIAL: "magenta",
    GangState.STARTING: "cyan",
    GangState.RUNNING: "green",
    GangState.EVICTING: "magenta",
    GangState.FAILED: "red",
    GangState.CANCELLED: "red",
    GangState.SUSPENDED: "blue",
}


def _age_and_run(entry: GangEntry, now: float) -> str:
    return f"{age(entry.created, now) or '-'}/{_run(entry, now) or '-'}"


def _run(entry: GangEntry, now: float) -> str:
    if not entry.started:
        return ""
    if entry.over:
        return span(parse_time(entry.finished) - parse_time(entry.started)) if entry.finished else ""
    return age(entry.started, now)


def _members(entry: GangEntry, now: float) -> str:
    return f"{entry.running}/{entry.minimum or '-'}/{entry.total}"


def _gpus(entry: GangEntry, now: float) -> str:
    return f"{entry.gpus:g}" if entry.gpus else ""


def nodes_or_reason(entry: GangEntry, *, full: bool) -> str:
    """`gpu-[01-04]`, `(NotEnoughResources)`, or both for a gang that has only a part of its nodes."""
    reason = f"{entry.reason}: {entry.message}" if full and entry.reason and entry.message else entry.reason
    parts = [compress(entry.nodes), f"({reason})" if reason else ""]
    return " ".join(filter(None, parts))


COLUMNS: tuple[Column[GangEntry], ...] = (
    Column("GANG", lambda entry, now: entry.name),
    Column("KIND", lambda entry, now: entry.kind),
    Column("QUEUE", lambda entry, now: entry.queue),
    Column("USER", lambda entry, now: entry.user),
    Column("PRIORITY", lambda entry, now: str(entry.priority), wide=True, order=lambda entry: entry.priority),
    Column("ST", lambda entry, now: entry.state.code, colour=lambda entry: _COLOURS.get(entry.state)),
    Column("AGE/RUN", _age_and_run, order=lambda entry: -parse_time(entry.created)),
    Column("MEMBERS", _members, order=lambda entry: entry.total),
    Column("GPUS", _gpus, order=lambda entry: entry.gpus),
    Column("START", lambda entry, now: relative(entry.start, now), order=lambda entry: entry.start),
    Column(
        "EXPECTED", lambda entry, now: relative(entry.expected, now), wide=True, order=lambda entry: entry.expected
    ),
    Column("SCHEDULER", lambda entry, now: entry.scheduler, wide=True),
    Column("OWNER", lambda entry, now: entry.owner, wide=True),
    Column("GROUP", lambda entry, now: entry.group, wide=True),
    Column("NODES(REASON)", lambda entry, now: nodes_or_reason(entry, full=False), narrow=True),
    Column("NODES(REASON)", lambda entry, now: nodes_or_reason(entry, full=True), wide=True),
)
