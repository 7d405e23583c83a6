"""What queues, users and namespaces used between two moments.

Whole days come from the sums that are kept by day, what is left of days at both ends from the pods themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, Text, and_, cast, func, select

from phalanx.accounting.facts import PodOutcome
from phalanx.accounting.runs import State
from phalanx.accounting.sums import DAY, decode_parts, held, joined
from phalanx.accounting.tables import members, payers, runs, usage
from phalanx.model.resources import PODS

Waits = npt.NDArray[np.int64]

#: What reports may be grouped by.
DIMENSIONS = ("queue", "user", "namespace")


class Used(msgspec.Struct):
    """Of one resource, in amount times seconds, exactly (CPU in thousandths of a core): all, the part of it whose
    pods were evicted, and whose pods failed."""

    used: int = 0
    evicted: int = 0
    failed: int = 0


class ReportLine(msgspec.Struct):
    """`group` has one value for each dimension that was asked for. `started` and `ended` count runs, `states` those
    that ended by how; waits are of those that started, in seconds, None where none did."""

    group: tuple[str, ...]
    resources: dict[str, Used]
    started: int = 0
    ended: int = 0
    states: dict[str, int] = {}
    wait_p50: int | None = None
    wait_p90: int | None = None


class _Lines(dict[tuple[str, ...], ReportLine]):
    """The lines by their groups, made as they are needed; `groups` are those of the payers that count."""

    def __init__(self, groups: Mapping[int, tuple[str, ...]]) -> None:
        super().__init__()
        self.groups = groups

    def of(self, group: tuple[str, ...]) -> ReportLine:
        return self.setdefault(group, ReportLine(group, {}))

    def used(self, payer: int, resource: str) -> Used | None:
        """None for a payer that does not count, and for the slots that pods take."""
        if payer not in self.groups or resource == PODS:
            return None
        return self.of(self.groups[payer]).resources.setdefault(resource, Used())


def read_report(
    connection: Connection, by: Sequence[str], since: int, until: int, now: int, queues: Sequence[str] = ()
) -> list[ReportLine]:
    """Sorted by group. What is under way counts until `now`. `by` are some of DIMENSIONS, none for one line."""
    until = max(since, min(until, now))
    lines = _Lines(_groups(connection, by, queues))
    first, last = -(-since // DAY), until // DAY
    spans = [(since, until)]
    if first < last:
        _add_days(connection, lines, first, last)
        spans = [(since, first * DAY), (last * DAY, until)]
    for begin, end in spans:
        if begin < end:
            _add_pods(connection, lines, begin, end, members.c.ended > begin)
    # What has not ended is in no day's sums.
    _add_pods(connection, lines, since, until, members.c.ended.is_(None))
    _add_runs(connection, lines, since, until)
    return [lines[group] for group in sorted(lines)]


def _groups(connection: Connection, by: Sequence[str], queues: Sequence[str]) -> dict[int, tuple[str, ...]]:
    wanted = select(payers.c.id, *(payers.c[each] for each in by))
    if queues:
        wanted = wanted.where(payers.c.queue.in_(queues))
    return {row[0]: tuple(row[1:]) for row in connection.execute(wanted)}


def _add_days(connection: Connection, lines: _Lines, first: int, last: int) -> None:
    table = usage.c
    numbers = [each for each in table if each.name.endswith(("_high", "_low"))]
    wanted = select(table.payer, table.resource, *(func.sum(each) for each in numbers))
    within = and_(table.day >= first, table.day < last)
    for payer, resource, *sums in connection.execute(wanted.where(within).group_by(table.payer, table.resource)):
        entry = lines.used(payer, resource)
        if entry is not None:
            entry.used += joined(sums[0], sums[1])
            entry.evicted += joined(sums[2], sums[3])
            entry.failed += joined(sums[4], sums[5])


def _add_pods(connection: Connection, lines: _Lines, begin: int, end: int, which: ColumnElement[bool]) -> None:
    table = members.c
    wanted = select(table.payer, table.outcome, table.parts).where(and_(which, table.bound < end))
    for payer, outcome, parts in connection.execute(wanted):
        for resource, amount in held(decode_parts(parts), begin, end):
            entry = lines.used(payer, resource)
            if entry is not None:
                entry.used += amount
                entry.evicted += amount if outcome == PodOutcome.EVICTED else 0
                entry.failed += amount if outcome == PodOutcome.FAILED else 0


def _add_runs(connection: Connection, lines: _Lines, since: int, until: int) -> None:
    """Payer by payer, for which there are indices: nothing of the past has to be sorted."""
    table = runs.c
    ended = and_(table.payer == payers.c.id, table.ended >= since, table.ended < until)
    states = [str(state) for state in State if state.over]
    counts = [select(func.count()).where(and_(ended, table.state == each)).scalar_subquery() for each in states]
    for payer, *numbers in connection.execute(select(payers.c.id, *counts)):
        for state, number in zip(states, numbers, strict=True):
            if number and payer in lines.groups:
                line = lines.of(lines.groups[payer])
                line.ended += number
                line.states[state] = line.states.get(state, 0) + number
    started = and_(table.payer == payers.c.id, table.started >= since, table.started < until)
    # As one text for each payer: a million rows one by one take longer than everything else.
    every = select(func.aggregate_strings(cast(table.wait, Text), ",")).where(started).scalar_subquery()
    waits: dict[tuple[str, ...], list[Waits]] = {}
    for payer, text in connection.execute(select(payers.c.id, every)):
        if text and payer in lines.groups:
            waits.setdefault(lines.groups[payer], []).append(np.fromstring(text, np.int64, sep=","))
    for group, arrays in waits.items():
        each, line = np.concatenate(arrays), lines.of(group)
        line.started = len(each)
        # Each is a wait that somebody had; so many waited no longer.
        line.wait_p50, line.wait_p90 = np.percentile(each, [50, 90], method="inverted_cdf").tolist()
