"""Occupancy: the pods of each node, and their allocations there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from phalanx.cluster.changes import Changes
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.cluster.pods.records import NO_NODE, NOTHING_ALLOCATED, PodRecord
from phalanx.cluster.pods.unknown_nodes import PodsOfUnknownNodes
from phalanx.cluster.pods.victim_index import VictimIndex, VictimTable
from phalanx.model.pod import MemberState
from phalanx.model.preparations import Preparation

# No allocation of a pod is decided before its placement.
NO_CHOICE: Mapping[str, object] = MappingProxyType({})
# Pods in these states use no room, but can have it reserved.
RESERVING = (MemberState.OTHER_SCHEDULER, MemberState.PENDING)


class PodsByNode:
    """Pods that occupy a node, or have resources reserved there, by row and uid; pods of unknown nodes are stored
    apart.

    The pods' amounts and allocations are charged here. `affinity_version` counts the arrivals and terminations that
    can open nodes for other pods by affinity.
    """

    def __init__(self, nodes: NodeTable, changes: Changes, victims: VictimIndex) -> None:
        self._nodes = nodes
        self._changes = changes
        self._victims = victims
        self._unknown = PodsOfUnknownNodes()
        self._rows: dict[int, dict[str, PodRecord]] = {}
        # Placed pods by uid, and their rows, that are not in `_rows` until these are read or changed.
        self._placed: list[tuple[Mapping[str, PodRecord], list[int]]] = []
        self.affinity_version = self.leaving_version = 0

    def on(self, row: int) -> Collection[PodRecord]:
        """Return the pods that occupy a node row, assumed and terminating ones included."""
        if self._placed:
            self._add_placed()
        return self._rows.get(row, {}).values()

    def victim_table(self) -> VictimTable:
        """Return the number of pods of each victim class per row."""
        if self._placed:
            self._add_placed()
        return self._victims.table(self._rows)

    def occupy(self, record: PodRecord, node: str) -> None:
        """Charge a pod to a node, or store it until its node is known."""
        row = self._nodes.row(node)
        if row == NO_ROW:
            self._unknown.add(node, record)
            return
        self.put(record, row)
        self._charge(record, row, 1)

    def vacate(self, record: PodRecord) -> None:
        """Remove a pod from its node."""
        if record.row == NO_NODE:
            self._unknown.discard(record)
            return
        row = record.row
        self._remove(record)
        self._charge(record, row, -1)
        self._changes.freed += 1

    def put(self, record: PodRecord, row: int) -> None:
        """Add a pod to a node row; the amounts have been charged."""
        record.row = row
        self.affinity_version += record.pod_class.affinity.may_unblock_others
        self._victims.moved.note(row)
        if self._placed:
            self._add_placed()
        self._rows.setdefault(row, {})[record.pod.uid] = record

    def assume_all(self, records: Mapping[str, PodRecord], node_rows: list[int]) -> None:
        """Add placed pods, by uid, to their node rows; the amounts have been charged."""
        names = self._nodes.names
        for record, row in zip(records.values(), node_rows, strict=True):
            record.row, record.assumed_node = row, names[row]
        self._placed.append((records, node_rows))
        classes = [record.pod_class for record in records.values()]
        for pod_class in dict.fromkeys(classes):
            self.affinity_version += classes.count(pod_class) * pod_class.affinity.may_unblock_others
        self._victims.moved.note_all(node_rows)

    def _add_placed(self) -> None:
        """Add the pods of `_placed` to `_rows`."""
        for records, node_rows in self._placed:
            for (uid, record), row in zip(records.items(), node_rows, strict=True):
                self._rows.setdefault(row, {})[uid] = record
        self._placed.clear()

    def end_nomination(self, record: PodRecord) -> None:
        """Remove a pod's reservation on a node; a transaction has already released its amounts."""
        if record.row != NO_NODE:
            self._remove(record)
        else:
            self._unknown.discard(record)

    def start_terminating(self, record: PodRecord, sign: int) -> None:
        """Count the pod as terminating, and its usage as releasing (sign 1), or no longer (sign -1)."""
        if record.row != NO_NODE:
            self.leaving_version += sign > 0
            self._nodes.release_later(record.row, record.footprint.usage, sign)
            record.pod_class.affinity.mark_terminating(record.row, sign)
            self.affinity_version += record.pod_class.affinity.may_unblock_others
            self._victims.moved.note(record.row)

    def node_added(self, name: str) -> list[PodRecord]:
        """Charge the stored pods of a node that is known now; return them."""
        records = self._unknown.pop(name)
        for record in records:
            self.occupy(record, name)
        return records

    def node_removed(self, name: str, row: int) -> list[PodRecord]:
        """Remove the pods of a removed node, and store them in case the node returns; return them."""
        records = list(self.on(row))
        for record in records:
            charge_allocations(record, row, -1)
            self._remove(record)
            self._unknown.add(name, record)
        return records

    def _charge(self, record: PodRecord, row: int, sign: int) -> None:
        """Add or remove a pod's amounts on a node row, according to its state."""
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
        if self._placed:
            self._add_placed()
        pods = self._rows[record.row]
        del pods[record.pod.uid]
        if not pods:
            del self._rows[record.row]
        record.row = NO_NODE


