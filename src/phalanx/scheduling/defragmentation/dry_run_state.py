"""Copy of the free resources of all nodes, on which moves are tried and undone step by step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.selectors import HostPort
from phalanx.scheduling.session.session import Session

RowArray = npt.NDArray[np.intp]


class DryRunState:
    """Free resources of all nodes during a plan of moves.

    Moved pods never go to `closed` rows, and to `avoided` rows only if no other row fits. `mark` identifies the
    present state; `undo_to` restores it. Filters are evaluated once a class for the whole plan, except for host
    ports, which are counted.
    """

    def __init__(self, session: Session) -> None:
        nodes = session.state.nodes
        self.closed: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self.avoided: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self._placer = session.placer
        self._inverse = nodes.inverse
        self._idle: IntArray = nodes.idle.copy()
        self._masks: dict[ClassRecord, BoolArray] = {}
        self._ports: dict[int, list[HostPort]] = {}
        self._journal: list[tuple[int, IntArray, tuple[HostPort, ...]]] = []

    def mark(self) -> int:
        return len(self._journal)

    def undo_to(self, mark: int) -> None:
        """Undo all moves since the state that `mark` identifies."""
        while len(self._journal) > mark:
            row, usage, ports = self._journal.pop()
            self._idle[:, row] += usage
            for port in ports:
                self._ports[row].remove(port)

    def remove_pod(self, record: PodRecord) -> None:
        """Release the resources of a pod on its node."""
        if record.row != NO_NODE:
            self._charge(record.row, -record.footprint.usage, ())

    def add_pod(self, pod_class: ClassRecord, row: int) -> None:
        """Charge a pod of the class to a node row."""
        self._charge(row, pod_class.footprint.usage, pod_class.spec.host_ports)

    def fitting(self, pod_class: ClassRecord, *, closed_too: bool = False) -> RowArray:
        """Return the node rows on which another pod of the class fits."""
        fits: BoolArray = self.mask(pod_class) & (self._idle >= pod_class.min_idle).all(axis=0)
        if not closed_too:
            fits &= ~self.closed
        rows = np.flatnonzero(fits)
        ports = pod_class.spec.host_ports
        if not ports or not self._ports:
            return rows
        clash = [
            any(port.conflicts_with(other) for port in ports for other in self._ports.get(row, ()))
            for row in rows.tolist()
        ]
        return rows[~np.array(clash, dtype=np.bool_)]

    def row_for_moved(self, pod_class: ClassRecord) -> int | None:
        """Return the node row for a moved pod of the class; None if the pod fits on no row."""
        rows = self.fitting(pod_class)
        willing = rows[~self.avoided[rows]]
        return self.most_allocated(pod_class, willing if len(willing) else rows)

    def most_allocated(self, pod_class: ClassRecord, rows: RowArray) -> int | None:
        """Return the node row on which a pod of the class leaves the smallest unused part; the first of equals,
        None without rows."""
        if not len(rows):
            return None
        unused = ((self._idle[:, rows] - pod_class.footprint.usage[:, None]) * self._inverse[:, rows]).sum(axis=0)
        return int(rows[int(unused.argmin())])

    def lacking(self, pod_class: ClassRecord, row: int) -> IntArray:
        """Return int64[R]: the amounts that a node row lacks for a pod of the class; 0 where enough is free."""
        wanted = pod_class.footprint.usage
        missing: IntArray = np.where(wanted > 0, np.maximum(wanted - self._idle[:, row], 0), 0)
        return missing

    def mask(self, pod_class: ClassRecord) -> BoolArray:
        """Return bool[N]: the node rows that the filters permit for the class."""
        mask = self._masks.get(pod_class)
        if mask is None:
            mask = self._masks[pod_class] = self._placer.class_view(pod_class).mask.copy()
        return mask

    def _charge(self, row: int, usage: IntArray, ports: tuple[HostPort, ...]) -> None:
        self._idle[:, row] -= usage
        if ports:
            self._ports.setdefault(row, []).extend(ports)
        self._journal.append((row, usage, ports))
