"""Requirements of other projects' definitions on a status, by release: facts, in our own words."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from phalanx.cli.installation.manifests import definitions

_QUANTITIES = {"additionalProperties": {"x-kubernetes-int-or-string": True}, "type": "object"}
_TEXT, _TIME = {"type": "string"}, {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "format": "int32"}
_CONDITION_FIELDS = dict.fromkeys(("message", "reason", "status", "transitionID", "type"), _TEXT)
_CONDITIONS = {
    "type": "array",
    "items": {"type": "object", "properties": {**_CONDITION_FIELDS, "lastTransitionTime": _TIME}},
}
_RESERVATION = {
    "type": "object",
    "properties": {"nodes": {"type": "array", "items": _TEXT}, "resource": _QUANTITIES},
}
_MEMBERS = ("running", "succeeded", "failed")
_OCCUPIED = {"phase": _TEXT, "occupiedBy": _TEXT, "scheduleStartTime": _TIME}


def _counts(*names: str, least: int | None = None) -> dict[str, Any]:
    return {name: _COUNT if least is None else {**_COUNT, "minimum": least} for name in names}


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


@cache
def _definitions_by_name() -> dict[str, dict[str, Any]]:
    """Reading the files takes half a second."""
    return {each["metadata"]["name"]: each for each in definitions()}


@dataclass(frozen=True)
class Shape:
    """The status of one kind since a release: its fields and the required ones.

    `apart` is set for a subresource. Where it `keeps` unknown fields, all content is stored: from before
    pruning.
    """

    name: str
    since: str
    apart: bool
    fields: dict[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    keeps: bool = False

    @property
    def id(self) -> str:
        return f"{self.name} of {self.since}"

    def status(self) -> dict[str, Any]:
        """Return the structural schema."""
        found: dict[str, Any] = {"type": "object", "properties": self.fields}
        if self.required:
            found["required"] = list(self.required)
        if self.keeps:
            found["x-kubernetes-preserve-unknown-fields"] = True
        return found

    def ours(self) -> dict[str, Any]:
        """Our definition of the kind."""
        return copy.deepcopy(_definitions_by_name()[self.name])

    def definition(self) -> dict[str, Any]:
        """Our definition of the kind, with this status."""
        made = self.ours()
        (version,) = made["spec"]["versions"]
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = self.status()
        version["subresources"] = {"status": {}} if self.apart else {}
        return made


_VOLCANO_GROUP = {"conditions": _CONDITIONS, "phase": _TEXT, **_counts(*_MEMBERS)}
_QUEUE_COUNTS = ("pending", "inqueue", "running", "unknown")
_VOLCANO_QUEUE = {"reservation": _RESERVATION, "state": _TEXT, **_counts(*_QUEUE_COUNTS)}
_GROUP, _QUEUE = "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"
_SIGS_GROUP = {**_OCCUPIED, **_counts(*_MEMBERS, "scheduled")}

SHAPES = (
    Shape(_GROUP, "Volcano 1.7", False, _VOLCANO_GROUP),
    Shape(
        _GROUP,
        "Volcano 1.14",
        False,
        {
            "conditions": _CONDITIONS,
            "phase": _one_of("Pending", "Running", "Unknown", "Inqueue", "Completed"),
            **_counts(*_MEMBERS, least=0),
        },
    ),
    Shape(
        _QUEUE,
        "Volcano 1.7",
        True,
        {**_VOLCANO_QUEUE, "completed": _COUNT, "allocated": _QUANTITIES},
        required=("allocated",),
    ),
    Shape(
        _QUEUE,
        "Volcano 1.14",
        True,
        {
            "reservation": _RESERVATION,
            "allocated": _QUANTITIES,
            "state": _one_of("Open", "Closed", "Closing", "Unknown"),
            **_counts(*_QUEUE_COUNTS, "completed", least=0),
        },
    ),
    Shape("podgroups.scheduling.x-k8s.io", "scheduler-plugins 0.25", True, _SIGS_GROUP),
    Shape("podgroups.scheduling.x-k8s.io", "scheduler-plugins 0.26", True, {**_OCCUPIED, **_counts(*_MEMBERS)}),
    Shape("elasticquotas.scheduling.x-k8s.io", "scheduler-plugins 0.25", True, {"used": _QUANTITIES}),
    Shape("podgroups.scheduling.sigs.k8s.io", "Koordinator 1.0 and scheduler-plugins 0.24", False, _SIGS_GROUP),
    Shape(
        "elasticquotas.scheduling.sigs.k8s.io",
        "Koordinator 1.0 and scheduler-plugins 0.24",
        False,
        {"used": _QUANTITIES},
    ),
    Shape("podgroups.scheduling.incubator.k8s.io", "kube-batch 0.4", False, _counts(*_MEMBERS), keeps=True),
    Shape("queues.scheduling.incubator.k8s.io", "kube-batch 0.4", False, keeps=True),
    Shape("podgroups.scheduling.incubator.k8s.io", "kube-batch 0.5", True, _counts(*_MEMBERS), keeps=True),
    Shape(
        "queues.scheduling.incubator.k8s.io",
        "kube-batch 0.5",
        True,
        _counts("pending", "running", "unknown"),
        keeps=True,
    ),
    Shape("podgroups.scheduling.sigs.dev", "kube-batch 0.5", True, _counts(*_MEMBERS), keeps=True),
    Shape(
        "queues.scheduling.sigs.dev", "kube-batch 0.5", True, _counts("pending", "running", "unknown"), keeps=True
    ),
)


def oldest() -> list[Shape]:
    """Return the first shape of every kind."""
    found: dict[str, Shape] = {}
    for shape in SHAPES:
        found.setdefault(shape.name, shape)
    return list(found.values())


def newest() -> list[Shape]:
    """Return the last shape of every kind."""
    return list({shape.name: shape for shape in SHAPES}.values())
