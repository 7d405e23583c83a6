"""What is asked for, and the answer: who moves from where to where, and what becomes free."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.resources import Requests


class EmptyNodes(msgspec.Struct, frozen=True):
    """So many nodes without pods (but those that belong to their node), among `eligible` if that is given. Nodes
    that are empty already count."""

    count: int
    eligible: frozenset[str] | None = None


class RoomFor(msgspec.Struct, frozen=True):
    """Room for a gang's quorum, or for a pod on its own (by uid), that waits."""

    target: GangKey | str
    name: str


Goal = EmptyNodes | RoomFor


class RelocationLimits(msgspec.Struct, frozen=True):
    """At most so many pods move, and so many of one gang. Gangs that can spare nobody move only as a whole, and
    only with `whole_gangs`."""

    evictions: int = 50
    per_gang: int | None = None
    whole_gangs: bool = False


def counted(number: int, what: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Move(msgspec.Struct, frozen=True):
    """A pod leaves `source`, and another like it fits on `target`. `gang` is "" for a pod on its own; `whole` gangs
    move with all their members."""

    uid: str
    namespace: str
    name: str
    source: str
    target: str
    requests: Requests = ()
    priority: int = 0
    gang: str = ""
    whole: bool = False


class RelocationObstacle(msgspec.Struct, frozen=True):
    """Why a node was not emptied, or no room was made there: about its first pod that stays."""

    node: str
    pod: str
    reason: str


class RelocationCost(msgspec.Struct, frozen=True, order=True):
    """Compared from left to right. `gangs` move as a whole; `work` is what is done again, in hours times the part
    of the cluster that a pod holds."""

    evictions: int = 0
    gangs: int = 0
    priority: int = -(2**31)
    work: float = 0.0


class Placement(msgspec.Struct, frozen=True):
    pod: str
    node: str


class Relocation(msgspec.Struct):
    """`reached` tells whether the goal can be reached; then `waves` are to be carried out one after the other, each
    when the pods of the one before run again. Meanwhile `held` nodes take nobody, so that nobody comes back.
    `freed` nodes are empty in the end, beside those that were `free` before; `placements` are where the preemptor
    fits.
    """

    goal: Goal
    reached: bool
    message: str
    waves: list[list[Move]] = []
    held: list[str] = []
    freed: list[str] = []
    free: list[str] = []
    placements: list[Placement] = []
    cost: RelocationCost = RelocationCost()
    obstacles: list[RelocationObstacle] = []
    remarks: list[str] = []

    @property
    def moves(self) -> list[Move]:
        return [move for wave in self.waves for move in wave]
