"""Copies of the queues and quotas as of one moment, for threads that read while the cluster changes."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.ledger import Ledger
from phalanx.model.account import AccountKey, Tree


class AccountCopies:
    """Copies of the declared queues and quotas of some trees, with their sums, as of the last `refresh`.

    `demand_version` is the ledger's: while it is equal, all shares are equal. The copies are updated in place,
    since parents and children refer to each other, and new copies of 10,000 accounts would burden the garbage
    collector.
    """

    def __init__(self, ledger: Ledger, trees: Collection[Tree]) -> None:
        self._ledger = ledger
        self._trees = trees
        self._pairs: list[tuple[AccountRecord, AccountRecord]] = []
        self._rebuilds = -1
        self._charged: set[AccountKey] = set()
        self.accounts: dict[AccountKey, AccountRecord] = {}
        self.demand_version = -1

    def charged_queues(self) -> set[AccountKey]:
        return self._charged

    def refresh(self) -> None:
        """Update the copies of all queues and quotas; only for the thread that changes the cluster, while no thread
        reads the copies."""
        ledger = self._ledger
        ledger.refresh_sums()
        if self._rebuilds != ledger.rebuilds:
            self._rebuilds = ledger.rebuilds
            self._copy(ledger)
        else:
            for record, copy in self._pairs:
                copy.update(record)
        if self.demand_version != ledger.demand_version:
            self.demand_version = ledger.demand_version
            self._charged = ledger.charged_queues()

    def _copy(self, ledger: Ledger) -> None:
        records = [record for record in ledger.accounts.values() if record.key.tree in self._trees]
        self._pairs = [(record, record.copy_alone()) for record in records]
        copies = self.accounts = {copy.key: copy for _, copy in self._pairs}
        for copy in copies.values():
            copy.parent = copies[copy.parent.key] if copy.parent is not None else None
            copy.children = {key: copies[key] for key in copy.children}
