"""A PodGroup of any API family as one noun, and the reader that every family uses to get there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

from phalanx.dialects.koordinator import NO_EXTRAS, Extras, read_extras
from phalanx.dialects.requests import resource_list
from phalanx.dialects.times import parse_time
from phalanx.model.gang import Dialect, GroupRef, Problem
from phalanx.model.resources import Requests

Document = Mapping[str, Any]

ONCE_SATISFIED_ANNOTATION = "phalanx.dev/once-satisfied"
MAX_MEMBERS = 2**31 - 1


class GroupResource(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A served resource: which group objects are watched, in the version that discovery chose."""

    group: str
    version: str
    plural: str
    kind: str = "PodGroup"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class GroupSpec(msgspec.Struct, frozen=True):
    """What one group object declares. `gang` is the name of the gang, `problem` what makes the object unusable.

    `priority` is the native API's own number; `priority_class` names a class to look up. `queue` is "" where the
    object leaves it open.
    """

    ref: GroupRef
    gang: str
    family: Dialect
    created: int = 0
    min_member: int = 1
    roles: tuple[tuple[str, int], ...] = ()
    min_resources: Requests | None = None
    timeout: int | None = None
    queue: str = ""
    priority_class: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    extras: Extras = NO_EXTRAS
    once_satisfied: bool = False
    admission: bool = False
    admitted: bool = True
    unit: bool = False
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()


class GroupReader:
    """Reads one document field by field; a field that cannot be read is noted and takes its default."""

    def __init__(self, resource: GroupResource, document: Document) -> None:
        metadata = document.get("metadata")
        self.metadata: Document = metadata if isinstance(metadata, Mapping) else {}
        self.ref = GroupRef(
            group=resource.group,
            version=resource.version,
            kind=resource.kind,
            plural=resource.plural,
            namespace=str(self.metadata.get("namespace") or ""),
            name=str(self.metadata.get("name") or ""),
            uid=str(self.metadata.get("uid") or ""),
        )
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.spec = self._object(document, "spec")
        self.status = self._object(document, "status")
        self.labels = self._texts("labels")
        self.annotations = self._texts("annotations")
        self.extras = read_extras(self.labels, self.annotations)
        self.created = parse_time(str(self.metadata.get("creationTimestamp") or ""))
        self.once_satisfied = self.annotations.get(ONCE_SATISFIED_ANNOTATION) == "true"

    def refuse(self, field: str, value: object, advice: str, code: str = "InvalidPodGroup") -> None:
        """Notes a field that makes the object unusable."""
        self.problems.append(Problem(code, f"{describe(self.ref)}: {field} is {show(value)}; {advice}"))

    def warn(self, code: str, field: str, value: object, advice: str) -> None:
        """Notes a field that is passed over."""
        self.warnings.append(Problem(code, f"{describe(self.ref)}: {field} is {show(value)}; {advice}"))

    @property
    def problem(self) -> Problem | None:
        return self.problems[0] if self.problems else None

    def min_member(self, *names: str) -> int:
        """The first of `names` that the spec has; 0 and absent both mean 1 (coscheduling.md, 1.4)."""
        for name in names:
            value = self.spec.get(name)
            if value is None:
                continue
            if is_whole(value) and 0 <= value <= MAX_MEMBERS:
                return max(1, value)
            self.refuse(f"spec.{name}", value, "write a whole number of at least 1, such as 3")
            return 1
        return 1

    def text(self, name: str) -> str:
        value = self.spec.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.refuse(f"spec.{name}", value, "write a text")
        return ""

    def number(self, name: str) -> int | None:
        value = self.spec.get(name)
        if value is None or (is_whole(value) and abs(value) <= MAX_MEMBERS):
            return value
        self.refuse(f"spec.{name}", value, "write a whole number of at most 32 bits")
        return None

    def timeout(self, name: str) -> int | None:
        """Seconds; zero means the default, which is none."""
        value = self.number(name)
        if value is not None and value < 0:
            self.warn("InvalidTimeout", f"spec.{name}", value, "write a number of seconds above 0; none is used")
        return value if value is not None and value > 0 else None

    def resources(self, name: str) -> Requests | None:
        value = self.spec.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(f"spec.{name}", value, "write a map such as {cpu: 4, memory: 8Gi}")
            return None
        requests, faults = resource_list(value, f"spec.{name}")
        for fault in faults:
            self.problems.append(
                Problem(
                    "InvalidPodGroup", f"{describe(self.ref)}: {fault}; write a quantity such as 4, 500m or 8Gi"
                )
            )
        return requests

    def _object(self, document: Document, name: str) -> Document:
        value = document.get(name)
        if value is None or isinstance(value, Mapping):
            return value or {}
        if name == "spec":
            self.refuse(name, value, "write an object")
        return {}

    def _texts(self, name: str) -> dict[str, str]:
        value = self.metadata.get(name)
        if not isinstance(value, Mapping):
            return {}
        return {key: text if isinstance(text, str) else show(text) for key, text in value.items()}


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def describe(ref: GroupRef) -> str:
    return f"{ref.kind} {ref.namespace}/{ref.name} ({ref.group})"


def show(value: object) -> str:
    """A value as a message quotes it: JSON, cut to a readable length."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."
