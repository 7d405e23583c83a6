"""Priority classes, and the admission that resolves a class name to a priority on pods and pod groups."""

from __future__ import annotations

from typing import Final

from phalanx_local.errors import Qualified, forbidden
from phalanx_local.objects import Json, mapping, metadata, text
from phalanx_local.strategies.base import RestStrategy, Write

SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClassStrategy(RestStrategy):
    """Strategy of PriorityClasses: value and preemptionPolicy are immutable."""

    counts_generation = True

    def prepare_create(self, obj: Json, write: Write) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)
        name = text(metadata(obj).get("name"))
        if obj.get("globalDefault") is True:
            for stored in write.cluster.all("scheduling.k8s.io", "priorityclasses"):
                if stored.get("globalDefault") is True:
                    default_name = stored["metadata"]["name"]
                    message = (
                        f"PriorityClass {default_name} is already marked as default. Only one default can exist"
                    )
                    raise forbidden(_PRIORITY_CLASSES, name, message)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


class _Named:
    def __init__(self, group: str, plural: str, kind: str) -> None:
        self.group, self.plural, self.kind = group, plural, kind


_PRIORITY_CLASSES: Final = _Named("scheduling.k8s.io", "priorityclasses", "PriorityClass")
_PODS: Final = _Named("", "pods", "Pod")


def admit_priority(obj: Json, write: Write, resource: Qualified = _PODS) -> None:
    """Resolve spec.priorityClassName to spec.priority and preemptionPolicy, like the Priority plugin.

    Raises 403 if the class does not exist or the given priority differs from the class's.
    """
    spec = mapping(obj.get("spec"))
    name = text(spec.get("priorityClassName"))
    priority, policy = 0, "PreemptLowerPriority"
    chosen: Json | None = None
    if name:
        chosen = write.cluster.find("scheduling.k8s.io", "priorityclasses", "", name)
        if chosen is None and name not in SYSTEM_CLASSES:
            raise forbidden(resource, _name(obj), f"no PriorityClass with name {name} was found")
        if chosen is None:
            priority = SYSTEM_CLASSES[name]
    else:
        chosen = default_class(write)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    if chosen is not None:
        priority = int(chosen.get("value", 0))
        policy = text(chosen.get("preemptionPolicy")) or policy
    given = spec.get("priority")
    if given is not None and given != priority:
        why = (
            f"the integer value of priority ({given}) must not be provided in {resource.kind.lower()} spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(resource, _name(obj), why)
    spec["priority"] = priority
    if resource is _PODS:
        asked = spec.get("preemptionPolicy")
        if asked is not None and asked != policy:
            why = (
                f"the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise forbidden(resource, _name(obj), why)
        spec["preemptionPolicy"] = policy


def default_class(write: Write) -> Json | None:
    """Return the PriorityClass marked globalDefault with the lowest value; None if there is none."""
    classes = [
        item
        for item in write.cluster.all("scheduling.k8s.io", "priorityclasses")
        if item.get("globalDefault") is True
    ]
    return min(classes, key=lambda item: (item.get("value", 0), item["metadata"]["name"]), default=None)


def _name(obj: Json) -> str:
    meta = mapping(obj.get("metadata"))
    return text(meta.get("name")) or text(meta.get("generateName"))
