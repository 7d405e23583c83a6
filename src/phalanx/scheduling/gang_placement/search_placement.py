"""Placement of small gangs and composites by limited search, where the usual order of choices found none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import Level
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.resource_space import BoolArray, exact_sums
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.composite_tree import CompositeTree
from phalanx.scheduling.gang_placement.fallback import MOST_MEMBERS, MOST_NODES
from phalanx.scheduling.gang_placement.limited_search import (
    MOST_TRIES,
    MOST_TRIES_AMONG_VICTIMS,
    Agenda,
    LimitedSearch,
)
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of
from phalanx.scheduling.gang_placement.search_tasks import GangTask, TreeTask
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.placement.topology_domains import Area
from phalanx.scheduling.queue.demands import CompositeDemand, QuorumDemand, WaitReason
from phalanx.scheduling.session.session import Session


class SearchResult(msgspec.Struct, frozen=True):
    """Result of a search: whether it placed everything, else the number of its tries, 0 if it proved that no
    placement exists or was not made.
    """

    placed: bool = False
    tries: int = 0


def search_gangs(
    session: Session, transaction: Transaction, placements: Sequence[GangPlacement], demand: QuorumDemand
) -> SearchResult:
    """Search a joint placement of the quorums of all gangs with this demand. Place all of them, or nothing."""
    waiting = [placement for placement in placements if not placement.satisfied]
    rows = _rows(session, waiting)
    if not _amounts_suffice(session, waiting, rows):
        return SearchResult()
    if _too_large(waiting, rows):
        return SearchResult(tries=1)
    for placement in waiting:
        placement.placed = []
    search = _search(session, transaction, waiting, ())
    agenda: Agenda = None
    for placement in sorted(waiting, key=lambda placement: placement.need.total):
        agenda = (GangTask(placement), agenda)
    return _result(search, agenda, demand)


def search_composite(
    session: Session,
    transaction: Transaction,
    tree: CompositeTree,
    placements: Mapping[GangRecord, GangPlacement],
) -> SearchResult:
    """Search a placement of enough children of a composite, in each subtree too. Place them, or nothing."""
    waiting = [
        placement
        for gang in tree.gangs()
        if (placement := placements.get(gang)) is not None and not (placement.satisfied or placement.placed)
    ]
    rows = _rows(session, waiting)
    if all(len(subtree.children) <= subtree.least for subtree in tree.trees()):
        # All gangs are required.
        together = demand_of(waiting)
        if not _amounts_suffice(session, waiting, rows) or not (
            transaction.explores or together.upper_bound(session)
        ):
            return SearchResult()
    if _too_large(waiting, rows):
        return SearchResult(tries=1)
    demand = CompositeDemand(tree.key, tuple(demand_of([placement]) for placement in waiting))
    areas = [Area(subtree.topology) for subtree in tree.trees() if subtree.topology is not None]
    return _result(_search(session, transaction, waiting, areas), (TreeTask(tree, placements), None), demand)


def _result(search: LimitedSearch, agenda: Agenda, demand: WaitReason) -> SearchResult:
    """Run a search, unless an equal one has failed since room was freed the last time."""
    session, transaction = search.session, search.transaction
    reserved = session.placer.reserved
    # Reserved room can be open to this unit only, and a search among victims sees other free room.
    remembers = not (transaction.explores or transaction.placed or (reserved is not None and reserved.active))
    version = (session.state.capacity_version, session.state.affinity_version)
    known = session.failed_placements.result(demand, version) if remembers else None
    if known is not None:
        return SearchResult(tries=known)
    if search.run(agenda):
        return SearchResult(placed=True)
    tries = 0 if search.proved else search.tries
    if remembers:
        session.failed_placements.add(demand, version, tries)
    return SearchResult(tries=tries)


def _search(
    session: Session, transaction: Transaction, placements: Sequence[GangPlacement], areas: Iterable[Area]
) -> LimitedSearch:
    levels: dict[Level, None] = {}
    own = [placement.area for placement in placements]
    parts = [pod_set.area for placement in placements for pod_set in (*placement.parts, *placement.extras)]
    for area in (*own, *parts, *areas):
        if area is not None:
            levels |= dict.fromkeys(session.topology_domains.ladder(area.rule).levels)
    limit = MOST_TRIES_AMONG_VICTIMS if transaction.explores else MOST_TRIES
    return LimitedSearch(session, transaction, _classes(placements), levels, limit)


def _classes(placements: Sequence[GangPlacement]) -> list[ClassRecord]:
    return list(dict.fromkeys(batch.pod_class for placement in placements for batch in placement.batches))


def _too_large(placements: Sequence[GangPlacement], rows: BoolArray) -> bool:
    """Return whether the gangs have too many members, or too many nodes with room, for a search."""
    return sum(placement.need.total for placement in placements) > MOST_MEMBERS or int(rows.sum()) > MOST_NODES


def _rows(session: Session, placements: Sequence[GangPlacement]) -> BoolArray:
    """Return the nodes with room for a member of the gangs."""
    placer = session.placer
    fits = np.zeros(session.state.nodes.capacity, dtype=np.bool_)
    for pod_class in _classes(placements):
        fits |= placer.class_view(pod_class).score > NOWHERE
        if pod_class.affinity.may_be_unblocked:
            fits |= placer.eligible_rows(pod_class)
    if placer.scope is not None:
        fits &= placer.scope
    return fits


def _amounts_suffice(session: Session, placements: Sequence[GangPlacement], rows: BoolArray) -> bool:
    """Return whether the idle amounts of all the rows together suffice for the smallest choice of members."""
    needed: dict[str, int] = {}
    for placement in placements:
        add_amounts(needed, placement.demand().least_amounts(), 1)
    nodes = session.state.nodes
    sums = dict(zip(nodes.space.names, exact_sums(nodes.idle[:, rows].clip(min=0)), strict=True))
    return all(amount <= sums[name] for name, amount in needed.items() if name in sums)
