"""Reports of the usage of queues, users and namespaces between two times.

Whole days come from the sums by day, the rest of a day at both ends from the pods themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Text, and_, cast, func, select

from phalanx.accounting.facts import PodOutcome
from phalanx.accounting.questions import ReportLine, Used
from phalanx.accounting.runs import State
from phalanx.accounting.sums import DAY, decode_parts, joined, usage_within
from phalanx.accounting.tables import members, payers, runs, usage
from phalanx.model.resources import PODS


class _Lines(dict[tuple[str, ...], ReportLine]):
    """Lines of a usage report by group, created on demand; `groups` has the group of each selected payer."""

    def __init__(self, groups: Mapping[int, tuple[str, ...]]) -> None:
        super().__init__()
        self.groups = groups

    def line(self, group: tuple[str, ...]) -> ReportLine:
        return self.setdefault(group, ReportLine(group, {}))

    def entry(self, payer: int, resource: str) -> Used | None:
        """Return the entry to which a payer's usage is added; None for a payer outside of the report, and for the
        resource `pods`."""
        if payer not in self.groups or resource == PODS:
            return None
        return self.line(self.groups[payer]).resources.setdefault(resource, Used())


def read_report(
    connection: Connection,
    by: Sequence[str],
    since: int,
    until: int,
    now: int,
    queues: Sequence[str] = (),
    namespace: str = "",
) -> list[ReportLine]:
    """Return the lines of a usage report sorted by group. Running pods count until `now`. `by` are some of
    DIMENSIONS, or none. Without `queues` or `namespace` all of them count."""
    until = max(since, min(until, now))
    lines = _Lines(_groups(connection, by, queues, namespace))
    first, last = -(-since // DAY), until // DAY
    spans = [(since, until)]
    if first < last:
        _add_days(connection, lines, first, last)
        spans = [(since, first * DAY), (last * DAY, until)]
    for begin, end in spans:
        if begin < end:
            _add_pods(connection, lines, begin, end, members.c.ended > begin)
    # Pods that have not ended are in no day's sums yet.
    _add_pods(connection, lines, since, until, members.c.ended.is_(None))
    _add_runs(connection, lines, since, until)
    return [lines[group] for group in sorted(lines)]


def _groups(
    connection: Connection, by: Sequence[str], queues: Sequence[str], namespace: str
) -> dict[int, tuple[str, ...]]:
    statement = select(payers.c.id, *(payers.c[dimension] for dimension in by))
    if queues:
        statement = statement.where(payers.c.queue.in_(queues))
    if namespace:
        statement = statement.where(payers.c.namespace == namespace)
    return {row[0]: tuple(row[1:]) for row in connection.execute(statement)}


def _add_days(connection: Connection, lines: _Lines, first: int, last: int) -> None:
    table = usage.c
    numbers = [column for column in table if column.name.endswith(("_high", "_low"))]
    statement = select(table.payer, table.resource, *(func.sum(column) for column in numbers))
    within = and_(table.day >= first, table.day < last)
    for payer, resource, *sums in connection.execute(statement.where(within).group_by(table.payer, table.resource)):
        entry = lines.entry(payer, resource)
        if entry is not None:
            entry.used += joined(sums[0], sums[1])
            entry.evicted += joined(sums[2], sums[3])
            entry.failed += joined(sums[4], sums[5])


def _add_pods(connection: Connection, lines: _Lines, begin: int, end: int, condition: ColumnElement[bool]) -> None:
    table = members.c
    statement = select(table.payer, table.outcome, table.parts).where(and_(condition, table.bound < end))
    for payer, outcome, parts in connection.execute(statement):
        for resource, amount in usage_within(decode_parts(parts), begin, end):
            entry = lines.entry(payer, resource)
            if entry is not None:
                entry.used += amount
                entry.evicted += amount if outcome == PodOutcome.EVICTED else 0
                entry.failed += amount if outcome == PodOutcome.FAILED else 0


def _add_runs(connection: Connection, lines: _Lines, since: int, until: int) -> None:
    """Add the numbers and waits of runs to the report, payer by payer: the indices avoid sorting all past runs."""
    table = runs.c
    ended = and_(table.payer == payers.c.id, table.ended >= since, table.ended < until)
    states = [str(state) for state in State if state.over]
    counts = [select(func.count()).where(and_(ended, table.state == state)).scalar_subquery() for state in states]
    for payer, *numbers in connection.execute(select(payers.c.id, *counts)):
        for state, number in zip(states, numbers, strict=True):
            if number and payer in lines.groups:
                line = lines.line(lines.groups[payer])
                line.ended += number
                line.states[state] = line.states.get(state, 0) + number
    started = and_(table.payer == payers.c.id, table.started >= since, table.started < until)
    # One text per payer: fetching a million rows takes longer than all other steps.
    joined_waits = select(func.aggregate_strings(cast(table.wait, Text), ",")).where(started).scalar_subquery()
    texts: dict[tuple[str, ...], list[str]] = {}
    for payer, text in connection.execute(select(payers.c.id, joined_waits)):
        if text and payer in lines.groups:
            texts.setdefault(lines.groups[payer], []).append(text)
    if not texts:
        return
    # Imported here: it would take longer than a report about no runs.
    import numpy as np

    for group, parts in texts.items():
        all_waits, line = np.fromstring(",".join(parts), np.int64, sep=","), lines.line(group)
        line.started = len(all_waits)
        # Each percentile is the wait of a real run.
        line.wait_p50, line.wait_p90 = np.percentile(all_waits, [50, 90], method="inverted_cdf").tolist()
