"""Recorded usage of each queue on each day, for charts over time."""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, select

from phalanx.accounting.sums import DAY, decode_parts, joined, usage_within
from phalanx.accounting.tables import members, payers, usage
from phalanx.model.resources import PODS

Days = dict[str, dict[str, list[int]]]
"""resource -> queue -> usage on each day, in amount times seconds, exactly."""


def read_queue_days(connection: Connection, first: int, count: int, now: int) -> Days:
    """Return the usage of queues on `count` days from the day `first` (days since the epoch). Running pods count
    until `now`."""
    days: Days = {}

    def add(resource: str, queue: str, day: int, amount: int) -> None:
        if resource != PODS and amount:
            days.setdefault(resource, {}).setdefault(queue, [0] * count)[day - first] += amount

    table = usage.c
    sums = select(
        table.day, payers.c.queue, table.resource, func.sum(table.used_high), func.sum(table.used_low)
    ).join(payers, payers.c.id == table.payer)
    within = and_(table.day >= first, table.day < first + count)
    for day, queue, resource, high, low in connection.execute(
        sums.where(within).group_by(table.day, payers.c.queue, table.resource)
    ):
        add(resource, queue, day, joined(high, low))
    # Pods that have not ended are in no day's sums yet.
    open_pods = select(payers.c.queue, members.c.bound, members.c.parts).join(
        payers, payers.c.id == members.c.payer
    )
    end = min(now, (first + count) * DAY)
    for queue, bound, parts in connection.execute(
        open_pods.where(and_(members.c.ended.is_(None), members.c.bound < end))
    ):
        decoded = decode_parts(parts)
        for day in range(max(first, bound // DAY), -(-end // DAY)):
            for resource, amount in usage_within(decoded, day * DAY, min(end, (day + 1) * DAY)):
                add(resource, queue, day, amount)
    return days
