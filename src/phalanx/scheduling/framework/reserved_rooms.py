"""Reserved room of several features of the cycle, as one."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.framework.plugin_runtime import ReservedRoom


class JointRoom:
    """Room that any of several features reserves. `rooms` are in the order of the features."""

    def __init__(self, rooms: Sequence[ReservedRoom]) -> None:
        self._rooms = rooms

    @property
    def active(self) -> bool:
        return any(room.active for room in self._rooms)

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        # A room that is not active still closes all nodes to pods that can use only reserved room.
        for room in self._rooms:
            copies = room.limit_copies(pod_class, rows, copies)
        return copies

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        closed = self._rooms[0].closed_to(pod_class, rows)
        for room in self._rooms[1:]:
            closed = closed | room.closed_to(pod_class, rows)
        return closed

    def unready(self, pod_class: ClassRecord) -> str | None:
        reasons = (room.unready(pod_class) for room in self._rooms)
        return next((reason for reason in reasons if reason is not None), None)


def joint_room(rooms: Sequence[ReservedRoom]) -> ReservedRoom | None:
    """Return the reserved room of all features; None without any."""
    return JointRoom(rooms) if len(rooms) > 1 else next(iter(rooms), None)
