"""Fallback placement of small gangs of unlike members, by exact search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.pod_sets import PodBatch
from phalanx.scheduling.gangs.quorum import QuorumRequirement
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.placement.exact_search import ExactSearch, SearchKind, SearchNeed, SearchPart
from phalanx.scheduling.queue.demands import QuorumDemand, gang_demand
from phalanx.scheduling.session.session import Session

# The search suits small gangs; beyond these sizes it would mostly reach its limit.
MOST_MEMBERS = 64
MOST_NODES = 64


class FallbackPlacement(msgspec.Struct, frozen=True):
    """Requirement of one gang: `total` members of the batches, of which `roles[role]` of each named role."""

    total: int
    roles: tuple[tuple[str, int], ...]
    batches: Sequence[PodBatch]


class ExactResult(msgspec.Struct, frozen=True):
    """Result of an exact search: (member, row) per choice, None without a placement. `proved` tells that none
    exists.
    """

    placed: list[list[tuple[PodRecord, int]]] | None = None
    proved: bool = False


def fallback_placement(
    session: Session, transaction: Transaction, choices: Sequence[FallbackPlacement]
) -> ExactResult:
    """Search a placement by exact search if the usual order of the classes may have prevented one.

    The solution by amounts is placed pod by pod, because filters that depend on placed pods must be checked each
    time.
    """
    classes = tuple(dict.fromkeys(batch.pod_class for choice in choices for batch in choice.batches))
    if len(classes) < 2 or sum(choice.total for choice in choices) > MOST_MEMBERS:
        return ExactResult()
    if not transaction.explores and not _bound(session, choices):
        return ExactResult(proved=True)
    rows, all_rows = _bins(session, classes)
    if not rows:
        return ExactResult(proved=True)
    parts: list[SearchPart] = []
    origins: list[tuple[int, PodBatch]] = []
    for number, choice in enumerate(choices):
        for batch in choice.batches:
            parts.append(SearchPart(classes.index(batch.pod_class), number, batch.role, len(batch.members)))
            origins.append((number, batch))
    search = ExactSearch(
        session.state.nodes.idle[:, rows].T.tolist(),
        _kinds(session, classes, rows),
        parts,
        [SearchNeed(choice.total, dict(choice.roles)) for choice in choices],
    )
    solution = search.run()
    if solution is None:
        unblocked = any(pod_class.affinity.may_be_unblocked for pod_class in classes)
        return ExactResult(proved=all_rows and not search.exhausted and not unblocked)
    mark, used = transaction.mark(), [0] * len(parts)
    placed: list[list[tuple[PodRecord, int]]] = [[] for _ in choices]
    for place, node in solution:
        number, batch = origins[place]
        allowed = session.quota_check.room(batch.charge_path, batch.pod_class.footprint)
        if not allowed or not session.placer.accepts(batch.pod_class, rows[node]):
            transaction.back_to(mark)
            return ExactResult()
        member = batch.members[used[place]]
        used[place] += 1
        transaction.place(batch.pod_class, [member], [rows[node]])
        placed[number].append((member, rows[node]))
    return ExactResult(placed)


def _bound(session: Session, choices: Sequence[FallbackPlacement]) -> int:
    """Return an upper bound on the number of times that all choices could be placed."""
    demands = []
    for choice in choices:
        members = (
            ((batch.pod_class, batch.role, batch.charge_path), len(batch.members)) for batch in choice.batches
        )
        demands.append(gang_demand(QuorumRequirement(choice.total, choice.roles), members, ()))
    return QuorumDemand(tuple(demands)).upper_bound(session)


def _bins(session: Session, classes: tuple[ClassRecord, ...]) -> tuple[list[int], bool]:
    """Return the rows that fit at least one copy of a class, tightest first, and whether these are all.

    If there are too many, the roomiest of each class are returned.
    """
    placer = session.placer
    per_class: dict[ClassRecord, list[int]] = {}
    for pod_class in classes:
        fits = placer.class_view(pod_class).score > NOWHERE
        rows = np.flatnonzero(fits if placer.scope is None else fits & placer.scope)
        copies = placer.copies(pod_class, rows)
        per_class[pod_class] = rows[np.lexsort((rows, -copies))].tolist()
    counts = Counter(row for rows in per_class.values() for row in rows)
    share = len(counts) if len(counts) <= MOST_NODES else max(1, MOST_NODES // len(classes))
    chosen = {row for rows in per_class.values() for row in rows[:share]}
    return sorted(chosen, key=lambda row: (counts[row], row)), len(chosen) == len(counts)


def _kinds(session: Session, classes: tuple[ClassRecord, ...], rows: list[int]) -> list[SearchKind]:
    kinds: list[SearchKind] = []
    for pod_class in classes:
        conflicts = sum(
            1 << number
            for number, other in enumerate(classes)
            if session.placer.exclusive(pod_class) and _same_ports(pod_class, other)
        )
        amounts = tuple(zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True))
        kinds.append(
            SearchKind(amounts, tuple(session.placer.class_view(pod_class).mask[rows].tolist()), conflicts)
        )
    return kinds


def _same_ports(one: ClassRecord, other: ClassRecord) -> bool:
    return one is other or any(
        port.conflicts_with(taken) for port in one.spec.host_ports for taken in other.spec.host_ports
    )
