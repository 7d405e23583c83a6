"""Tables and documents of a defragmentation plan and its result."""

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
    """Return the output lines of a defragmentation plan: summary, moves, emptied nodes, placements, cost and
    obstacles."""
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
        lines += ["", *columns(("EMPTY NODE", "PODS TO MOVE", "OFFERS"), _empty(relocation, state))]
    if relocation.placements:
        placements = [(placement.pod, placement.node) for placement in relocation.placements]
        lines += ["", *columns(("FITS THEN", "ON"), placements)]
    if relocation.moves:
        lines += ["", cost(relocation)]
    if relocation.obstacles:
        reasons = [(obstacle.node, obstacle.pod, obstacle.reason) for obstacle in relocation.obstacles]
        lines += ["", *columns(("NODE", "POD", "REASON"), reasons)]
    if outcome is not None:
        lines += ["", *_outcome(outcome)]
    elif relocation.reached and relocation.moves:
        lines += ["", "Nothing was changed. To execute the plan: --apply"]
    return lines


def cost(relocation: Relocation) -> str:
    """Format the cost of a defragmentation plan: `Cost: 3 evictions, 1 whole gang, highest priority 0; repeated
    work: ...`."""
    plan_cost = relocation.cost
    parts = [counted(plan_cost.evictions, "eviction")]
    if plan_cost.gangs:
        parts.append(counted(plan_cost.gangs, "whole gang"))
    parts.append(f"highest priority {plan_cost.priority}")
    work = f"{plan_cost.work:.1f} hours" if plan_cost.work >= 1 else f"{plan_cost.work * 3600:.0f} seconds"
    return f"Cost: {', '.join(parts)}; repeated work: {work} of the whole cluster"


def document(relocation: Relocation, outcome: RelocationResult | None) -> dict[str, Any]:
    """Return the defragmentation plan as a document. `applied` is null if the plan was not executed."""
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
    moved_pods = Counter(move.source for move in relocation.moves)
    rows: list[tuple[str, str, str]] = []
    for name in [*relocation.freed, *relocation.free]:
        node = state.nodes.nodes[state.nodes.row(name)]
        offered = without_slots(_texts(node.allocatable)) if node is not None else {}
        rows.append((name, str(moved_pods[name]), brief(offered)))
    return rows


def _outcome(outcome: RelocationResult) -> list[str]:
    lines = [f"Evicted: {counted(len(outcome.evicted), 'pod')}"]
    if outcome.placed:
        lines += ["", *columns(("MOVED POD", "NODE"), sorted(outcome.placed.items()))]
    if outcome.closed:
        lines += ["", f"Closed to new pods: {', '.join(outcome.closed)}"]
    if outcome.failure:
        lines += ["", f"Stopped: {outcome.failure}"]
    return lines


def _texts(amounts: Requests) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in amounts}
