"""Putting quorums together: all members that the gangs of a bundle need, in one transaction, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from phalanx.cluster.accounts import Payer
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.resources import PODS, Requests, requests_of
from phalanx.scheduling.ceilings import Excess
from phalanx.scheduling.demand import GangDemand, Quorum, gang_demand
from phalanx.scheduling.quorum import Requirement
from phalanx.scheduling.search import Kind, Need, Part, Search
from phalanx.scheduling.session import Session
from phalanx.scheduling.shortage import Gap, Shortage, shortage

# The search is for small gangs; beyond these sizes it would mostly run into its limit.
_MOST_MEMBERS = 64
_MOST_NODES = 64


class Batch:
    """Members of one gang that are alike: same priority, class, role and payer; `members` in their order."""

    __slots__ = ("cls", "members", "payer", "priority", "role")

    def __init__(self, priority: int, cls: ClassRecord, role: str, payer: Payer | None) -> None:
        self.priority = priority
        self.cls = cls
        self.role = role
        self.payer = payer
        self.members: list[PodRecord] = []


Order = Callable[[Session, list[Batch]], list[Batch]]


class Call:
    """One gang's part in an assembly: what it needs now, and who may take part."""

    __slots__ = ("_orders", "batches", "gang", "need", "placed")

    def __init__(self, session: Session, gang: GangRecord) -> None:
        self.gang = gang
        self.need: Requirement = session.requirement(gang)
        self.batches: list[Batch] = []
        self.placed: list[tuple[PodRecord, int]] = []
        self._orders: dict[Order, list[Batch]] = {}
        if not self.need.satisfied:
            # What is half bound is finished whatever its accounts say meanwhile: nobody pays for a repair.
            roles, repair = {role for role, _ in self.need.roles}, self.need.repair
            self.batches = _batches(session.in_order(gang), roles, charged=not repair)

    def in_order(self, session: Session, order: Order) -> list[Batch]:
        """The batches in an order; found once, as tries take and give back room but do not change who may go where
        (but for host ports)."""
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = order(session, self.batches)
        return found

    def demand(self) -> GangDemand:
        members = (((batch.cls, batch.role, batch.payer), len(batch.members)) for batch in self.batches)
        return gang_demand(self.need, members, () if self.need.satisfied else _reserve(self.gang))


def demand_of(calls: list[Call]) -> Quorum:
    return Quorum(tuple(call.demand() for call in calls))


def assemble(
    session: Session, calls: list[Call], demand: Quorum, transaction: Transaction
) -> Shortage | Gap | Excess | None:
    """Places every quorum within the transaction (`placed` of each call tells who and where); or places nothing,
    and says why.

    The first way takes the hardest members first. Where accounts are in the way, a second one takes those that
    cost them least.
    """
    for place, part in enumerate(demand.gangs):
        gaps = session.gaps(part.reserve, afresh=transaction.explores) if part.reserve else ()
        if gaps:
            return Gap(gaps, place)
    facts = _all_in_turn(session, transaction, calls, _hardest_first)
    if isinstance(facts, Excess) and len({batch.cls for call in calls for batch in call.batches}) > 1:
        facts = facts if _all_in_turn(session, transaction, calls, _leanest_first) else None
    return None if facts is None or _other_ways(session, transaction, calls, demand) else facts


def _all_in_turn(
    session: Session, transaction: Transaction, calls: list[Call], order: Order
) -> Shortage | Excess | None:
    for place, call in enumerate(calls):
        facts = _in_turn(session, transaction, call, place, order)
        if facts is not None:
            transaction.unplace()
            return facts
    return None


