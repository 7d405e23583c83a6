"""Members that are alike, as one: and in which order such batches are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.framework.colocation import ColocationGroups
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.session.session import Session


class PodBatch:
    """Members of one gang that are alike: same priority, class, role, payer and huddle; `members` in their
    order."""

    __slots__ = ("cls", "huddle", "members", "payer", "priority", "role")

    def __init__(
        self, priority: int, cls: ClassRecord, role: str, payer: ChargePath | None, huddle: int | None = None
    ) -> None:
        self.priority = priority
        self.cls = cls
        self.role = role
        self.payer = payer
        self.huddle = huddle
        self.members: list[PodRecord] = []


Order = Callable[[Session, list[PodBatch]], list[PodBatch]]


def batches_of(
    members: list[PodRecord], roles: set[str], charged: bool, huddles: ColocationGroups | None = None
) -> list[PodBatch]:
    """The members that can be read, in batches; `roles` are those that matter, `charged` whether anybody pays."""
    found: dict[tuple[int, ClassRecord, str, ChargePath | None, int | None], PodBatch] = {}
    for member in members:
        pod = member.pod
        if pod.problem:
            continue
        role, payer = pod.role if pod.role in roles else "", member.charge_path if charged else None
        key = (
            -pod.priority,
            member.pod_class,
            role,
            payer,
            huddles.group_of(member) if huddles is not None else None,
        )
        batch = found.get(key)
        if batch is None:
            batch = found[key] = PodBatch(*key)
        batch.members.append(member)
    return list(found.values())


def hardest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Higher priority first, then fewest eligible nodes, then largest share of the cluster, then members' order;
    but nobody before those whom it has to be near to."""
    if len(batches) <= 1:
        return batches
    totals, names = session.totals(), session.state.space.names

    def hardness(entry: tuple[int, PodBatch]) -> tuple[int, int, float, int]:
        position, batch = entry
        cls = batch.cls
        share = max(
            amount / max(1, totals.get(names[column], (0, 0))[0])
            for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True)
        )
        return (batch.priority, int(session.placer.class_view(cls).mask.sum()), -share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=hardness)], lambda batch: (batch.cls,)
    )


def leanest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Higher priority first, then the smallest share of the cluster, then members' order, with the same
    exception."""
    totals = session.totals()

    def size(entry: tuple[int, PodBatch]) -> tuple[int, float, int]:
        position, batch = entry
        amounts = batch.cls.footprint.amounts.items()
        share = max(amount / max(1, totals.get(name, (0, 0))[0]) for name, amount in amounts)
        return (batch.priority, share, position)

    return leaders_first([batch for _, batch in sorted(enumerate(batches), key=size)], lambda batch: (batch.cls,))


def left_of(batches: Sequence[PodBatch], used: Sequence[int]) -> list[tuple[PodBatch, int]]:
    """How many of each batch are without a node, where so many are not."""
    return [(batch, len(batch.members) - count) for batch, count in zip(batches, used, strict=True)]


def least_amount(left: Sequence[tuple[PodBatch, int]], count: int, account: AccountRecord, resource: str) -> int:
    """What so many further members charge to an account at least, of a resource."""
    return _least(
        [
            (batch.cls.footprint.amounts.get(resource, 0), there)
            for batch, there in left
            if batch.payer is not None and account in batch.payer.path
        ],
        count,
    )


def beyond_all_nodes(
    session: Session, first: str, known: Sequence[Footprint], left: Sequence[tuple[PodBatch, int]], count: int
) -> tuple[str, int, int] | None:
    """(resource, needed, offered) of which all nodes together, were they empty, offer less than members of known
    footprints and `count` of those who are left need; None where there is enough. `first` is looked at first."""
    totals, names, some = session.totals(), session.state.space.names, Counter(known)
    columns = {column for each in some for column in np.flatnonzero(each.usage).tolist()}
    for column in sorted(columns, key=lambda column: (names[column] != first, column)):
        costs = [(int(batch.cls.footprint.usage[column]), there) for batch, there in left]
        needed = sum(int(each.usage[column]) * copies for each, copies in some.items()) + _least(costs, count)
        offered = totals.get(names[column], (0, 0))[0]
        if needed > offered:
            return names[column], needed, offered
    return None


def _least(costs: list[tuple[int, int]], count: int) -> int:
    """The sum over so many of those of whom (cost, how many there are) is known, the cheapest first."""
    amount = 0
    for cost, there in sorted(costs):
        amount += cost * min(there, count)
        count -= min(there, count)
    return amount
