"""Which pods occupy which node, and what they have there."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.cluster.changes import Changes
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.cluster.pods.unknown_nodes import PodsOfUnknownNodes
from phalanx.cluster.pods.victim_index import VictimIndex, VictimTable
from phalanx.model.pod import MemberState
from phalanx.model.preparations import Preparation

# Pods in these states take no room: for some of them it is reserved.
RESERVING = (MemberState.OTHER_SCHEDULER, MemberState.PENDING)


class PodsByNode:
    """The pods that occupy a row, or have room held there, by row and uid; those of unknown nodes wait.

    What a pod takes of its row's amounts, and gets from the allocators, is charged here. `affinity_version` counts
    how often one has come, or begun to leave, for whose sake others may go where they could not.
    """

    def __init__(self, nodes: NodeTable, changes: Changes, victims: VictimIndex) -> None:
        self._nodes = nodes
        self._changes = changes
        self._victims = victims
        self._unknown = PodsOfUnknownNodes()
        self._rows: dict[int, dict[str, PodRecord]] = {}
        self.affinity_version = 0

    def on(self, row: int) -> Collection[PodRecord]:
        """The pods that occupy a row, assumed and terminating ones included."""
        return self._rows.get(row, {}).values()

    def victim_table(self) -> VictimTable:
        """How many pods of which class of victims each row has."""
        return self._victims.table(self._rows)

    def occupy(self, record: PodRecord, node: str) -> None:
        """Charges a pod to a node, or remembers that its node is not known yet."""
        row = self._nodes.row(node)
        if row == NO_ROW:
            self._unknown.add(node, record)
            return
        self.put(record, row)
        self._charge(record, row, 1)

    def vacate(self, record: PodRecord) -> None:
        """Takes a pod off its node."""
        if record.row == NO_NODE:
            self._unknown.discard(record)
            return
        row = record.row
        self._remove(record)
        self._charge(record, row, -1)
        self._changes.freed += 1

    def put(self, record: PodRecord, row: int) -> None:
        """Counts a pod among those on a row whose amounts have been charged."""
        record.row = row
        self.affinity_version += record.pod_class.affinity.may_unblock_others
        self._victims.moved.note(row)
        here = self._rows.get(row)
        if here is None:
            self._rows[row] = {record.pod.uid: record}
        else:
            here[record.pod.uid] = record

    def put_all(self, placed: Collection[tuple[PodRecord, int]]) -> None:
        """The same for many."""
        rows, unblocking = self._rows, dict[ClassRecord, bool]()
        for record, row in placed:
            record.row = row
            pod_class = record.pod_class
            if pod_class not in unblocking:
                unblocking[pod_class] = pod_class.affinity.may_unblock_others
            self.affinity_version += unblocking[pod_class]
            here = rows.get(row)
            if here is None:
                rows[row] = {record.pod.uid: record}
            else:
                here[record.pod.uid] = record
        self._victims.moved.note_all([row for _, row in placed])

    def end_nomination(self, record: PodRecord) -> None:
        """Forgets room that was held, and that a transaction has already taken off the amounts."""
        if record.row != NO_NODE:
            self._remove(record)
        else:
            self._unknown.discard(record)

    def start_terminating(self, record: PodRecord, sign: int) -> None:
        """Counts what a pod takes as room to come, and the pod as terminating (sign 1), or no longer (sign -1)."""
        if record.row != NO_NODE:
            self._nodes.release_later(record.row, record.footprint.usage, sign)
            record.pod_class.affinity.mark_terminating(record.row, sign)
            self.affinity_version += record.pod_class.affinity.may_unblock_others
            self._victims.moved.note(record.row)

    def node_added(self, name: str) -> list[PodRecord]:
        """Those who have waited for a node that is known now; they are charged to it."""
        records = self._unknown.pop(name)
        for record in records:
            self.occupy(record, name)
        return records

    def node_removed(self, name: str, row: int) -> list[PodRecord]:
        """Those who were on a node that goes; they are charged to it again should it come back."""
        records = list(self.on(row))
        for record in records:
            charge_allocations(record, row, -1)
            self._remove(record)
            self._unknown.add(name, record)
        return records

    def _charge(self, record: PodRecord, row: int, sign: int) -> None:
        """Puts a pod on a row's amounts, or takes it off, as its state says."""
        footprint = record.footprint
        self._changes.version += 1
        if record.state in RESERVING:
            self._nodes.reserve(row, footprint.usage, sign)
            return
        self._nodes.charge(row, footprint.usage, footprint.scored, sign)
        if sign > 0:
            restore_allocations(record, row)
        else:
            release_allocations(record, row)
        if record.state is MemberState.TERMINATING:
            self._nodes.release_later(row, footprint.usage, sign)

    def _remove(self, record: PodRecord) -> None:
        self._victims.moved.note(record.row)
        here = self._rows[record.row]
        del here[record.pod.uid]
        if not here:
            del self._rows[record.row]
        record.row = NO_NODE


def restore_allocations(record: PodRecord, row: int) -> None:
    """Counts a pod that occupies a row among its peers, and books what it holds of each allocator: what we gave it,
    else what the API tells."""
    count_affinity(record, row, 1)
    for allocator in record.pod_class.allocators:
        if allocator.name in record.allocated:
            allocator.book(record.allocated[allocator.name], row, 1)
        elif (allocated := allocator.observed(record.pod, row)) is not None:
            record.allocated[allocator.name] = allocated


def reserve_allocations(record: PodRecord, row: int) -> None:
    """Decides what a pod that is placed on a row gets of each allocator, and books it."""
    for allocator in record.pod_class.allocators:
        if (allocated := allocator.take(record.pod, row)) is not None:
            record.allocated[allocator.name] = allocated


def charge_allocations(record: PodRecord, row: int, sign: int) -> None:
    """Books what a pod that occupies a row has there (sign 1), or gives it back for now (sign -1)."""
    count_affinity(record, row, sign)
    for allocator in record.pod_class.allocators:
        if allocator.name in record.allocated:
            allocator.book(record.allocated[allocator.name], row, sign)


def release_allocations(record: PodRecord, row: int) -> None:
    """Gives back what the pod has, for good."""
    charge_allocations(record, row, -1)
    record.allocated.clear()


def count_affinity(record: PodRecord, row: int, sign: int) -> None:
    """Counts a pod among those on a row (sign 1), or no longer (sign -1)."""
    profile = record.pod_class.affinity
    if profile.tallies and record.state not in RESERVING:
        profile.add((row,), sign)
        if record.state is MemberState.TERMINATING:
            profile.mark_terminating(row, sign)


def reclassify(record: PodRecord, pod_class: ClassRecord) -> None:
    """Others mean the pod now, or others no longer do."""
    if record.row != NO_NODE:
        count_affinity(record, record.row, -1)
    record.pod_class = pod_class
    if record.row != NO_NODE:
        count_affinity(record, record.row, 1)


def binding_writes(record: PodRecord, now: float) -> tuple[tuple[Preparation, ...], tuple[tuple[str, str], ...]]:
    """(what must be written before the pod is bound, what its binding tells it) because of what it has."""
    if not record.allocated:
        return (), ()
    held = [
        (allocator, record.allocated[allocator.name])
        for allocator in record.pod_class.allocators
        if allocator.name in record.allocated
    ]
    gang = record.gang.spec if record.gang is not None else None
    preparations = tuple(
        each for allocator, allocated in held for each in allocator.preparations(record.pod, allocated, gang)
    )
    return preparations, tuple(
        each
        for allocator, allocated in held
        for each in allocator.annotations(record.pod, allocated, record.row, now)
    )
