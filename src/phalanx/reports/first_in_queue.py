"""First waiting gang or pod of each queue and quota."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.accounts import ChargePath
from phalanx.model.account import AccountKey
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session


def first_in_queue(session: Session, units: Iterable[QueuedUnit]) -> dict[AccountKey, QueuedUnit]:
    """Return the first waiting gang or pod of each queue and quota in scheduling order.

    Units of one charge path are ordered by rank, so only the first unit of each charge path is compared.
    """
    heads: dict[ChargePath, QueuedUnit] = {}
    for unit in units:
        for charge_path in _charge_paths(session, unit):
            if charge_path not in heads or unit.rank < heads[charge_path].rank:
                heads[charge_path] = unit
    charge_paths: dict[object, list[ChargePath]] = {}
    for charge_path, unit in heads.items():
        charge_paths.setdefault(unit.key, []).append(charge_path)
    first: dict[AccountKey, QueuedUnit] = {}
    line = QueueOrder(session, {unit.key: unit for unit in heads.values()}.values())
    while (turn := line.next()) is not None:
        assert isinstance(turn, list)
        for unit in turn:
            for charge_path in charge_paths[unit.key]:
                for account in charge_path.path:
                    first.setdefault(account.key, unit)
    return first


def _charge_paths(session: Session, unit: QueuedUnit) -> list[ChargePath]:
    return list(dict.fromkeys(session.charge_path(member) for member in unit.members))