def restore_allocations(record: PodRecord, row: int) -> None:
    """Record a pod that occupies a node row: its affinity, and its allocations, which are ours if known, else those
    of the API."""
    count_affinity(record, row, 1)
    for allocator in record.pod_class.allocators:
        if allocator.name in record.allocated:
            allocator.book(record.allocated[allocator.name], row, 1)
        elif (allocated := allocator.observed(record.pod, row)) is not None:
            _allocate(record, allocator.name, allocated)


def reserve_allocations(record: PodRecord, row: int, chosen: Mapping[str, object] = NO_CHOICE) -> None:
    """Choose and reserve the ports, volumes and devices of a placed pod on its node row.

    `chosen` has those that are decided, by allocator.
    """
    for allocator in record.pod_class.allocators:
        if allocator.name in chosen:
            _allocate(record, allocator.name, chosen[allocator.name])
            allocator.book(chosen[allocator.name], row, 1)
        elif (allocated := allocator.take(record.pod, row)) is not None:
            _allocate(record, allocator.name, allocated)


def _allocate(record: PodRecord, name: str, allocated: object) -> None:
    record.allocated = {**record.allocated, name: allocated}


def charge_allocations(record: PodRecord, row: int, sign: int) -> None:
    """Record the ports, volumes and devices of a pod on a node row (sign 1), or remove them temporarily (sign
    -1)."""
    count_affinity(record, row, sign)
    for allocator in record.pod_class.allocators:
        if allocator.name in record.allocated:
            allocator.book(record.allocated[allocator.name], row, sign)


def release_allocations(record: PodRecord, row: int) -> None:
    """Release the pod's ports, volumes and devices for good."""
    charge_allocations(record, row, -1)
    record.allocated = NOTHING_ALLOCATED


def count_affinity(record: PodRecord, row: int, sign: int) -> None:
    """Count a pod on a node row in its match sets (sign 1), or no longer (sign -1)."""
    profile = record.pod_class.affinity
    if profile.tallies and record.state not in RESERVING:
        profile.add((row,), sign)
        if record.state is MemberState.TERMINATING:
            profile.mark_terminating(row, sign)


def reclassify(record: PodRecord, pod_class: ClassRecord) -> None:
    """Move a pod to another class, after selectors of other pods have changed."""
    if record.row != NO_NODE:
        count_affinity(record, record.row, -1)
    record.pod_class = pod_class
    if record.gang is not None:
        record.gang.forget_pending_facts()
    if record.row != NO_NODE:
        count_affinity(record, record.row, 1)


def binding_writes(record: PodRecord, now: float) -> tuple[tuple[Preparation, ...], tuple[tuple[str, str], ...]]:
    """Return the writes before a pod's binding, and the annotations of the binding, for its volumes and devices."""
    if not record.allocated:
        return (), ()
    allocations = [
        (allocator, record.allocated[allocator.name])
        for allocator in record.pod_class.allocators
        if allocator.name in record.allocated
    ]
    gang = record.gang.spec if record.gang is not None else None
    preparations = tuple(
        preparation
        for allocator, allocated in allocations
        for preparation in allocator.preparations(record.pod, allocated, gang)
    )
    return preparations, tuple(
        annotation
        for allocator, allocated in allocations
        for annotation in allocator.annotations(record.pod, allocated, record.row, now)
    )
