"""Members that are alike, as one: and in which order such batches are placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.framework.colocation import ColocationGroups
from phalanx.scheduling.placement.affinity_order import leaders_first
from phalanx.scheduling.session.session import Session


class PodBatch:
    """Members of one gang that are alike: same priority, class, role, charge path and colocation group; `members`
    in their order."""

    __slots__ = ("charge_path", "colocation_group", "members", "pod_class", "priority", "role")

    def __init__(
        self,
        priority: int,
        pod_class: ClassRecord,
        role: str,
        charge_path: ChargePath | None,
        colocation_group: int | None = None,
    ) -> None:
        self.priority = priority
        self.pod_class = pod_class
        self.role = role
        self.charge_path = charge_path
        self.colocation_group = colocation_group
        self.members: list[PodRecord] = []


Order = Callable[[Session, list[PodBatch]], list[PodBatch]]


def batches_of(
    members: list[PodRecord], roles: set[str], charged: bool, colocation: ColocationGroups | None = None
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
            colocation.group_of(member) if colocation is not None else None,
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


def least_amount(left: Sequence[tuple[PodBatch, int]], count: int, account: AccountRecord, resource: str) -> int:
    """What so many further members charge to an account at least, of a resource."""
    costs = sorted(
        (batch.pod_class.footprint.amounts.get(resource, 0), there)
        for batch, there in left
        if batch.charge_path is not None and account in batch.charge_path.path
    )
    amount = 0
    for cost, there in costs:
        amount += cost * min(there, count)
        count -= min(there, count)
    return amount
