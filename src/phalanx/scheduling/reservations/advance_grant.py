"""State of one advance reservation in the planner: its grant, its users and its phase."""

from __future__ import annotations

import enum

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.node_table import NO_ROW, NodeTable
from phalanx.model.advance_reservation import AdvanceReservation, AtEnd
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import AmountShare, Window


class GrantPhase(enum.StrEnum):
    """Phases as in Koordinator."""

    PENDING = "Pending"  # not granted
    WAITING = "Waiting"  # granted; starts later
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"  # ended
    FAILED = "Failed"  # ended without a grant, or released early


class EndReason(enum.StrEnum):
    """Reason of the end of an advance reservation."""

    SUCCEEDED = "Succeeded"
    EXPIRED = "Expired"
    UNUSED = "Unused"
    UNSCHEDULABLE = "Unschedulable"


class GrantRefusal(msgspec.Struct, frozen=True):
    """Reason why there is no room: the available copies, the blockers, and the next possible start (0: unknown)."""

    message: str
    blockers: tuple[str, ...] = ()
    next_start: int = 0


class EndedUse(msgspec.Struct, frozen=True):
    """Ended occurrence, and the nodes that can still have pods of it."""

    start: int
    end: int
    nodes: tuple[str, ...]


class GrantedNode(msgspec.Struct, frozen=True):
    """Reserved amounts on one node by resource, for `copies` copies (1 for a whole node)."""

    amounts: dict[str, int]
    copies: int = 1


class AdvanceGrant:
    """Advance reservation with its grant.

    - `start`, `end`: present or next occurrence; `held_until`: end of the reserved room, later than `end` if its
      pods can stay: no start is promised on room that they can still occupy.
    - `nodes`: granted room by node name; `used`: amounts of it by node that pods use; `users`: names of these pods;
      `last_used`: last time with any.
    - `window`: unused room, None where none is reserved; it is charged to `charged_to`.
    - `lost`: granted nodes that no longer exist, and unused ones that close for maintenance before its end.
    - `closed`: granted nodes that close for maintenance before its end, with the cause.
    - `refusal`: reason why there is no room, as of `refreshed_at`; `asked_at`: cluster version at the last request.
    - `ended`: occurrences whose pods are evicted.
    """

    __slots__ = (
        "asked_at",
        "charged_to",
        "closed",
        "end",
        "ended",
        "held_until",
        "last_used",
        "lost",
        "nodes",
        "phase",
        "reason",
        "refreshed_at",
        "refusal",
        "spec",
        "start",
        "used",
        "users",
        "window",
    )

    def __init__(self, spec: AdvanceReservation) -> None:
        self.spec = spec
        self.start = self.end = self.held_until = 0
        self.phase = GrantPhase.PENDING
        self.reason = ""
        self.nodes: dict[str, GrantedNode] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.users: tuple[str, ...] = ()
        self.window: Window | None = None
        self.charged_to: ChargePath | None = None
        self.refusal: GrantRefusal | None = None
        self.lost: tuple[str, ...] = ()
        self.closed: dict[str, str] = {}
        self.ended: tuple[EndedUse, ...] = ()
        self.last_used = 0
        self.asked_at: tuple[int, ...] = ()
        self.refreshed_at = 0.0

    def __repr__(self) -> str:
        return f"AdvanceGrant({self.spec.name}, {self.phase}, {self.start}-{self.end})"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def granted(self) -> bool:
        """Whether room is reserved."""
        return self.phase in (GrantPhase.WAITING, GrantPhase.AVAILABLE)

    @property
    def over(self) -> bool:
        return self.phase in (GrantPhase.SUCCEEDED, GrantPhase.FAILED)

    @property
    def open(self) -> bool:
        """Whether its pods can be placed."""
        ahead = self.phase is GrantPhase.WAITING and self.spec.flex
        return (self.phase is GrantPhase.AVAILABLE or ahead) and not self.spec.closed

    @property
    def leaves_at(self) -> int:
        """The time at which pods that use it are evicted; FOREVER if they are not."""
        return self.end if self.spec.on_end is AtEnd.EVICT and not self.spec.flex else FOREVER

    def granted_amounts(self) -> dict[str, int]:
        """Return the granted amounts by resource over all nodes."""
        total: dict[str, int] = {}
        for node in self.nodes.values():
            add_amounts(total, node.amounts, 1)
        return total

    def used_amounts(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for amounts in self.used.values():
            add_amounts(total, amounts, 1)
        return total

    def remaining(self, node: str) -> dict[str, int]:
        """Return the unused amounts of the reserved room on a node."""
        used = self.used.get(node, {})
        return {
            name: unused
            for name, amount in self.nodes[node].amounts.items()
            if (unused := amount - used.get(name, 0)) > 0
        }

    def unused_window(self, table: NodeTable, charge_path: ChargePath | None) -> Window:
        """Return a window of the unused room."""
        rows: list[int] = []
        vectors = []
        charged: dict[str, int] = {}
        for name in sorted(self.nodes):
            row, unused = table.row(name), self.remaining(name)
            if row == NO_ROW or not table.alive[row]:
                continue
            vector = np.zeros(len(table.space), dtype=np.int64)
            for resource, amount in unused.items():
                column = table.space.find(resource)
                if column is not None:
                    vector[column] = amount
            rows.append(row)
            vectors.append(vector)
            add_amounts(charged, unused, 1)
        share = (AmountShare(np.array(rows, dtype=np.intp), np.stack(vectors, axis=1)),) if rows else ()
        charges = ((charge_path, tuple(sorted(charged.items()))),) if charge_path is not None and charged else ()
        return Window(self.start, max(self.end, self.held_until), (), charges, share)
