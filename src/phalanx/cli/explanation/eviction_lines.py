"""Lines of `phalanx why` about the evictions that a waiting pod or gang needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.reports.eviction_entries import EvictionPreview, EvictionReasons, PreviewedCost, PreviewedPod

_MAX_NAMES = 4
_MAX_NODES = 5


def eviction_lines(preview: EvictionPreview) -> Iterator[str]:
    match preview.state:
        case "Leaving":
            yield f"Waiting for evicted pods: {preview.message}"
            yield from (f"  {_departure(pod)}" for pod in preview.pods[:_MAX_NAMES])
            if len(preview.pods) > _MAX_NAMES:
                yield f"  and {len(preview.pods) - _MAX_NAMES} more"
            yield f"Reserved nodes: {_nodes(preview)}" if preview.held else f"Fits then on: {_nodes(preview)}"
        case "Due":
            yield "Would evict:"
            yield from _reasons(preview.reasons)
            yield from _cost(preview.cost)
            yield f"Would start on: {_nodes(preview)}"
            if preview.overtaken:
                yield f"Would take over the reserved room of: {_listed(preview.overtaken)}"
        case _:
            yield f"Evictions: none; {preview.message}"
            yield from _reasons(preview.reasons)
            if preview.missing:
                yield f"  even then: {preview.missing}"
            if preview.pods:
                yield from _cost(preview.cost)


def _reasons(reasons: Sequence[EvictionReasons]) -> Iterator[str]:
    width = len(str(max((len(reason.pods) for reason in reasons), default=0)))
    for reason in reasons:
        until = f" (until {reason.until})" if reason.until else ""
        yield f"  {len(reason.pods):>{width}}  {_listed(reason.pods)}: {reason.why}{until}"


def _cost(cost: PreviewedCost | None) -> Iterator[str]:
    if cost is None:
        return
    parts = [f"{cost.pods} pod" if cost.pods == 1 else f"{cost.pods} pods"]
    if cost.gangs:
        parts.append("1 gang below its minimum" if cost.gangs == 1 else f"{cost.gangs} gangs below their minimum")
    parts.append(f"highest priority {cost.priority}")
    if cost.pod_hours:
        parts.append(f"{cost.pod_hours:g} pod-hours of work lost")
    if cost.violations:
        parts.append(f"{cost.violations} PodDisruptionBudget violations")
    yield f"Cost: {', '.join(parts)}"


def _departure(pod: PreviewedPod) -> str:
    evicted = f", evicted at {pod.since}" if pod.since else ""
    until = f", grace period ends at {pod.until}" if pod.until else ""
    return f"{pod.pod} on {pod.node}{evicted}{until}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _nodes(preview: EvictionPreview) -> str:
    shown = [f"{room.node} ({room.pods})" for room in preview.rooms[:_MAX_NODES]]
    more = f" and {len(preview.rooms) - _MAX_NODES} more nodes" if len(preview.rooms) > _MAX_NODES else ""
    return f"{', '.join(shown)}{more}"
