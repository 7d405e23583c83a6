"""A relocation as people read it, and as data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from phalanx.cli.columns import brief, columns, without_slots
from phalanx.model.resources import Requests
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.defragmentation.relocation import EmptyNodes, Relocation, counted

if TYPE_CHECKING:
    from phalanx.cli.nodes.relocation import RelocationResult
    from phalanx.cluster.state import ClusterState


def table(relocation: Relocation, outcome: RelocationResult | None, state: ClusterState) -> list[str]:
    """The sentence first, then who moves, what becomes free, what it costs, and what is in the way."""
    lines = [relocation.message[:1].upper() + relocation.message[1:]]
    if relocation.moves:
        rows = [
            (
                f"{move.namespace}/{move.name}",
                move.gang + (" (whole)" if move.whole else ""),
                move.source,
                move.target,
                brief(_texts(move.requests)),
            )
            for move in relocation.moves
        ]
        lines += ["", *columns(("POD", "GANG", "FROM", "FITS ON", "REQUESTS"), rows)]
    if relocation.freed or relocation.free:
        lines += ["", *columns(("EMPTY NODE", "MOVE AWAY", "OFFERS"), _empty(relocation, state))]
    if relocation.placements:
        found = [(placement.pod, placement.node) for placement in relocation.placements]
        lines += ["", *columns(("THEN FITS", "ON"), found)]
    if relocation.moves:
        lines += ["", cost(relocation)]
    if relocation.obstacles:
        reasons = [(obstacle.node, obstacle.pod, obstacle.reason) for obstacle in relocation.obstacles]
        lines += ["", *columns(("NODE", "POD", "WHY NOT"), reasons)]
    if outcome is not None:
        lines += ["", *_outcome(outcome)]
    elif relocation.reached and relocation.moves:
        lines += ["", "Nothing was changed; --apply carries it out."]
    return lines


def cost(relocation: Relocation) -> str:
    """`Cost: 3 evictions, 1 gang as a whole, highest priority 0; work done again: ...`."""
    found = relocation.cost
    parts = [counted(found.evictions, "eviction")]
    if found.gangs:
        parts.append(f"{counted(found.gangs, 'gang')} as a whole")
    parts.append(f"highest priority {found.priority}")
    work = f"{found.work:.1f} hours" if found.work >= 1 else f"{found.work * 3600:.0f} seconds"
    return f"Cost: {', '.join(parts)}; work done again: {work} of the whole cluster"


def document(relocation: Relocation, outcome: RelocationResult | None) -> dict[str, Any]:
    """The same for programs. `applied` is null where nothing was carried out."""
    goal = relocation.goal
    return {
        "goal": {"nodes": goal.count} if isinstance(goal, EmptyNodes) else {"for": goal.name},
        "reached": relocation.reached,
        "message": relocation.message,
        "moves": [
            {
                "namespace": move.namespace,
                "name": move.name,
                "uid": move.uid,
                "gang": move.gang,
                "whole": move.whole,
                "priority": move.priority,
                "from": move.source,
                "to": move.target,
                "wave": number,
                "requests": _texts(move.requests),
            }
            for number, wave in enumerate(relocation.waves, start=1)
            for move in wave
        ],
        "freed": relocation.freed,
        "free": relocation.free,
        "held": relocation.held,
        "placements": msgspec.to_builtins(relocation.placements),
        "cost": msgspec.to_builtins(relocation.cost),
        "obstacles": msgspec.to_builtins(relocation.obstacles),
        "applied": msgspec.to_builtins(outcome),
    }


def _empty(relocation: Relocation, state: ClusterState) -> list[tuple[str, str, str]]:
    leaving = Counter(move.source for move in relocation.moves)
    found: list[tuple[str, str, str]] = []
    for name in [*relocation.freed, *relocation.free]:
        node = state.nodes.nodes[state.nodes.row(name)]
        offered = without_slots(_texts(node.allocatable)) if node is not None else {}
        found.append((name, str(leaving[name]), brief(offered)))
    return found


def _outcome(outcome: RelocationResult) -> list[str]:
    lines = [f"Evicted: {counted(len(outcome.evicted), 'pod')}"]
    if outcome.placed:
        lines += ["", *columns(("RUNS NOW", "ON"), sorted(outcome.placed.items()))]
    if outcome.closed:
        lines += ["", f"Closed to new pods: {', '.join(outcome.closed)}"]
    if outcome.failure:
        lines += ["", f"It came to a halt: {outcome.failure}"]
    return lines


def _texts(amounts: Requests) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in amounts}
