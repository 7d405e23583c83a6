"""Proofs that a demand cannot be met on the present nodes, even if these were empty, or by its accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.placement.topology_domains import Area
from phalanx.scheduling.queue.demands import GangDemand, PodDemand, QuorumDemand, RoomEstimates, WaitReason
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.reservations.window import RowArray


def is_unplaceable(estimates: RoomEstimates, demand: WaitReason) -> bool:
    """Return whether the demand is proved to be unplaceable; False where nothing is proved.

    Only what other pods can never change counts: allocatable amounts, eligible nodes, domains and declared limits.
    """
    match demand:
        case PodDemand():
            return _is_pod_unplaceable(estimates, demand)
        case QuorumDemand(gangs):
            return any(_is_gang_unplaceable(estimates, gang) for gang in gangs)
    return False


def _is_pod_unplaceable(estimates: RoomEstimates, demand: PodDemand) -> bool:
    copies = _copies_when_empty(estimates, demand.pod_class, demand.area)
    amounts = demand.pod_class.footprint.amounts
    return not (copies >= demand.count).any() or _is_never_allowed(
        estimates, demand.charge_path, amounts, demand.count
    )


def _is_gang_unplaceable(estimates: RoomEstimates, gang: GangDemand) -> bool:
    portions = gang.members
    if not gang.total or not portions:
        return False
    # [portions, domains]
    copies = np.stack(
        [np.minimum(_copies_when_empty(estimates, each.pod_class, gang.area), each.count) for each in portions]
    )
    fits: BoolArray = copies.sum(axis=0) >= gang.total
    for role, least in gang.roles:
        fits &= copies[[portion.role == role for portion in portions]].sum(axis=0) >= least
    amounts = gang.least_amounts()
    if len(portions) > 1 and fits.any():
        fits &= _have_amounts(estimates, amounts, (portion.pod_class for portion in portions), gang.area)
    if not fits.any():
        return True
    charge_paths = {portion.charge_path for portion in portions}
    return len(charge_paths) == 1 and _is_never_allowed(estimates, next(iter(charge_paths)), amounts, 1)


def _copies_when_empty(estimates: RoomEstimates, pod_class: ClassRecord, area: Area | None) -> IntArray:
    """int64[D]: how many copies of a class the eligible nodes of each domain hold if they are empty.

    Without a domain that is required there is one entry, for all nodes.
    """
    nodes = estimates.placer.nodes
    rows = np.flatnonzero(estimates.placer.class_view(pod_class).static & nodes.alive)
    columns, amounts = pod_class.columns, pod_class.amounts
    copies = (nodes.allocatable[np.ix_(columns, rows)] // amounts[:, None]).min(axis=0, initial=2**31).clip(0)
    return _by_domain(estimates, area, rows, copies)


def _have_amounts(
    estimates: RoomEstimates, amounts: Mapping[str, int], classes: Iterable[ClassRecord], area: Area | None
) -> BoolArray:
    """bool[D]: whether the nodes of each domain that are eligible for any of the classes offer the amounts."""
    placer, nodes = estimates.placer, estimates.placer.nodes
    eligible = np.any([placer.class_view(each).static for each in classes], axis=0)
    rows = np.flatnonzero(eligible & nodes.alive)
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
