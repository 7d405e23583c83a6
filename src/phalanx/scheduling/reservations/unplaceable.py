"""Proofs that a demand cannot be met on the present nodes, even if these were empty, or by its accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.placement.topology_domains import Area
from phalanx.scheduling.queue.demands import GangDemand, MemberDemand, PodDemand, RoomEstimates, WaitReason
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.reservations.window import RowArray

Rows = Callable[[ClassRecord], BoolArray]


def is_unplaceable(estimates: RoomEstimates, demand: WaitReason) -> bool:
    """Return whether the demand is proved to be unplaceable; False where nothing is proved.

    Only what other pods can never change counts: allocatable amounts, eligible nodes, domains and declared limits.
    A node that is closed for a time only counts as open.
    """
    placer = estimates.placer
    return _exceeds(estimates, demand, placer.eligible_rows) and _exceeds(estimates, demand, placer.lasting_rows)


def _exceeds(estimates: RoomEstimates, demand: WaitReason, rows_of: Rows) -> bool:
    quorums = demand.quorums if len(demand.quorums) < 2 else (*demand.quorums, _together(demand.quorums))
    return any(_quorum_exceeds(estimates, quorum, rows_of) for quorum in quorums)


def _together(quorums: Sequence[PodDemand | GangDemand]) -> GangDemand:
    """Return a demand that is met wherever all quorums are met at once."""
    counts: dict[tuple[ClassRecord, ChargePath | None], int] = {}
    for quorum in quorums:
        for portion in quorum.members:
            kind = portion.pod_class, portion.charge_path
            counts[kind] = counts.get(kind, 0) + portion.count
    members = (MemberDemand(pod_class, "", count, path) for (pod_class, path), count in counts.items())
    return GangDemand(sum(quorum.total for quorum in quorums), (), tuple(members))


def _quorum_exceeds(estimates: RoomEstimates, gang: PodDemand | GangDemand, rows_of: Rows) -> bool:
    portions, area = gang.members, gang.area
    if not gang.total or not portions:
        return False
    # [portions, domains]
    copies = np.stack(
        [np.minimum(_copies_when_empty(estimates, each.pod_class, area, rows_of), each.count) for each in portions]
    )
    fits: BoolArray = copies.sum(axis=0) >= gang.total
    for role, least in gang.roles:
        fits &= copies[[portion.role == role for portion in portions]].sum(axis=0) >= least
    amounts = gang.least_amounts()
    if len(portions) > 1 and fits.any():
        eligible = np.any([rows_of(portion.pod_class) for portion in portions], axis=0)
        fits &= _have_amounts(estimates, amounts, np.flatnonzero(eligible & estimates.placer.nodes.alive), area)
    if not fits.any():
        return True
    charge_paths = {portion.charge_path for portion in portions}
    return len(charge_paths) == 1 and _is_never_allowed(estimates, next(iter(charge_paths)), amounts, 1)


def _copies_when_empty(
    estimates: RoomEstimates, pod_class: ClassRecord, area: Area | None, rows_of: Rows
) -> IntArray:
    """int64[D]: how many copies of a class the eligible nodes of each domain hold if they are empty.

    Without a domain that is required there is one entry, for all nodes.
    """
    nodes = estimates.placer.nodes
    rows = np.flatnonzero(rows_of(pod_class) & nodes.alive)
    columns, amounts = pod_class.columns, pod_class.amounts
    offered = nodes.allocatable.take(columns, axis=0).take(rows, axis=1)
    copies = (offered // amounts[:, None]).min(axis=0, initial=2**31).clip(0)
    return _by_domain(estimates, area, rows, copies)


def _have_amounts(
    estimates: RoomEstimates, amounts: Mapping[str, int], rows: RowArray, area: Area | None
) -> BoolArray:
    """bool[D]: whether the rows of each domain offer the amounts."""
    nodes = estimates.placer.nodes
    found: BoolArray = _by_domain(estimates, area, rows, np.ones(len(rows), dtype=np.int64)) > 0
    for column, name in enumerate(nodes.space.names):
        if amounts.get(name):
            found &= _by_domain(estimates, area, rows, nodes.allocatable[column, rows]) >= amounts[name]
    return found


def _by_domain(estimates: RoomEstimates, area: Area | None, rows: RowArray, amounts: IntArray) -> IntArray:
    """int64[D]: the sums of int64[rows] over the widest domains that the area permits."""
    if area is None or not area.rule.hard:
        whole: IntArray = amounts.sum(keepdims=True)
        return whole
    levels = estimates.topology_domains.ladder(area.rule).levels
    if not levels:
        return np.zeros(1, dtype=np.int64)
    ids = levels[-1].ids[rows].astype(np.int64)
    sums = np.zeros(int(levels[-1].ids.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(sums, ids, amounts)
    sums[0] = 0  # nodes outside all domains
    return sums


def _is_never_allowed(
    estimates: RoomEstimates, charge_path: ChargePath | None, amounts: Mapping[str, int], count: int
) -> bool:
    if charge_path is None:
        return False
    for account_limit in estimates.quota_check.account_limits(charge_path):
        limit = account_limit.limit
        for name, amount in amounts.items():
            if name not in limit.limits:
                continue
            if limit.computed:
                # A share follows from the demand of all accounts; only its stated maximum is fixed.
                most = limit.max.get(name, UNLIMITED)
            else:
                most = max(account_limit.state(name)[::2])
            if amount * count > most:
                return True
    return False
