"""One advance reservation as the planner keeps it: what was granted, who uses it, and how it stands."""

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
    """Koordinator's words."""

    PENDING = "Pending"  # not granted
    WAITING = "Waiting"  # granted; its start is ahead
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"  # over
    FAILED = "Failed"  # over without having been granted, or given up


class EndReason(enum.StrEnum):
    """Why it is over."""

    SUCCEEDED = "Succeeded"
    EXPIRED = "Expired"
    UNUSED = "Unused"
    UNSCHEDULABLE = "Unschedulable"


class GrantRefusal(msgspec.Struct, frozen=True):
    """Why there is no room: how much there is, who has the rest, and when there is enough (0: nobody knows)."""

    message: str
    blockers: tuple[str, ...] = ()
    next_start: int = 0


class EndedUse(msgspec.Struct, frozen=True):
    """An occurrence that is over, and the nodes on which pods of it may be left."""

    start: int
    end: int
    nodes: tuple[str, ...]


class GrantedNode(msgspec.Struct, frozen=True):
    """What is kept on one node: amounts by resource, for so many copies (of a whole node: 1)."""

    amounts: dict[str, int]
    copies: int = 1


class AdvanceGrant:
    """`start` and `end` are those of the occurrence that is under way, or comes next. `nodes` is what was granted,
    by name, `used` what pods that use it hold of that, by node, `users` their names, `last_used` when there were
    any. `window` is what is left of it, None where nothing is kept; it is charged to `charged_to`. `lost` are the
    nodes that are not there any more. `refusal` says why there is no room, as of `refreshed_at`; `asked_at` when it
    was asked last, in the history of the cluster. `ended` are occurrences whose pods are to go.
    """

    __slots__ = (
        "asked_at",
        "charged_to",
        "end",
        "ended",
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
        self.start = self.end = 0
        self.phase = GrantPhase.PENDING
        self.reason = ""
        self.nodes: dict[str, GrantedNode] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.users: tuple[str, ...] = ()
        self.window: Window | None = None
        self.charged_to: ChargePath | None = None
        self.refusal: GrantRefusal | None = None
        self.lost: tuple[str, ...] = ()
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
        """Whether room is kept for it."""
        return self.phase in (GrantPhase.WAITING, GrantPhase.AVAILABLE)

    @property
    def over(self) -> bool:
        return self.phase in (GrantPhase.SUCCEEDED, GrantPhase.FAILED)

    @property
    def open(self) -> bool:
        """Whether its pods may come in."""
        ahead = self.phase is GrantPhase.WAITING and self.spec.flex
        return (self.phase is GrantPhase.AVAILABLE or ahead) and not self.spec.closed

    @property
    def leaves_at(self) -> int:
        """When pods that use it have to go; FOREVER where they need not."""
        return self.end if self.spec.on_end is AtEnd.EVICT and not self.spec.flex else FOREVER

    def granted_amounts(self) -> dict[str, int]:
        """By resource, over all nodes."""
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
        """What nobody uses of what is kept on a node."""
        used = self.used.get(node, {})
        return {
            name: left
            for name, amount in self.nodes[node].amounts.items()
            if (left := amount - used.get(name, 0)) > 0
        }

    def draw(self, table: NodeTable, charge_path: ChargePath | None) -> Window:
        """The window of what is left, as it is to stand now."""
        rows: list[int] = []
        vectors = []
        charged: dict[str, int] = {}
        for name in sorted(self.nodes):
            row, left = table.row(name), self.remaining(name)
            if row == NO_ROW or not table.alive[row]:
                continue
            vector = np.zeros(len(table.space), dtype=np.int64)
            for resource, amount in left.items():
                column = table.space.find(resource)
                if column is not None:
                    vector[column] = amount
            rows.append(row)
            vectors.append(vector)
            add_amounts(charged, left, 1)
        share = (AmountShare(np.array(rows, dtype=np.intp), np.stack(vectors, axis=1)),) if rows else ()
        charges = ((charge_path, tuple(sorted(charged.items()))),) if charge_path is not None and charged else ()
        return Window(self.start, self.end, (), charges, share)
