"""Room on all nodes, to try moves on: a copy that can be taken back step by step."""

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
    """`closed` rows take none of those who move, `avoided` ones only who fits on no other. `mark` names the
    present state, `undo_to` goes back to one.

    What filters say is asked once per class and holds for the whole plan, but for host ports, which are counted.
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
        """Takes back who came and who left since the mark."""
        while len(self._journal) > mark:
            row, usage, ports = self._journal.pop()
            self._idle[:, row] += usage
            for port in ports:
                self._ports[row].remove(port)

    def remove_pod(self, record: PodRecord) -> None:
        """A pod is no longer where it is."""
        if record.row != NO_NODE:
            self._charge(record.row, -record.footprint.usage, ())

    def add_pod(self, pod_class: ClassRecord, row: int) -> None:
        """A pod of the class is there now."""
        self._charge(row, pod_class.footprint.usage, pod_class.spec.host_ports)

    def fitting(self, pod_class: ClassRecord, *, closed_too: bool = False) -> RowArray:
        """The rows that take another pod of the class."""
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
        """The row for a pod of the class that moves; None if none takes it."""
        rows = self.fitting(pod_class)
        willing = rows[~self.avoided[rows]]
        return self.most_allocated(pod_class, willing if len(willing) else rows)

    def most_allocated(self, pod_class: ClassRecord, rows: RowArray) -> int | None:
        """Of the rows, the one on which a pod of the class leaves the least unused, the first of equals."""
        if not len(rows):
            return None
        left = ((self._idle[:, rows] - pod_class.footprint.usage[:, None]) * self._inverse[:, rows]).sum(axis=0)
        return int(rows[int(left.argmin())])

    def lacking(self, pod_class: ClassRecord, row: int) -> IntArray:
        """int64[R]: what a row lacks for a pod of the class; 0 where there is enough."""
        wanted = pod_class.footprint.usage
        missing: IntArray = np.where(wanted > 0, np.maximum(wanted - self._idle[:, row], 0), 0)
        return missing

    def mask(self, pod_class: ClassRecord) -> BoolArray:
        """bool[N]: which rows the class may use, amounts aside."""
        found = self._masks.get(pod_class)
        if found is None:
            found = self._masks[pod_class] = self._placer.class_view(pod_class).mask.copy()
        return found

    def _charge(self, row: int, usage: IntArray, ports: tuple[HostPort, ...]) -> None:
        self._idle[:, row] -= usage
        if ports:
            self._ports.setdefault(row, []).extend(ports)
        self._journal.append((row, usage, ports))
