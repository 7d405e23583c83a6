"""Verdict on a gang that waits for nodes from an autoscaler."""

from __future__ import annotations

from collections import Counter

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.resources import PODS, Requests
from phalanx.model.text.moments import shown_moment
from phalanx.model.text.quantity import format_quantity
from phalanx.model.verdict import PodShape, Verdict

WAITING_FOR_NODES = "WaitingForNodes"


def waiting_for_nodes(gang: GangRecord, refusal: Verdict, autoscaler: str, until: int) -> Verdict:
    """Return the verdict on a gang with an open request for nodes, which `refusal` explains with the present
    nodes."""
    shapes = pod_shapes(gang)
    return msgspec.structs.replace(
        refusal,
        code=WAITING_FOR_NODES,
        message=f"waiting for nodes: {shapes_text(shapes)}; {refusal.message}",
        change=f"wait; if no node comes, check the log and the node pools of {autoscaler} (the request ends at "
        f"{shown_moment(until)})",
        pod_shapes=shapes,
    )


def pod_shapes(gang: GangRecord) -> tuple[PodShape, ...]:
    """Return the requests of the pending members of a gang, the most frequent ones first."""
    counts: Counter[Requests] = Counter(member.pod_class.spec.requests for member in gang.pending.values())
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(
        PodShape(count, tuple((name, format_quantity(amount, name)) for name, amount in requests if name != PODS))
        for requests, count in ordered
    )


def shapes_text(shapes: tuple[PodShape, ...]) -> str:
    """Return shapes as `2 × 8 nvidia.com/gpu`: of pods with devices only these, of other pods all amounts."""
    return ", ".join(f"{shape.count} × {_amounts(shape.requests)}" for shape in shapes)


def _amounts(requests: tuple[tuple[str, str], ...]) -> str:
    devices = [(name, quantity) for name, quantity in requests if "/" in name]
    texts = [f"{quantity} {name}" for name, quantity in devices or requests]
    if not texts:
        return "1 pod"
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
