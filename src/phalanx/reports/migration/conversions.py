"""Conversion of KAI's queues and PodGroups, which Phalanx does not read, to objects that it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from phalanx.admission.fields import mapping
from phalanx.dialects.pods.evictability import PREEMPTABLE
from phalanx.dialects.quotas.eviction_limits import MIN_RUN_TIME
from phalanx.dialects.reader import Document
from phalanx.model.account import ROOT_QUEUE
from phalanx.model.text.decoding import quoted
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict
from phalanx.reports.migration.foreign import Said
from phalanx.reports.migration.readers import Path, spelled

_API = "scheduling.volcano.sh/v1beta1"
_GPU = "nvidia.com/gpu"
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")
# Amounts of KAI in Phalanx's thousandths: of a CPU, of a byte, of a GPU.
_UNITS = {"cpu": ("cpu", 1), "memory": ("memory", 10**9), "gpu": (_GPU, 1000)}
_OURS = {"quota": "deserved", "limit": "capability"}
_UNLIMITED = -1


def kai_queue(document: Document) -> dict[str, Any]:
    """Convert a KAI queue to a Queue of scheduling.volcano.sh.

    In KAI, -1 as a limit means unlimited, -1 as a quota means everything.
    """
    stated = mapping(document.get("spec"))
    spec: dict[str, Any] = {"reclaimable": True}
    if stated.get("parentQueue"):
        spec["parent"] = queue_name(stated["parentQueue"])
    if _is_whole(stated.get("priority")):
        spec["priority"] = max(0, stated["priority"])
    resources = mapping(stated.get("resources"))
    for theirs, ours in _OURS.items():
        amounts = {
            name: amount
            for kind, (name, unit) in _UNITS.items()
            if (amount := _amount(mapping(resources.get(kind)).get(theirs), unit, name))
        }
        if amounts:
            spec[ours] = amounts
    weight = mapping(resources.get("gpu")).get("overQuotaWeight")
    if isinstance(weight, int | float) and weight >= 1:
        spec["weight"] = int(weight)
    made = _head(document, "Queue", spec)
    if "name" in made["metadata"]:
        made["metadata"]["name"] = queue_name(made["metadata"]["name"])
    run_times = [stated[key] for key in ("preemptMinRuntime", "reclaimMinRuntime") if stated.get(key)]
    if run_times:
        made["metadata"]["annotations"] = {MIN_RUN_TIME: str(run_times[0])}
    return made


def said_of_kai(document: Document, path: Path) -> Said | None:
    """Return the migration finding for the value of a KAI field; None if the finding is independent of the
    value."""
    value: Any = document
    for step in path:
        value = value[step]
    if path[-1] == "overQuotaWeight":
        return _said_of_weight(document, value)
    if path[:2] == ("spec", "resources") and path[-1] in _OURS:
        return _said_of_amount(str(path[-2]), str(path[-1]), value)
    if path == ("spec", "priority"):
        return _said_of_priority(value)
    if path == ("spec", "preemptibility"):
        return _said_of_preemptibility(value)
    if path in (("spec", "parentQueue"), ("spec", "queue")) and queue_name(value) != value:
        ours = f"spec.{'parent' if path[-1] == 'parentQueue' else 'queue'}"
        return MigrationVerdict.CHANGE, f"{ours}: {queue_name(value)}, the name of the new Queue"
    return None


def renamed_queue(document: Document, made: Iterable[Document]) -> Iterator[FieldFinding]:
    """Yield a finding for a KAI queue that gets another name, because Phalanx reserves its name."""
    name = mapping(document.get("metadata")).get("name")
    for manifest in made:
        ours = manifest["metadata"].get("name")
        if ours != name:
            message = f"queue {name} is reserved in Phalanx: the new Queue has the name {ours}"
            yield FieldFinding("metadata.name", MigrationVerdict.CHANGE, message)


def queue_name(name: Any) -> Any:
    """Return the name in Phalanx of a KAI queue. The queue name `root` is reserved and is replaced."""
    return f"kai-{ROOT_QUEUE}" if name == ROOT_QUEUE else name


def _said_of_amount(kind: str, field: str, value: object) -> Said | None:
    name = _UNITS[kind][0] if kind in _UNITS else kind
    ours = spelled(("spec", _OURS[field], name))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return MigrationVerdict.NOT_HONOURED, f"{quoted(value)} is not a number and is left out; correct it"
    if value == _UNLIMITED and field == "limit":
        return MigrationVerdict.CHANGE, f"no limit: {ours} is left out"
    if value == _UNLIMITED:
        return (
            MigrationVerdict.CHANGE,
            f"Phalanx has no value for -1 (everything): write {ours} as large as the parent queue has; "
            "without it a queue counts as full under the plugin capacity (docs/policy.md)",
        )
    if value < 0:
        return (
            MigrationVerdict.NOT_HONOURED,
            f"{value:g} is negative and not -1, so it is left out; correct it",
        )
    lost = round(value - int(value), 3)
    if kind == "gpu" and lost:
        rounded = f"{value:g} is rounded down to {int(value)}: {lost:g} of a GPU is lost"
        return MigrationVerdict.CHANGE, f"{ours}, in whole GPUs: {rounded}"
    return None


def _said_of_priority(value: object) -> Said | None:
    if not _is_whole(value):
        return MigrationVerdict.NOT_HONOURED, f"{quoted(value)} is not an integer and is left out; correct it"
    if isinstance(value, int) and value < 0:
        return MigrationVerdict.NOT_HONOURED, f"the minimum priority of a Queue is 0: {value} becomes 0"
    return None


def _said_of_preemptibility(value: object) -> Said | None:
    if value not in _PREEMPTIBILITIES:
        words = " nor ".join(_PREEMPTIBILITIES)
        return MigrationVerdict.NOT_HONOURED, f"{quoted(value)} is neither {words}: it is left out; correct it"
    if value == _PREEMPTIBILITIES[0]:
        return (
            MigrationVerdict.CHANGE,
            f"nothing to write: pods without the label {PREEMPTABLE} are preemptible",
        )
    return None


def _said_of_weight(document: Document, value: object) -> Said | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MigrationVerdict.NOT_HONOURED, f"{quoted(value)} is not a weight: the new Queue has weight 1"
    if value == 0:
        return (
            MigrationVerdict.NOT_HONOURED,
            "weight 0 excludes a KAI queue from over-quota capacity; the minimum spec.weight is 1. To limit the "
            "queue to its quota, set spec.capability equal to spec.deserved",
        )
    if value != int(value) or value < 1:
        weight = max(1, int(value))
        return (
            MigrationVerdict.NOT_HONOURED,
            f"weights are integers of at least 1: {value:g} becomes {weight}",
        )
    # KAI weights that are equal for all resources convert without loss.
    resources = mapping(mapping(document.get("spec")).get("resources"))
    if len({repr(mapping(resources.get(kind)).get("overQuotaWeight")) for kind in _UNITS}) == 1:
        return MigrationVerdict.CHANGE, "spec.weight, for all resources"
    return None


def kai_group(document: Document) -> dict[str, Any]:
    """Convert a KAI PodGroup to a PodGroup of scheduling.volcano.sh."""
    stated = mapping(document.get("spec"))
    spec = {key: stated[key] for key in ("minMember", "queue", "priorityClassName") if stated.get(key)}
    if "queue" in spec:
        spec["queue"] = queue_name(spec["queue"])
    made = _head(document, "PodGroup", spec)
    if stated.get("preemptibility") == "non-preemptible":
        made["metadata"]["labels"] = {PREEMPTABLE: "false"}
    return made


CONVERSIONS: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = {
    ("scheduling.run.ai", "Queue"): kai_queue,
    ("scheduling.run.ai", "PodGroup"): kai_group,
}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _amount(value: object, unit: int, name: str) -> str:
    """Convert an amount of a KAI queue to a quantity; "" for none. Fractions of a GPU are rounded down because
    quotas count whole GPUs."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return ""
    thousandths = int(value * unit)
    if name == "cpu":
        return f"{thousandths}m"
    return str(thousandths // 1000)


def _head(document: Document, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = mapping(document.get("metadata"))
    place = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    return {"apiVersion": _API, "kind": kind, "metadata": place, "spec": dict(spec)}
