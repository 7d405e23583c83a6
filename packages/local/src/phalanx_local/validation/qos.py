"""Quality-of-service class of a pod, from its cpu and memory."""

from __future__ import annotations

from typing import Any, Final

from phalanx.model.text.quantity import QuantityError, read_quantity

_COUNTED: Final = ("cpu", "memory")


def qos_class(spec: dict[str, Any]) -> str:
    """Return the QoS class of a defaulted pod spec: Guaranteed, Burstable or BestEffort. Invalid quantities count
    as 0."""
    pod_level = spec.get("resources")
    holders = [pod_level] if pod_level else [item.get("resources") for item in _containers(spec)]
    guaranteed, anything = bool(holders), False
    for resources in holders:
        requests, limits = (_amounts((resources or {}).get(side)) for side in ("requests", "limits"))
        anything = anything or any(requests) or any(limits)
        guaranteed = guaranteed and all(limits) and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for name in ("initContainers", "containers") for item in spec.get(name) or ()]


def _amounts(listed: dict[str, Any] | None) -> list[int]:
    amounts = []
    for name in _COUNTED:
        try:
            amounts.append(max(0, read_quantity((listed or {}).get(name, "0")).nano))
        except QuantityError:
            amounts.append(0)
    return amounts
