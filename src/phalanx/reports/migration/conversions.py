"""Objects of ours in the place of foreign ones that nobody here reads: KAI's queues and groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.dialects.quotas.eviction_limits import MIN_RUN_TIME
from phalanx.dialects.reader import Document
from phalanx.reports.migration.findings import Verdict
from phalanx.reports.migration.foreign import Said
from phalanx.reports.migration.readers import Path

_API = "scheduling.volcano.sh/v1beta1"
_GPU = "nvidia.com/gpu"
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")
# What one of KAI's units is in thousandths of ours: of a CPU, of a byte, of a card.
_UNITS = {"cpu": ("cpu", 1), "memory": ("memory", 10**9), "gpu": (_GPU, 1000)}


def kai_queue(document: Document) -> dict[str, Any]:
    """A Queue of scheduling.volcano.sh. In KAI -1 of a limit means no limit, of a quota all there is."""
    stated = _mapping(document, "spec")
    spec: dict[str, Any] = {"reclaimable": True}
    if stated.get("parentQueue"):
        spec["parent"] = stated["parentQueue"]
    if isinstance(stated.get("priority"), int):
        spec["priority"] = max(0, stated["priority"])
    resources = _mapping(stated, "resources")
    for ours, theirs in (("deserved", "quota"), ("capability", "limit")):
        amounts = {
            name: amount
            for kind, (name, unit) in _UNITS.items()
            if (amount := _amount(_mapping(resources, kind).get(theirs), unit, name))
        }
        if amounts:
            spec[ours] = amounts
    weight = _mapping(resources, "gpu").get("overQuotaWeight")
    if isinstance(weight, int | float) and weight >= 1:
        spec["weight"] = int(weight)
    made = _head(document, "Queue", spec)
    run_times = [stated[key] for key in ("preemptMinRuntime", "reclaimMinRuntime") if stated.get(key)]
    if run_times:
        made["metadata"]["annotations"] = {MIN_RUN_TIME: str(run_times[0])}
    return made


def said_of_kai(document: Document, path: Path) -> Said | None:
    """What is said of a field of KAI's because of its value; None where it is said whatever it holds."""
    value: Any = document
    for step in path:
        value = value[step]
    if path[-1] == "overQuotaWeight":
        return _said_of_weight(document, value)
    if path[-2:] in (("gpu", "quota"), ("gpu", "limit")) and isinstance(value, float) and 0 < value < math.inf:
        lost = round(value - int(value), 3)
        ours = "deserved" if path[-1] == "quota" else "capability"
        rounded = f"{value:g} is rounded down to {int(value)}: {lost:g} of a card is lost" if lost else ""
        return (Verdict.CHANGE, f"spec.{ours}[{_GPU}], in whole cards: {rounded}") if rounded else None
    if path == ("spec", "preemptibility") and value not in _PREEMPTIBILITIES:
        words = " nor ".join(_PREEMPTIBILITIES)
        return Verdict.NOT_HONOURED, f"{value!r} is neither {words}: nothing is written for it; correct it"
    return None


def _said_of_weight(document: Document, value: object) -> Said | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Verdict.NOT_HONOURED, f"{value!r} is no weight: the new Queue has 1"
    if value == 0:
        return (
            Verdict.NOT_HONOURED,
            "0 gives a queue in KAI no part of what is over quota, and the least spec.weight here is 1; to keep it "
            "within its quota write spec.capability as high as spec.deserved",
        )
    if value != int(value) or value < 1:
        weight = max(1, int(value))
        return Verdict.NOT_HONOURED, f"weights are whole numbers of at least 1 here: {value:g} becomes {weight}"
    # A Queue of KAI that weighs all its resources alike means what one of ours does: nothing is lost.
    resources = _mapping(_mapping(document, "spec"), "resources")
    if len({repr(_mapping(resources, kind).get("overQuotaWeight")) for kind in _UNITS}) == 1:
        return Verdict.CHANGE, "spec.weight, for all resources"
    return None


def kai_group(document: Document) -> dict[str, Any]:
    """A PodGroup of scheduling.volcano.sh."""
    stated = _mapping(document, "spec")
    spec = {key: stated[key] for key in ("minMember", "queue", "priorityClassName") if stated.get(key)}
    made = _head(document, "PodGroup", spec)
    if stated.get("preemptibility") == "non-preemptible":
        made["metadata"]["labels"] = {"volcano.sh/preemptable": "false"}
    return made


CONVERSIONS: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = {
    ("scheduling.run.ai", "Queue"): kai_queue,
    ("scheduling.run.ai", "PodGroup"): kai_group,
}


def _amount(value: object, unit: int, name: str) -> str:
    """A quantity; "" for none. Parts of a card are rounded down: quotas count whole ones."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return ""
    thousandths = int(value * unit)
    if name == "cpu":
        return f"{thousandths}m"
    return str(thousandths // 1000)


def _head(document: Document, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _mapping(document, "metadata")
    place = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    return {"apiVersion": _API, "kind": kind, "metadata": place, "spec": dict(spec)}


def _mapping(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}