def _in_turn(
    session: Session, transaction: Transaction, call: Call, place: int, order: Order
) -> Shortage | Excess | None:
    """Places a gang's quorum, batch by batch within a priority: first what roles ask, then the rest.

    A batch of which no more fits is passed over: another member may fill the quorum in its stead.
    """
    call.placed = []
    batches = call.in_order(session, order)
    used = [0] * len(batches)
    wanted = dict(call.need.roles)
    rest = call.need.total - sum(wanted.values())
    for number, batch in enumerate(batches):
        least = wanted.get(batch.role, 0)
        if least:
            used[number] = _put(session, transaction, call, batch, batch.members[:least])
            wanted[batch.role] -= used[number]
    for number, batch in enumerate(batches):
        if wanted.get(batch.role) and used[number] < len(batch.members):
            return _short_of(session, call, batch, wanted[batch.role], place)
    failed: Batch | None = None
    for number, batch in enumerate(batches):
        asked = batch.members[used[number] : used[number] + rest]
        done = _put(session, transaction, call, batch, asked)
        rest -= done
        if done < len(asked) and failed is None:
            failed = batch
    return _short_of(session, call, failed, rest, place) if failed is not None and rest else None


def _short_of(session: Session, call: Call, batch: Batch, missing: int, place: int) -> Shortage | Excess:
    placed, need, cls = len(call.placed), call.need.total, batch.cls
    if not session.allowance.room(batch.payer, cls.footprint):
        # So many may be more than the whole cluster has, of which accounts do not speak; then it is one too many.
        excess = session.allowance.excess(batch.payer, cls.footprint, missing, placed, need, place)
        excess = excess or session.allowance.excess(batch.payer, cls.footprint, 1, placed, need, place)
        assert excess is not None
        if excess.computed and not session.placer.fits(cls):
            return shortage(session.pipeline, session.state.nodes, cls, placed, need, missing, place)
        # The gang's own members that were tried are part of what it wants, not of what is in use.
        own = sum(record.footprint.amounts.get(excess.resource, 0) for record, _ in call.placed)
        return msgspec.structs.replace(excess, used=excess.used - own, wanted=excess.wanted + own)
    return shortage(session.pipeline, session.state.nodes, cls, placed, need, missing, place)


def _put(session: Session, transaction: Transaction, call: Call, batch: Batch, members: list[PodRecord]) -> int:
    """Places as many of the members as fit and are allowed; how many."""
    cls, done = batch.cls, 0
    wanted = min(len(members), session.allowance.room(batch.payer, cls.footprint))
    while done < wanted:
        rows = session.placer.place(cls, wanted - done)
        if not rows:
            break
        chosen = members[done : done + len(rows)]
        transaction.place(cls, chosen, rows)
        call.placed.extend(zip(chosen, rows, strict=True))
        done += len(rows)
    return done


def _batches(members: list[PodRecord], roles: set[str], charged: bool) -> list[Batch]:
    found: dict[tuple[int, ClassRecord, str, Payer | None], Batch] = {}
    for member in members:
        pod = member.pod
        if pod.problem:
            continue
        key = (-pod.priority, member.cls, pod.role if pod.role in roles else "", member.payer if charged else None)
        batch = found.get(key)
        if batch is None:
            batch = found[key] = Batch(*key)
        batch.members.append(member)
    return list(found.values())


def _hardest_first(session: Session, batches: list[Batch]) -> list[Batch]:
    """Higher priority first, then fewest eligible nodes, then largest share of the cluster, then members' order."""
    if len(batches) <= 1:
        return batches
    totals, names = session.totals(), session.state.space.names

    def hardness(entry: tuple[int, Batch]) -> tuple[int, int, float, int]:
        position, batch = entry
        cls = batch.cls
        share = max(
            amount / max(1, totals.get(names[column], (0, 0))[0])
            for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True)
        )
        return (batch.priority, int(session.placer.view(cls).mask.sum()), -share, position)

    return [batch for _, batch in sorted(enumerate(batches), key=hardness)]


