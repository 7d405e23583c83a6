"""Sentence of `phalanx why` about running pods whose queue uses more than it deserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import AccountKey, Tree
from phalanx.model.pod import ACTIVE
from phalanx.model.resources import PODS
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.ordering.entitlements import own_of
from phalanx.scheduling.session.session import Session

Usage = Mapping[AccountKey, Mapping[str, int]]


def usage_of_queues(session: Session) -> Usage:
    """Return the present usage of all queues."""
    accounts = session.ledger.accounts.values()
    return {account.key: dict(account.used) for account in accounts if account.key.tree is Tree.QUEUE}


def borrowed_room(session: Session, usage: Usage, records: Iterable[PodRecord]) -> str:
    """Return "runs on borrowed room: …" for pods with a resource of which their queue exceeds its deserved share;
    "" for others.

    Of several resources and levels it names the one with the largest excess.
    """
    excesses: list[tuple[float, str]] = []
    for record in records:
        queue = record.charge_path.queue if record.charge_path is not None else None
        if queue is None or record.state not in ACTIVE:
            continue
        for account in queue.lineage()[:-1]:
            for share in own_of(session, account):
                for name, deserved in sorted(share.items()):
                    used = usage.get(account.key, {}).get(name, 0)
                    if name == PODS or used <= deserved or not record.footprint.amounts.get(name, 0):
                        continue
                    amount, own = format_quantity(used, name), format_quantity(deserved, name)
                    text = f"runs on borrowed room: {amount} {name}, deserved {own} ({account.label})"
                    excesses.append((deserved / used, text))
    return min(excesses, key=lambda entry: entry[0], default=(0.0, ""))[1]
