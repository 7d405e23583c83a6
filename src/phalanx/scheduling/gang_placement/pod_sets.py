"""Members that are alike, as one: and in which order such batches are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.session.session import Session


class PodBatch:
    """Members of one gang that are alike: same priority, class, role, charge path and task bucket; `members`
    in their order."""

    __slots__ = ("charge_path", "members", "pod_class", "priority", "role", "task_bucket")

    def __init__(
        self,
        priority: int,
        pod_class: ClassRecord,
        role: str,
        charge_path: ChargePath | None,
        task_bucket: int | None = None,
    ) -> None:
        self.priority = priority
        self.pod_class = pod_class
        self.role = role
        self.charge_path = charge_path
        self.task_bucket = task_bucket
        self.members: list[PodRecord] = []


Order = Callable[[Session, list[PodBatch]], list[PodBatch]]


def batches_of(
    members: list[PodRecord], roles: set[str], charged: bool, buckets: TaskBuckets | None = None
) -> list[PodBatch]:
    """The members that can be read, in batches; `roles` are those that matter, `charged` whether anybody pays."""
    found: dict[tuple[int, ClassRecord, str, ChargePath | None, int | None], PodBatch] = {}
    for member in members:
        pod = member.pod
        if pod.problem:
            continue
        role, charge_path = pod.role if pod.role in roles else "", member.charge_path if charged else None
        key = (
            -pod.priority,
            member.pod_class,
            role,
            charge_path,
            buckets.group_of(member) if buckets is not None else None,
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
        pod_class = batch.pod_class
        share = max(
            amount / max(1, totals.get(names[column], (0, 0))[0])
            for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True)
        )
        return (batch.priority, int(session.placer.class_view(pod_class).mask.sum()), -share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=hardness)], lambda batch: (batch.pod_class,)
    )


def leanest_first(session: Session, batches: list[PodBatch]) -> list[PodBatch]:
    """Higher priority first, then the smallest share of the cluster, then members' order, with the same
    exception."""
    totals = session.totals()

    def size(entry: tuple[int, PodBatch]) -> tuple[int, float, int]:
        position, batch = entry
        amounts = batch.pod_class.footprint.amounts.items()
        share = max(amount / max(1, totals.get(name, (0, 0))[0]) for name, amount in amounts)
        return (batch.priority, share, position)

    return leaders_first(
        [batch for _, batch in sorted(enumerate(batches), key=size)], lambda batch: (batch.pod_class,)
    )


def left_of(batches: Sequence[PodBatch], used: Sequence[int]) -> list[tuple[PodBatch, int]]:
    """How many of each batch are without a node, where so many are not."""
    return [(batch, len(batch.members) - count) for batch, count in zip(batches, used, strict=True)]


def of_whole_gang(
    session: Session,
    excess: OverQuota,
    pod_class: ClassRecord,
    count: int,
    tried: list[Footprint],
    left: Sequence[tuple[PodBatch, int]],
    more: int,
) -> OverQuota:
    """What is over a quota when `count` pods of a class are asked for, told of the whole gang: members that were
    `tried` are part of what it wants, not of what is in use, and so are `more` of those who are left, the least."""
    name = excess.resource
    own = sum(footprint.amounts.get(name, 0) for footprint in tried)
    least = _least(
        [
            (batch.pod_class.footprint.amounts.get(name, 0), there)
            for batch, there in left
            if batch.charge_path is not None and excess.account in batch.charge_path.path
        ],
        more,
    )
    used, wanted = excess.used - own, excess.wanted + own + least
    # A higher ceiling does not help who asks for more than there is.
    change = excess.change if used + wanted <= session.totals().get(name, (0, 0))[0] else ""
    beyond = _beyond_all_nodes(session, name, [*tried, *[pod_class.footprint] * count], left, more)
    return msgspec.structs.replace(excess, used=used, wanted=wanted, change=change, beyond=beyond)


def _beyond_all_nodes(
    session: Session, first: str, known: Sequence[Footprint], left: Sequence[tuple[PodBatch, int]], count: int
) -> tuple[str, int, int] | None:
    """(resource, needed, offered) of which all nodes together, were they empty, offer less than members of known
    footprints and `count` of those who are left need; None where there is enough. `first` is looked at first."""
    totals, names, some = session.totals(), session.state.space.names, Counter(known)
    columns = {column for each in some for column in np.flatnonzero(each.usage).tolist()}
    for column in sorted(columns, key=lambda column: (names[column] != first, column)):
        costs = [(int(batch.pod_class.footprint.usage[column]), there) for batch, there in left]
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
