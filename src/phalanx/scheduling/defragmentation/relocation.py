"""Goals, limits and results of plans that move pods to other nodes."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.resources import Requests


class EmptyNodes(msgspec.Struct, frozen=True):
    """Goal: `count` nodes without pods other than DaemonSet and static pods, among `eligible` if given.

    Nodes that are already empty count.
    """

    count: int
    eligible: frozenset[str] | None = None


class RoomFor(msgspec.Struct, frozen=True):
    """Goal: enough free resources for the quorum of a waiting gang, or for a waiting pod (by uid)."""

    target: GangKey | str
    name: str


Goal = EmptyNodes | RoomFor


class RelocationLimits(msgspec.Struct, frozen=True):
    """Largest number of moved pods, in all and of one gang.

    Gangs without surplus members move only as a whole, and only with `whole_gangs`.
    """

    evictions: int = 50
    per_gang: int | None = None
    whole_gangs: bool = False


def counted(number: int, what: str) -> str:
    """Return a count with its noun: `1 pod`, `2 pods`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Move(msgspec.Struct, frozen=True):
    """Move of a pod from node `source`: an equal pod fits on `target`.

    `gang` is "" for a pod on its own; `whole` gangs move with all members.
    """

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
    """Reason why a node was not emptied, or no room was made there: its first pod that stays."""

    node: str
    pod: str
    reason: str


class RelocationCost(msgspec.Struct, frozen=True, order=True):
    """Cost of a relocation: compared from left to right.

    `gangs` is the number of gangs that move as a whole; `work` is lost work in hours times the pod's share of the
    cluster.
    """

    evictions: int = 0
    gangs: int = 0
    priority: int = -(2**31)
    work: float = 0.0


class Placement(msgspec.Struct, frozen=True):
    pod: str
    node: str


class Relocation(msgspec.Struct):
    """Result of a search.

    If the goal is `reached`, `waves` are executed one after the other, each once all pods of the previous wave run
    again. Meanwhile no pod can be placed on `held` nodes, so that no moved pod returns. `freed` nodes are empty in
    the end, beside nodes that were already `free`. `placements` are the nodes of the preemptor.
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
