"""Host ports in use, by row and by port, so that a conflict is looked up and never searched for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

import numpy as np

from phalanx.cluster.labels import Rows
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.selectors import HostPort

K = TypeVar("K", bound=Hashable)


class PortTable:
    """Which host ports the pods on each row hold; several pods may hold the same one (others bound them so)."""

    def __init__(self) -> None:
        self._taken: dict[int, Counter[HostPort]] = {}
        self._rows: dict[tuple[int, str], Counter[int]] = {}

    def taken(self, row: int) -> dict[HostPort, int]:
        """port -> how many pods hold it."""
        return dict(self._taken.get(row, {}))

    def take(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
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

    def drop(self, row: int) -> None:
        """Forgets everything about a row."""
        for port, count in self.taken(row).items():
            for _ in range(count):
                self.take(row, (port,), -1)

    def free(self, ports: tuple[HostPort, ...], rows: Rows, capacity: int) -> BoolArray:
        """bool[rows]: where none of the ports conflicts with one that is taken."""
        if isinstance(rows, slice):
            free = np.ones(capacity, dtype=np.bool_)
            suspects = {row for port in ports for row in self._rows.get((port.port, port.protocol), ())}
            for row in suspects:
                free[row] = not self._conflict(ports, row)
            result: BoolArray = free[rows]
            return result
        return np.array([not self._conflict(ports, row) for row in rows.tolist()], dtype=np.bool_)

    def _conflict(self, ports: tuple[HostPort, ...], row: int) -> bool:
        taken = self._taken.get(row)
        return taken is not None and any(wanted.conflicts_with(port) for wanted in ports for port in taken)


def _count(counter: Counter[K], key: K, sign: int) -> None:
    counter[key] += sign
    if counter[key] <= 0:
        del counter[key]
