"""Transactions: changes to the node table that are committed or rolled back as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord, Footprint
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.pods.occupancy import NO_CHOICE, charge_allocations, release_allocations, reserve_allocations
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.model.pod import MemberState

# With more transactions, finished ones are discarded.
_REMEMBERED = 32
# Up to this number, pods are charged one by one: that is cheaper than numpy's overhead.
_FEW = 6


class Transaction:
    """Places pods on the live arrays, and charges their accounts, with an undo journal.

    Each placement is visible to the next one of the same transaction. `rollback` restores the arrays bit by bit;
    `commit` returns the placements in order. Exactly one of the two ends a transaction. A committed charge is not
    charged again when its pods are recorded as placed, which must follow. A transaction that is committed at once
    can omit charges (`charging`).
    """

    def __init__(self, nodes: NodeTable, charging: bool = True) -> None:
        self._nodes = nodes
        self._charging = charging
        self._charges: dict[tuple[ChargePath, Footprint], int] = {}
        self._journal: list[tuple[ClassRecord, list[PodRecord], list[int]]] = []
        self._lifted: dict[PodRecord, None] = {}
        self._removed: dict[PodRecord, None] = {}
        self._sums: list[tuple[IntArray, Mapping[ChargePath, Mapping[str, int]]]] = []
        self._open = True

    @property
    def placed(self) -> int:
        return sum(len(pods) for _, pods, _ in self._journal)

    @property
    def over(self) -> bool:
        """Whether the transaction was rolled back, or has placed no pod."""
        return not self._open and not self._journal

    @property
    def explores(self) -> bool:
        """Whether the transaction explores a placement without some existing pods."""
        return bool(self._removed or self._sums or self._lifted)

    def removed(self) -> Collection[PodRecord]:
        """Return the pods that the open transaction has removed one by one."""
        return self._removed if self._open else ()

    def place(
        self,
        pod_class: ClassRecord,
        pods: list[PodRecord],
        rows: list[int],
        chosen: Mapping[str, object] = NO_CHOICE,
    ) -> None:
        """Place `pods[i]`, all of class `pod_class`, on the node rows `rows[i]`.

        `chosen` has decided allocations of one pod.
        """
        assert self._open
        assert len(pods) == len(rows)
        if not rows:
            return
        self._put(pod_class.footprint, rows, 1)
        if pod_class.allocators:
            for record, row in zip(pods, rows, strict=True):
                reserve_allocations(record, row, chosen)
        pod_class.affinity.add(rows, 1)
        self._journal.append((pod_class, pods, rows))
        if self._charging:
            self._charge(pod_class.footprint, pods, 1)

    def _charge(self, footprint: Footprint, pods: list[PodRecord], sign: int) -> None:
        charge_paths = [record.charge_path for record in pods]
        for charge_path in dict.fromkeys(charge_paths):
            if charge_path is not None:
                key, count = (charge_path, footprint), charge_paths.count(charge_path) * sign
                self._charges[key] = self._charges.get(key, 0) + count
                charge_path.charge(footprint, count)

    def lift(self, records: Iterable[PodRecord]) -> None:
        """Release the reservations of nominated pods, which are about to be placed, there or elsewhere."""
        for record in records:
            if record.nomination is None or record in self._lifted:
                continue
            self._lifted[record] = None
            self._unreserve(record, 1)
            if record.charge_path is not None:
                record.charge_path.move_nominated(record.footprint, 1)

    def relend(self, records: Iterable[PodRecord]) -> None:
        """Restore the reservations that `lift` has released."""
        for record in records:
            del self._lifted[record]
            self._restore_nomination(record)

    def remove(self, records: Collection[PodRecord]) -> None:
        """Remove pods from their nodes, queues and quotas, to explore placements without them.

        A transaction with removed pods can only be rolled back.
        """
        assert self._open
        self._removed.update(dict.fromkeys(records))
        self._charge_pods(records, -1)

    def remove_sums(self, freed: IntArray, charges: Mapping[ChargePath, Mapping[str, int]]) -> None:
        """Remove int64[R, N] from the nodes and amounts from their charge paths: the sums of many pods at once."""
        assert self._open
        self._sums.append((freed, charges))
        self._charge_sums(freed, charges, -1)

    def put_back_sums(self) -> None:
        """Undo the last `remove_sums`."""
        freed, charges = self._sums.pop()
        self._charge_sums(freed, charges, 1)

    def put_back(self, records: Collection[PodRecord]) -> None:
        """Undo the removal of some pods by `remove`."""
        for record in records:
            del self._removed[record]
        self._charge_pods(records, 1)

    def mark(self) -> int:
        """Return the current position in the journal, for `back_to`."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Undo the placements since the journal position `mark`, and no other changes."""
        while len(self._journal) > mark:
            pod_class, pods, rows = self._journal.pop()
            for record, row in zip(reversed(pods), reversed(rows), strict=True) if pod_class.allocators else ():
                release_allocations(record, row)
            pod_class.affinity.add(rows, -1)
            self._put(pod_class.footprint, rows, -1)
            if self._charging:
                self._charge(pod_class.footprint, pods, -1)

    def unplace(self) -> None:
        """Undo all placements of the transaction, and no other changes."""
        self.back_to(0)
        self._charges.clear()

    def rollback(self) -> None:
        assert self._open
        self._open = False
        self.unplace()
        self._charge_pods(self._removed, 1)
        while self._sums:
            self.put_back_sums()
        for record in self._lifted:
            self._restore_nomination(record)

    def commit(self) -> Iterator[tuple[PodRecord, int]]:
        """End the transaction; return an iterator of (pod, row) in the order of placement."""
        assert self._open
        assert not self._removed
        assert not self._sums
        self._open = False
        for (charge_path, footprint), count in self._charges.items():
            charge_path.commit_charge(footprint, count)
        if self._lifted:
            placed = {record for _, pods, _ in self._journal for record in pods}
            for record in self._lifted:
                if record not in placed:
                    self._restore_nomination(record)
                elif record.charge_path is not None:
                    # From here on, the pod counts where it was placed; booking the pod removes its nomination.
                    record.charge_path.move_nominated(record.footprint, -1)
                    record.charge_path.charge(record.footprint, -1)
                    record.charge_path.commit_charge(record.footprint, -1)
        return (entry for _, pods, rows in self._journal for entry in zip(pods, rows, strict=True))

    def abandon(self) -> None:
        """Undo the committed placements of pods that were never recorded as placed, after a failure in between."""
        for pod_class, pods, rows in reversed(self._journal):
            unplaced = [
                (record, row) for record, row in zip(pods, rows, strict=True) if record.state is MemberState.PENDING
            ]
            for record, row in unplaced:
                if pod_class.allocators:
                    release_allocations(record, row)
                if self._charging and record.charge_path is not None:
                    record.charge_path.charge(pod_class.footprint, -1)
                    record.charge_path.commit_charge(pod_class.footprint, -1)
            rows = [row for _, row in unplaced]
            if rows:
                pod_class.affinity.add(rows, -1)
                self._put(pod_class.footprint, rows, -1)
        self._journal.clear()

    def end(self) -> None:
        """End the transaction and undo all of its changes, whether it is open or committed."""
        if self._open:
            self.rollback()
        else:
            self.abandon()

    def _restore_nomination(self, record: PodRecord) -> None:
        """Restore a nominated pod's reservation that `lift` has released."""
        self._unreserve(record, -1)
        if record.charge_path is not None:
            record.charge_path.move_nominated(record.footprint, -1)

    def _unreserve(self, record: PodRecord, sign: int) -> None:
        if record.row != NO_NODE:
            self._nodes.reserve(record.row, record.footprint.usage, -sign)

    def _charge_sums(self, freed: IntArray, charges: Mapping[ChargePath, Mapping[str, int]], sign: int) -> None:
        self._nodes.charge_sums(freed, sign)
        for charge_path, amounts in charges.items():
            charge_path.charge_sum(amounts, sign)

    def _charge_pods(self, records: Collection[PodRecord], sign: int) -> None:
        rows: dict[Footprint, list[int]] = {}
        charges: dict[tuple[ChargePath, Footprint], int] = {}
        for record in records:
            if record.row != NO_NODE:
                rows.setdefault(record.footprint, []).append(record.row)
                charge_allocations(record, record.row, sign)
            if record.charge_path is not None:
                key = (record.charge_path, record.footprint)
                charges[key] = charges.get(key, 0) + sign
        for footprint, node_rows in rows.items():
            self._put(footprint, node_rows, sign)
        for (charge_path, footprint), count in charges.items():
            charge_path.charge(footprint, count)

    def _put(self, footprint: Footprint, rows: list[int], sign: int) -> None:
        if len(rows) <= _FEW:
            for row in rows:
                self._nodes.charge(row, footprint.usage, footprint.scored, sign)
        else:
            self._nodes.charge_many(rows, footprint.usage, footprint.scored, sign)


class Transactions:
    """Transactions that were begun since the last `forget`, so that those of a failed cycle can be ended."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.begun: list[Transaction] = []

    def begin(self, charging: bool) -> Transaction:
        transaction = Transaction(self._nodes, charging)
        if len(self.begun) >= _REMEMBERED:
            self.begun = [transaction for transaction in self.begun if not transaction.over]
        self.begun.append(transaction)
        return transaction

    def removed(self) -> list[PodRecord]:
        """Return the pods that any open transaction has removed one by one, not as sums."""
        return [record for transaction in self.begun for record in transaction.removed()]

    def forget(self) -> None:
        self.begun.clear()

    def end_all(self) -> None:
        """End all transactions and undo their changes, the last one first."""
        while self.begun:
            self.begun.pop().end()
