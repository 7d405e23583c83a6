"""Who of those that wait comes first, for every account that would pay for it."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.accounts import ChargePath
from phalanx.model.account import AccountKey
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session


def first_in_queue(session: Session, units: Iterable[QueuedUnit]) -> dict[AccountKey, QueuedUnit]:
    """account -> the first of the units, in the order in which a cycle would give them their turn.

    Units of one payer are in order of their rank, so only the first of each payer stands in the line.
    """
    heads: dict[ChargePath, QueuedUnit] = {}
    for unit in units:
        for payer in _payers(session, unit):
            if payer not in heads or unit.rank < heads[payer].rank:
                heads[payer] = unit
    payers: dict[object, list[ChargePath]] = {}
    for payer, unit in heads.items():
        payers.setdefault(unit.key, []).append(payer)
    first: dict[AccountKey, QueuedUnit] = {}
    line = QueueOrder(session, {unit.key: unit for unit in heads.values()}.values())
    while (turn := line.next()) is not None:
        assert isinstance(turn, list)
        for unit in turn:
            for payer in payers[unit.key]:
                for account in payer.path:
                    first.setdefault(account.key, unit)
    return first


def _payers(session: Session, unit: QueuedUnit) -> list[ChargePath]:
    return list(dict.fromkeys(session.payer(member) for member in unit.members))
