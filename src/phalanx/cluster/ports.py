"""Host ports in use, by row and by port, so that a conflict is looked up and never searched for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.stock import Stock
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort

if TYPE_CHECKING:
    from phalanx.cluster.classes import ClassRecord
    from phalanx.cluster.members import PodRecord
    from phalanx.cluster.noderows import NodeRows

K = TypeVar("K", bound=Hashable)

PORTS = "ports"
TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports(Stock):
    """The stock of host ports; several pods may hold the same one (others bound them so)."""

    name = PORTS

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._taken: dict[int, Counter[HostPort]] = {}
        self._rows: dict[tuple[int, str], Counter[int]] = {}

    def taken(self, row: int) -> dict[HostPort, int]:
        """port -> how many pods hold it."""
        return dict(self._taken.get(row, {}))

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.host_ports)

    def copies(self, cls: ClassRecord, rows: Rows) -> IntArray:
        """A second copy would want the ports of the first."""
        return np.where(self._free(cls.pod_class.host_ports, rows), 1, 0)

    def take(self, record: PodRecord, row: int) -> object | None:
        return self.observed(record, row)

    def observed(self, record: PodRecord, row: int) -> object | None:
        ports = record.cls.pod_class.host_ports
        self.book(ports, row, 1)
        return ports

    def book(self, taken: object, row: int, sign: int) -> None:
        assert isinstance(taken, tuple)
        self._count(row, taken, sign)
        self.changes.note(row)

    def explain(self, cls: ClassRecord, rows: Rows) -> list[tuple[str, BoolArray]]:
        return [(TAKEN, ~self._free(cls.pod_class.host_ports, rows))]

    def node_removed(self, row: int) -> None:
        for port, count in self.taken(row).items():
            for _ in range(count):
                self._count(row, (port,), -1)
        self.changes.note(row)

    def _free(self, ports: tuple[HostPort, ...], rows: Rows) -> BoolArray:
        """bool[rows]: where none of the ports conflicts with one that is taken."""
        if isinstance(rows, slice):
            free = np.ones(self._nodes.capacity, dtype=np.bool_)
            suspects = {row for port in ports for row in self._rows.get((port.port, port.protocol), ())}
            for row in suspects:
                free[row] = not self._conflict(ports, row)
            result: BoolArray = free[rows]
            return result
        return np.array([not self._conflict(ports, row) for row in rows.tolist()], dtype=np.bool_)

    def _conflict(self, ports: tuple[HostPort, ...], row: int) -> bool:
        taken = self._taken.get(row)
        return taken is not None and any(wanted.conflicts_with(port) for wanted in ports for port in taken)

    def _count(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
        """Adds (sign 1) or takes back (sign -1) the ports of one pod."""
        taken = self._taken.setdefault(row, Counter())
        for port in ports:
            _count(taken, port, sign)
            rows = self._rows.setdefault((port.port, port.protocol), Counter())
            _count(rows, row, sign)
            if not rows:
                del self._rows[port.port, port.protocol]
        if not taken:
            del self._taken[row]


def _count(counter: Counter[K], key: K, sign: int) -> None:
    counter[key] += sign
    if counter[key] <= 0:
        del counter[key]