def _leanest_first(session: Session, batches: list[Batch]) -> list[Batch]:
    """Higher priority first, then the smallest share of the cluster, then members' order."""
    totals = session.totals()

    def size(entry: tuple[int, Batch]) -> tuple[int, float, int]:
        position, batch = entry
        amounts = batch.cls.footprint.amounts.items()
        share = max(amount / max(1, totals.get(name, (0, 0))[0]) for name, amount in amounts)
        return (batch.priority, share, position)

    return [batch for _, batch in sorted(enumerate(batches), key=size)]


def _other_ways(session: Session, transaction: Transaction, calls: list[Call], demand: Quorum) -> bool:
    """Searches for room where the usual way found none, if the classes may have been in each other's way."""
    classes = demand.classes
    if len(classes) < 2 or sum(call.need.total for call in calls) > _MOST_MEMBERS:
        return False
    rows = _bins(session, classes) if transaction.explores or demand.bound(session) else []
    if not rows:
        return False
    parts: list[Part] = []
    origins: list[tuple[Call, Batch]] = []
    for number, call in enumerate(calls):
        for batch in call.in_order(session, _hardest_first):
            parts.append(Part(classes.index(batch.cls), number, batch.role, len(batch.members)))
            origins.append((call, batch))
    found = Search(
        session.state.nodes.idle[:, rows].T.tolist(),
        _kinds(session, classes, rows),
        parts,
        [Need(call.need.total, dict(call.need.roles)) for call in calls],
    ).run()
    if found is None:
        return False
    taken = [0] * len(parts)
    for call in calls:
        call.placed = []
    for place, node in found:
        call, batch = origins[place]
        if not session.allowance.room(batch.payer, batch.cls.footprint):
            transaction.unplace()
            return False
        member = batch.members[taken[place]]
        taken[place] += 1
        transaction.place(batch.cls, [member], [rows[node]])
        call.placed.append((member, rows[node]))
    return True


def _bins(session: Session, classes: tuple[ClassRecord, ...]) -> list[int]:
    """The rows that take at least one copy of some class, tightest first; of too many, the roomiest per class."""
    placer = session.placer
    per_class: dict[ClassRecord, list[int]] = {}
    for cls in classes:
        view = placer.view(cls)
        rows = np.flatnonzero(view.score > -np.inf)
        copies = placer.copies(cls, rows)
        per_class[cls] = rows[np.lexsort((rows, -copies))].tolist()
    fits = Counter(row for rows in per_class.values() for row in rows)
    share = len(fits) if len(fits) <= _MOST_NODES else max(1, _MOST_NODES // len(classes))
    chosen = {row for rows in per_class.values() for row in rows[:share]}
    return sorted(chosen, key=lambda row: (fits[row], row))


def _kinds(session: Session, classes: tuple[ClassRecord, ...], rows: list[int]) -> list[Kind]:
    kinds: list[Kind] = []
    for cls in classes:
        conflicts = sum(
            1 << number
            for number, other in enumerate(classes)
            if session.placer.exclusive(cls) and _same_ports(cls, other)
        )
        amounts = tuple(zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True))
        kinds.append(Kind(amounts, tuple(session.placer.view(cls).mask[rows].tolist()), conflicts))
    return kinds


def _same_ports(one: ClassRecord, other: ClassRecord) -> bool:
    return one is other or any(
        port.conflicts_with(taken) for port in one.pod_class.host_ports for taken in other.pod_class.host_ports
    )


def _reserve(gang: GangRecord) -> Requests:
    """What minResources and a slot per needed member ask to be idle, the gang's own members counted as idle.

    Only for groups without an admission of their own: those were counted when they were admitted.
    """
    noun = gang.noun
    assert noun is not None
    if noun.admission or not noun.min_resources:
        return ()
    wanted = dict(noun.min_resources)
    wanted.setdefault(PODS, noun.min_member)
    for member in gang.members.values():
        if member.row >= 0:
            for name, amount in (*member.pod.usage, (PODS, 1)):
                wanted[name] = wanted.get(name, 0) - amount
    return requests_of({name: amount for name, amount in wanted.items() if amount > 0})
