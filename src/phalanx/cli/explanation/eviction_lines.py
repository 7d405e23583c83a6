"""What evictions do for something that waits, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.reports.eviction_preview import EvictionPreview, EvictionReasons, PreviewedCost, PreviewedPod

_NAMED = 4
_ROOMS = 5


def eviction_lines(found: EvictionPreview) -> Iterator[str]:
    match found.state:
        case "Leaving":
            yield f"Waits for others to leave: {found.message}"
            yield from (f"  {_departure(pod)}" for pod in found.pods[:_NAMED])
            if len(found.pods) > _NAMED:
                yield f"  and {len(found.pods) - _NAMED} more"
            yield f"Room is held on {_rooms(found)}" if found.held else f"It fits on {_rooms(found)} then"
        case "Due":
            yield "Who would go, and why:"
            yield from _reasons(found.reasons)
            yield from _cost(found.cost)
            yield f"It would start on {_rooms(found)}"
            if found.overtaken:
                yield f"It would take over the room that is held for {_some(found.overtaken)}"
        case _:
            yield f"Evictions do not help: {found.message}"
            yield from _reasons(found.reasons)
            if found.missing:
                yield f"  then, too: {found.missing}"
            if found.pods:
                yield from _cost(found.cost)


def _reasons(reasons: Sequence[EvictionReasons]) -> Iterator[str]:
    width = len(str(max((len(reason.pods) for reason in reasons), default=0)))
    for reason in reasons:
        until = f" (until {reason.until})" if reason.until else ""
        yield f"  {len(reason.pods):>{width}}  {_some(reason.pods)}: {reason.why}{until}"


def _cost(cost: PreviewedCost | None) -> Iterator[str]:
    if cost is None:
        return
    parts = [f"{cost.pods} pod" if cost.pods == 1 else f"{cost.pods} pods"]
    if cost.gangs:
        parts.append(
            "1 gang would lose its minimum" if cost.gangs == 1 else f"{cost.gangs} gangs would lose their minima"
        )
    parts.append(f"highest priority {cost.priority}")
    if cost.pod_hours:
        parts.append(f"{cost.pod_hours:g} pod-hours of work lost")
    if cost.violations:
        parts.append(f"{cost.violations} against a PodDisruptionBudget")
    yield f"What it would cost: {', '.join(parts)}"


def _departure(pod: PreviewedPod) -> str:
    told = f", told to leave at {pod.since}" if pod.since else ""
    until = f", has until {pod.until}" if pod.until else ""
    return f"{pod.pod} on {pod.node}{told}{until}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _rooms(found: EvictionPreview) -> str:
    shown = [f"{room.node} ({room.pods})" for room in found.rooms[:_ROOMS]]
    more = f" and {len(found.rooms) - _ROOMS} more nodes" if len(found.rooms) > _ROOMS else ""
    return f"{', '.join(shown)}{more}"
