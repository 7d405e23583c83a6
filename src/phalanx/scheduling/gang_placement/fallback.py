"""Fallback placement of small gangs of unlike members, by exact search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice, product

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.pod_sets import PodBatch
from phalanx.scheduling.gangs.quorum import QuorumRequirement
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.placement.exact_search import LIMIT, ExactSearch, SearchKind, SearchNeed, SearchPart
from phalanx.scheduling.queue.demands import QuorumDemand, gang_demand
from phalanx.scheduling.session.session import Session

# The search suits small gangs; beyond these sizes it would mostly reach its limit.
MOST_MEMBERS = 64
MOST_NODES = 64
# Maximum number of combinations of domains that are searched.
_MOST_COMBINATIONS = 32

Placement = tuple[PodRecord, int]


class FallbackPlacement(msgspec.Struct, frozen=True):
    """Requirement of one gang: `total` members of the batches, of which `roles[role]` of each named role, in one of
    the `domains` (bool[N]; None: anywhere).
    """

    total: int
    roles: tuple[tuple[str, int], ...]
    batches: Sequence[PodBatch]
    domains: tuple[BoolArray, ...] | None = None


class ExactResult(msgspec.Struct, frozen=True):
    """Result of an exact search: (member, row) per choice, None without a placement. `proved` tells that none
    exists.
    """

    placed: list[list[Placement]] | None = None
    proved: bool = False


def fallback_placement(
    session: Session, transaction: Transaction, choices: Sequence[FallbackPlacement]
) -> ExactResult:
    """Search a placement by exact search if the usual order of the classes may have prevented one.

    Domains are tried one combination after the other, within one limit of work. The solution by amounts is placed
    pod by pod, because filters that depend on placed pods must be checked each time.
    """
    classes = tuple(dict.fromkeys(batch.pod_class for choice in choices for batch in choice.batches))
    limited = any(choice.domains is not None for choice in choices)
    if (len(classes) < 2 and not limited) or sum(choice.total for choice in choices) > MOST_MEMBERS:
        return ExactResult()
    if not transaction.explores and not _bound(session, choices):
        return ExactResult(proved=True)
    rows, complete = _bins(session, classes)
    if not rows:
        return ExactResult(proved=True)
    complete = complete and not any(pod_class.affinity.may_be_unblocked for pod_class in classes)
    combinations = product(*((None,) if choice.domains is None else choice.domains for choice in choices))
    limit = session.search_work + LIMIT
    for domains in islice(combinations, _MOST_COMBINATIONS):
        if session.search_work >= limit:
            return ExactResult()
        placed, proved = _place_in(session, transaction, choices, domains, rows, limit - session.search_work)
        if placed is not None:
            return ExactResult(placed)
        complete = complete and proved
    return ExactResult(proved=complete and next(combinations, None) is None)


def _place_in(
    session: Session,
    transaction: Transaction,
    choices: Sequence[FallbackPlacement],
    domains: Sequence[BoolArray | None],
    rows: list[int],
    limit: int,
) -> tuple[list[list[Placement]] | None, bool]:
    """Place each choice within its domain, in at most `limit` checks of nodes. Return the placements, or None and
    whether none exists.
    """
    numbers: dict[tuple[ClassRecord, int], int] = {}
    parts: list[SearchPart] = []
    origins: list[tuple[int, PodBatch]] = []
    for number, (choice, domain) in enumerate(zip(choices, domains, strict=True)):
        for batch in choice.batches:
            kind = numbers.setdefault((batch.pod_class, -1 if domain is None else number), len(numbers))
            parts.append(SearchPart(kind, number, batch.role, len(batch.members)))
            origins.append((number, batch))
    kinds = _kinds(
        session, [(pod_class, None if number < 0 else domains[number]) for pod_class, number in numbers], rows
    )
    idle = session.state.nodes.idle[:, rows]
    order = _hardest_first(kinds, parts, choices, idle)
    parts, origins = [parts[place] for place in order], [origins[place] for place in order]
    search = ExactSearch(
        idle.T.tolist(),
        kinds,
        parts,
        [SearchNeed(choice.total, dict(choice.roles)) for choice in choices],
        limit,
    )
    solution = search.run()
    session.search_work += search.looks
    if solution is None:
        return None, not search.exhausted
    mark, used = transaction.mark(), [0] * len(parts)
    placed: list[list[Placement]] = [[] for _ in choices]
    for place, node in solution:
        number, batch = origins[place]
        allowed = session.quota_check.room(batch.charge_path, batch.pod_class.footprint)
        if not allowed or not session.placer.accepts(batch.pod_class, rows[node]):
            transaction.back_to(mark)
            return None, False
        member = batch.members[used[place]]
        used[place] += 1
        transaction.place(batch.pod_class, [member], [rows[node]])
        placed[number].append((member, rows[node]))
    return placed, False


def _hardest_first(
    kinds: Sequence[SearchKind], parts: Sequence[SearchPart], choices: Sequence[FallbackPlacement], idle: IntArray
) -> list[int]:
    """Return the order of the parts: the largest share of the roomiest node first, then the fewest nodes.

    Parts of a gang with spare members stay together in their order, which decides who takes part.
    """
    largest = idle.max(axis=1).clip(min=1).tolist()
    hardness: list[tuple[float, int, int]] = []
    first: dict[int, int] = {}
    for place, part in enumerate(parts):
        kind, choice = kinds[part.kind], choices[part.gang]
        share = max((amount / largest[resource] for resource, amount in kind.amounts), default=0.0)
        head = first.setdefault(part.gang, place)
        hard = (-share, sum(kind.allowed), place)
        spare = sum(len(batch.members) for batch in choice.batches) > choice.total
        hardness.append((*hardness[head][:2], head) if spare and head != place else hard)
    return sorted(range(len(parts)), key=lambda place: (hardness[place], place))


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


def _kinds(
    session: Session, kinds: Sequence[tuple[ClassRecord, BoolArray | None]], rows: list[int]
) -> list[SearchKind]:
    search_kinds: list[SearchKind] = []
    for pod_class, domain in kinds:
        exclusive = session.placer.exclusive(pod_class)
        conflicts = sum(
            1 << number for number, (other, _) in enumerate(kinds) if exclusive and _excludes(pod_class, other)
        )
        amounts = tuple(zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True))
        mask = session.placer.class_view(pod_class).mask
        allowed = tuple((mask if domain is None else mask & domain)[rows].tolist())
        search_kinds.append(SearchKind(amounts, allowed, conflicts))
    return search_kinds


def _excludes(one: ClassRecord, other: ClassRecord) -> bool:
    """Return whether a pod of `other` cannot share a node with one of a class that excludes its own copies."""
    if one is other:
        return True
    if one.spec.host_ports:
        return any(port.conflicts_with(taken) for port in one.spec.host_ports for taken in other.spec.host_ports)
    return one.affinity is other.affinity  # equal labels and anti-affinity
