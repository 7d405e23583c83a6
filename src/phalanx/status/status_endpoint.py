"""Writes of statuses to the status subresource or to the object, and events about rejected writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.dialects.status import StatusChange
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.discovery import Discovery
from phalanx.kube.errors import ApiError
from phalanx.kube.events import EventRecorder
from phalanx.kube.paths import Resource
from phalanx.model.gang import GroupRef
from phalanx.status.event_publisher import object_reference

log = logging.getLogger(__name__)


def _nothing() -> None:
    pass


class StatusEndpoint:
    """Writer of statuses to the endpoint that their kind has. Many CRDs of other projects have no status
    subresource: then the status is a field of the object.

    `learn` processes a result of discovery. The callbacks `moved` run after a kind has gained or lost its
    subresource, because the API server can have ignored earlier writes. `outdated` requests a new discovery.
    `count` counts the rejected writes of a kind.
    """

    def __init__(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        count: Callable[[str], None] = lambda kind: None,
        outdated: Callable[[], None] = _nothing,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._count = count
        self.outdated = outdated
        self.moved: list[Callable[[], None]] = []
        # Kinds without a status subresource.
        self._without: frozenset[Resource] = frozenset()
        self._served: frozenset[tuple[str, str]] = frozenset()

    def learn(self, served: Discovery) -> None:
        without = frozenset(
            entry.resource for entry in served.served if "status" not in entry.subresources and entry.resource.group
        )
        # Groups that discovery could not read keep their last state.
        without |= {resource for resource in self._without if resource.api_version in served.degraded}
        self._served = frozenset((entry.resource.group, entry.resource.plural) for entry in served.served)
        self._move(without)

    def serves(self, group: str, plural: str) -> bool:
        """Return whether the API server served this kind at the last discovery."""
        return (group, plural) in self._served

    async def write(self, change: StatusChange) -> None:
        """Write the status and annotations of an object. Raise ApiError (404: deleted object), ConnectionLost or
        ConfigError."""
        ref, patch = change.ref, change.patch
        # An object without a namespace is cluster-scoped.
        resource = Resource(ref.group, ref.version, ref.plural, ref.kind, namespaced=bool(ref.namespace))
        path = resource.path(ref.namespace, ref.name)
        if change.annotations:
            marks = {"metadata": {"uid": ref.uid, "annotations": dict(change.annotations)}}
            await self._client.patch(path, marks, PatchType.MERGE, read=False)
        if patch:
            await self._write(resource, path, patch, PatchType.STRATEGIC if change.strategic else PatchType.MERGE)

    async def _write(self, resource: Resource, path: str, patch: Mapping[str, Any], patch_type: PatchType) -> None:
        if resource not in self._without:
            try:
                await self._client.patch(f"{path}/status", patch, patch_type, read=False)
                return
            except ApiError as error:
                # A 404 means that the object was deleted or that its kind has no such subresource.
                if error.status != 404 or not await self._exists(path):
                    raise
            log.info("%s.%s has no status subresource", resource.plural, resource.group)
            self._move(self._without | {resource})
            self.outdated()
        answer = await self._client.patch(path, patch, patch_type)
        if not _shows(answer, patch) and await self._takes(f"{path}/status", patch, patch_type):
            # The kind has a subresource now: the API server ignores the status in writes to the object.
            log.info("%s.%s has a status subresource", resource.plural, resource.group)
            self._move(self._without - {resource})
            self.outdated()

    def publish_refused(self, ref: GroupRef, error: Exception) -> None:
        """Record an event on an existing object whose status the API server rejected."""
        self._count(ref.kind)
        about = object_reference(ref)
        note = f"the API server rejected the status of this {ref.kind} ({ref.group}): {error}"
        self._recorder.record(
            about, reason="StatusRefused", action="UpdateStatus", note=note, type="Warning", once=True
        )

    async def _exists(self, path: str) -> bool:
        try:
            await self._client.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _takes(self, path: str, patch: Mapping[str, Any], patch_type: PatchType) -> bool:
        try:
            await self._client.patch(path, patch, patch_type)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _move(self, without: frozenset[Resource]) -> None:
        if without == self._without:
            return
        self._without = without
        for callback in self.moved:
            callback()


def _shows(answer: Any, patch: Mapping[str, Any]) -> bool:
    """Return whether the API server's answer contains a part of the written status."""
    status = answer.get("status") or {} if isinstance(answer, dict) else {}
    wanted = patch.get("status") or {}
    return not wanted or any(_has(status.get(name), value) for name, value in wanted.items())


def _has(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    return isinstance(value, dict) and all(_has(value.get(name), part) for name, part in wanted.items())
