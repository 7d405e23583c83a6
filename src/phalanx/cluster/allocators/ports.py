"""Allocator of host ports, indexed by row and by port, so that conflicts need no search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.allocators.base import NodeAllocator
from phalanx.cluster.allocators.inventory import Inventory
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.pod import Pod, PodClass
from phalanx.model.selectors import HostPort

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

PORTS = "ports"
TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports(NodeAllocator):
    """Tracks host ports of nodes; several pods can hold the same one (bound by other schedulers)."""

    name = PORTS

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._held = Inventory[tuple[int, str], HostPort](lambda port: (port.port, port.protocol))

    def taken(self, row: int) -> dict[HostPort, int]:
        """Return the number of pods of a row that hold each port."""
        return dict(self._held.at(row))

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.host_ports)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        """Return at most one further pod per row: a second one would conflict with the first."""
        return np.where(self._free(pod_class.host_ports, rows), 1, 0)

    def observed(self, pod: Pod, row: int) -> object | None:
        ports = pod.pod_class.host_ports
        self.book(ports, row, 1)
        return ports

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, tuple)
        self._held.count(row, allocated, sign)
        self.changes.note(row)

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        return [(TAKEN, ~self._free(pod_class.host_ports, rows))]

    def _free(self, ports: tuple[HostPort, ...], rows: Rows) -> BoolArray:
        """Return bool[rows]: rows on which no pod holds any of the ports."""
        if isinstance(rows, slice):
            free = np.ones(self._nodes.capacity, dtype=np.bool_)
            suspects = {row for port in ports for row in self._held.rows((port.port, port.protocol))}
            for row in suspects:
                free[row] = not self._conflict(ports, row)
            result: BoolArray = free[rows]
            return result
        return np.array([not self._conflict(ports, row) for row in rows.tolist()], dtype=np.bool_)

    def _conflict(self, ports: tuple[HostPort, ...], row: int) -> bool:
        ports_in_use = self._held.at(row)
        return any(wanted.conflicts_with(port) for wanted in ports for port in ports_in_use)
