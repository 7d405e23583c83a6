"""Disks that pods of one node cannot share, and PersistentVolumeClaims that only one pod at a time can use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.allocators.inventory import Inventory
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.pod import Pod, PodClass
from phalanx.model.volumes import Disk, SoleUse, VolumeNeed

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

DISKS = "disks"
CONFLICT = "node(s) had no available disk"
IN_USE = " ".join(
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode",
        "already in-use by another pod",
    )
)


class Disks(NodeAllocator):
    """Allocator of exclusive disks and PersistentVolumeClaims (kube-scheduler 1.36, VolumeRestrictions).

    A disk is exclusive per node, a ReadWriteOncePod claim in the whole cluster.
    """

    name = DISKS

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._mounted = Inventory[tuple[str, str], Disk](lambda disk: (disk.kind, disk.name))
        self._users: Counter[str] = Counter()

    def concerns(self, pod_class: PodClass) -> bool:
        return any(isinstance(need, Disk | SoleUse) for need in pod_class.volumes)

    def shared(self, pod_class: PodClass) -> bool:
        return any(isinstance(need, SoleUse) for need in pod_class.volumes)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        disks, claims = _disks(pod_class.volumes), _claims(pod_class.volumes)
        if any(self._users[claim] for claim in claims):
            return np.zeros(self._nodes.alive[rows].shape, dtype=np.int64)
        alone = bool(claims) or any(disk.conflicts_with(other) for disk in disks for other in disks)
        return np.where(self._free(disks, rows), 1 if alone else UNLIMITED_COPIES, 0)

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        free = self._free(_disks(pod_class.volumes), rows)
        used = any(self._users[claim] for claim in _claims(pod_class.volumes))
        return [(CONFLICT, ~free), (IN_USE, free & np.full(free.shape, used))]

    def observed(self, pod: Pod, row: int) -> object | None:
        allocated = tuple(need for need in pod.pod_class.volumes if isinstance(need, Disk | SoleUse))
        self.book(allocated, row, 1)
        return allocated

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, tuple)
        for claim in _claims(allocated):
            self._users[claim] += sign
            self.changes.note_all(self._nodes.rows().tolist())
            if self._users[claim] <= 0:
                del self._users[claim]
        disks = _disks(allocated)
        if disks:
            self._mounted.count(row, disks, sign)
            self.changes.note(row)

    def _free(self, disks: tuple[Disk, ...], rows: Rows) -> BoolArray:
        """Return bool[rows]: nodes without a pod that uses a conflicting disk."""
        free = np.ones(self._nodes.capacity, dtype=np.bool_)
        for disk in disks:
            for row in self._mounted.rows((disk.kind, disk.name)):
                if any(disk.conflicts_with(other) for other in self._mounted.at(row)):
                    free[row] = False
        result: BoolArray = free[rows]
        return result


def _disks(needs: tuple[VolumeNeed, ...]) -> tuple[Disk, ...]:
    return tuple(need for need in needs if isinstance(need, Disk))


def _claims(needs: tuple[VolumeNeed, ...]) -> tuple[str, ...]:
    return tuple(need.claim for need in needs if isinstance(need, SoleUse))
