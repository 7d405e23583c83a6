"""`kubectl get` columns of pods."""

from __future__ import annotations

from typing import Any

from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.printers.base import AGE, NAME, NONE, Printer, age, column, since

_COLUMNS = (
    NAME,
    column("Ready"),
    column("Status"),
    column("Restarts"),
    AGE,
    column("IP", priority=1),
    column("Node", priority=1),
    column("Nominated Node", priority=1),
    column("Readiness Gates", priority=1),
)


def _cells(pod: Json, now: float) -> list[Any]:
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    ready, total = _ready(spec, status)
    return [
        metadata(pod).get("name", ""),
        f"{ready}/{total}",
        reason(pod),
        _restarts(status, now),
        age(pod, now),
        text(status.get("podIP")) or NONE,
        text(spec.get("nodeName")) or NONE,
        text(status.get("nominatedNodeName")) or NONE,
        _gates(spec, status),
    ]


POD_PRINTER = Printer(_COLUMNS, _cells)


def _sidecars(spec: Json) -> set[str]:
    return {
        text(item.get("name"))
        for item in map(mapping, sequence(spec.get("initContainers")))
        if item.get("restartPolicy") == "Always"
    }


def _ready(spec: Json, status: Json) -> tuple[int, int]:
    sidecars = _sidecars(spec)
    total = len(sequence(spec.get("containers"))) + len(sidecars)
    ready = sum(
        item.get("ready") is True and "running" in mapping(item.get("state"))
        for item in map(mapping, sequence(status.get("containerStatuses")))
    )
    ready += sum(
        item.get("ready") is True
        for item in map(mapping, sequence(status.get("initContainerStatuses")))
        if text(item.get("name")) in sidecars
    )
    return ready, total


def _restarts(status: Json, now: float) -> str:
    statuses = [mapping(item) for item in sequence(status.get("containerStatuses"))]
    count = sum(int(item.get("restartCount") or 0) for item in statuses)
    ends = [mapping(mapping(item.get("lastState")).get("terminated")).get("finishedAt") for item in statuses]
    times = [(time, end) for end in ends if (time := parse_timestamp(end)) is not None]
    if count and times:
        return f"{count} ({since(max(times)[1], now)} ago)"
    return str(count)


def reason(pod: Json) -> str:
    """Return the text of a pod's STATUS column: the phase, or a more specific reason."""
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    shown = text(status.get("reason")) or text(status.get("phase")) or "Unknown"
    if any(
        mapping(item).get("type") == "PodScheduled" and mapping(item).get("reason") == "SchedulingGated"
        for item in sequence(status.get("conditions"))
    ):
        shown = "SchedulingGated"
    initial = _init_reason(spec, status)
    if initial:
        shown = initial
    else:
        shown = _container_reason(status, shown)
    if "deletionTimestamp" in metadata(pod):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return shown


def _init_reason(spec: Json, status: Json) -> str:
    total = len(sequence(spec.get("initContainers")))
    sidecars = _sidecars(spec)
    for index, item in enumerate(map(mapping, sequence(status.get("initContainerStatuses")))):
        state = mapping(item.get("state"))
        terminated, waiting = mapping(state.get("terminated")), mapping(state.get("waiting"))
        if "terminated" in state and terminated.get("exitCode", 0) == 0:
            continue
        if text(item.get("name")) in sidecars and item.get("started") is True:
            continue
        if "terminated" in state:
            return "Init:" + (_ended(terminated))
        waits = text(waiting.get("reason"))
        if waits and waits != "PodInitializing":
            return "Init:" + waits
        return f"Init:{index}/{total}"
    return ""


def _container_reason(status: Json, shown: str) -> str:
    running = False
    for item in reversed([mapping(found) for found in sequence(status.get("containerStatuses"))]):
        state = mapping(item.get("state"))
        waits = text(mapping(state.get("waiting")).get("reason"))
        if waits:
            shown = waits
        elif "terminated" in state:
            shown = _ended(mapping(state.get("terminated")))
        elif item.get("ready") is True and "running" in state:
            running = True
    if shown == "Completed" and running:
        ready = any(
            mapping(item).get("type") == "Ready" and mapping(item).get("status") == "True"
            for item in sequence(status.get("conditions"))
        )
        shown = "Running" if ready else "NotReady"
    return shown


def _ended(terminated: Json) -> str:
    reason = text(terminated.get("reason"))
    if reason:
        return reason
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(spec: Json, status: Json) -> str:
    gates = [mapping(item).get("conditionType") for item in sequence(spec.get("readinessGates"))]
    if not gates:
        return NONE
    true = {
        mapping(item).get("type")
        for item in sequence(status.get("conditions"))
        if mapping(item).get("status") == "True"
    }
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"
