"""Warnings for users about their objects, recorded as Kubernetes Events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from phalanx.model.gang import GroupRef

_MOST = 20_000


class ObjectRef(msgspec.Struct, frozen=True):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class ObjectWarning(msgspec.Struct, frozen=True):
    """Warning to record as a Kubernetes Event. `reason` is CamelCase and stable; `message` names object, field,
    value and fix."""

    about: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class ObjectWarnings:
    """Warnings about objects that are not recorded as Events yet, in order of arrival."""

    def __init__(self) -> None:
        self._pinned: dict[ObjectWarning, Callable[[], bool]] = {}

    def add(self, notice: ObjectWarning, still_true: Callable[[], bool]) -> None:
        """Add a warning about an object. `still_true` is evaluated by `drain`: an outdated warning is dropped."""
        self._pinned[notice] = still_true
        if len(self._pinned) > _MOST:
            # A standby replica records no events, for weeks.
            del self._pinned[next(iter(self._pinned))]

    def drain(self) -> list[ObjectWarning]:
        pinned, self._pinned = self._pinned, {}
        return [notice for notice, still_true in pinned.items() if still_true()]


def pod_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    return ObjectRef("v1", "Pod", namespace, name, uid)


def node_ref(name: str, uid: str) -> ObjectRef:
    return ObjectRef("v1", "Node", "", name, uid)


def group_ref(ref: GroupRef) -> ObjectRef:
    return ObjectRef(f"{ref.group}/{ref.version}", ref.kind, ref.namespace, ref.name, ref.uid)
