"""Allocation of ResourceClaims before pod binding.

As in kube-scheduler 1.36 (dynamicresources.go): first a finalizer that protects the claim from deletion, then the
allocation and the consumer in the status of the claim; devices with binding conditions are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from phalanx.dialects.devices.claim_objects import EXTENDED
from phalanx.execution.persistence import persist
from phalanx.execution.preparation import PreparationError
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_time
from phalanx.model.decisions import Bind
from phalanx.model.devices.claims import MOST_CONSUMERS, AllocateClaim
from phalanx.model.preparations import Preparation
from phalanx.model.text.decoding import decode_json

FINALIZER = "resource.kubernetes.io/delete-protection"

# Intervals between reads of devices that are not ready; the last one repeats (seconds).
_LOOKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_NOT_FOUND, _CONFLICT = 404, 409
# Maximum number of group claims with known members.
_MOST_GROUPS = 4096
# Status codes of an overloaded or starting server.
_PASSING = (429, 500, 502, 503, 504)

T = TypeVar("T")
Document = Mapping[str, Any]


class ClaimClient(Protocol):
    async def get(self, path: str) -> Any: ...

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any: ...

    async def create(self, path: str, obj: Any) -> Any: ...

    async def delete(self, path: str, *, uid: str | None = None) -> Any: ...


class ClaimAllocation:
    """Executor of the preparation `AllocateClaim`. All its state is in the ResourceClaim, so a restart continues
    from there.

    `pause` waits for some seconds, `now` is in seconds since the epoch.
    """

    def __init__(
        self,
        client: ClaimClient,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._pause = pause
        self._now = now
        # claim -> pods of a group that use the reservation of the group
        self._members: dict[str, set[str]] = {}
        # pod -> claim created for its extended resources, until the pod is bound or its preparation undone
        self._made: dict[str, AllocateClaim] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, bind: Bind, preparation: Preparation) -> None:
        assert isinstance(preparation, AllocateClaim)
        wanted = preparation
        if wanted.fault:
            raise PreparationError(f"resource claim {wanted.name}: {wanted.fault}")
        if wanted.create:
            wanted = await self._created(wanted)
        if wanted.group:
            self._members.setdefault(wanted.uid, set()).add(wanted.pod_uid)
            if len(self._members) > _MOST_GROUPS:
                del self._members[next(iter(self._members))]
        async with self._turn(wanted):
            await self._reserve(wanted)
        if wanted.conditions:
            await self._ready(wanted)
        if wanted.mappings:
            await self._tell_pod(wanted)

    def _turn(self, wanted: AllocateClaim) -> asyncio.Lock:
        """Return the lock of a ResourceClaim: pods that share the claim write it one after the other, because
        concurrent writes conflict."""
        return self._turns.setdefault(wanted.uid, asyncio.Lock())

    async def _reserve(self, wanted: AllocateClaim) -> None:
        while True:
            claim = await self._usable(wanted)
            if FINALIZER not in (claim["metadata"].get("finalizers") or ()):
                finalizers = [*(claim["metadata"].get("finalizers") or ()), FINALIZER]
                protected = await self._patch(wanted, claim, {"metadata": {"finalizers": finalizers}}, "")
                if protected is None:
                    continue
                claim = protected
            status = self._reserved(wanted, claim)
            if status is None or await self._patch(wanted, claim, {"status": status}, "status") is not None:
                return

    async def awaited(self, preparation: Preparation) -> str:
        """Return the claim whose devices are not ready."""
        assert isinstance(preparation, AllocateClaim)
        return f"the devices of claim {preparation.name}" if preparation.name else ""

    async def undo(self, bind: Bind, preparation: Preparation) -> None:
        """Remove the pod from the consumers of the ResourceClaim; deallocate devices that this scheduler allocated
        and no pod uses."""
        assert isinstance(preparation, AllocateClaim)
        wanted = preparation
        if wanted.create:
            made = self._made.pop(wanted.pod_uid, None)
            if made is not None:
                await self._drop(made)
            return
        if wanted.group:
            members = self._members.get(wanted.uid)
            if members is None or not wanted.allocation:
                return  # the members that use the reservation are unknown
            members.discard(wanted.pod_uid)
            if members:
                return
            del self._members[wanted.uid]
        async with self._turn(wanted):
            await self._release(wanted)

    async def _release(self, wanted: AllocateClaim) -> None:
        consumer = _consumer(wanted)
        while True:
            claim = await self._document(wanted)
            if claim is None or claim["metadata"].get("uid") != wanted.uid:
                return
            status = claim.get("status") or {}
            consumers = status.get("reservedFor") or []
            left = [entry for entry in consumers if entry.get("uid") != consumer["uid"]]
            change: dict[str, Any] = {"reservedFor": left or None}
            ours = bool(wanted.allocation) and _same_devices(status.get("allocation"), wanted)
            if ours and not left:
                change["allocation"] = None
            elif len(left) == len(consumers):
                return
            if await self._patch(wanted, claim, {"status": change}, "status") is not None:
                return

    def _reserved(self, wanted: AllocateClaim, claim: Document) -> dict[str, Any] | None:
        """Return the status change that reserves the ResourceClaim for the pod; None if it is up to date. Raise
        PreparationError."""
        status = claim.get("status") or {}
        allocation, consumers = status.get("allocation"), status.get("reservedFor") or []
        change: dict[str, Any] = {}
        if not allocation:
            if not wanted.allocation:
                raise PreparationError(f"resource claim {wanted.name} has lost its devices")
            change["allocation"] = decode_json(wanted.allocation)
            change["allocation"]["allocationTimestamp"] = format_time(self._now())
        elif wanted.allocation and not _same_devices(allocation, wanted):
            raise PreparationError(f"resource claim {wanted.name} has other devices now")
        consumer = _consumer(wanted)
        if all(entry.get("uid") != consumer["uid"] for entry in consumers):
            if len(consumers) >= MOST_CONSUMERS:
                raise PreparationError(f"resource claim {wanted.name} has the maximum number of consumers")
            change["reservedFor"] = [*consumers, consumer]
        return change or None

    async def _ready(self, wanted: AllocateClaim) -> None:
        """Wait until the device drivers report every device as ready; raise PreparationError if one reports a
        failure."""
        looks = 0
        while True:
            claim = await self._usable(wanted)
            missing, failed = _readiness(claim)
            if failed:
                raise PreparationError(f"resource claim {wanted.name}: {failed}")
            if not missing:
                return
            await self._pause(_LOOKS[min(looks, len(_LOOKS) - 1)])
            looks += 1

    # claims for extended resources

    async def _created(self, wanted: AllocateClaim) -> AllocateClaim:
        """Create a ResourceClaim for extended resources, owned by the pod and deleted with it. After a lost answer
        there can be two: the unknown claim has no devices and is deleted with the pod too."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": wanted.pod, "uid": wanted.pod_uid, "controller": True}
        resource = _resource(wanted)
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "generateName": f"{wanted.pod}-extended-resources-",
                "namespace": wanted.namespace,
                "annotations": {EXTENDED: "true"},
                "ownerReferences": [owner],
            },
            "spec": decode_json(wanted.create),
        }
        path = resource.path(wanted.namespace)
        try:
            claim = await persist(lambda: self._client.create(path, document), self._pause)
        except ApiError as error:
            raise PreparationError(f"resource claim {wanted.name}: {error}") from error
        metadata = claim["metadata"]
        made = msgspec.structs.replace(wanted, name=metadata["name"], uid=metadata["uid"])
        self._made[wanted.pod_uid] = made
        if len(self._made) > _MOST_GROUPS:
            del self._made[next(iter(self._made))]
        return made

    async def _tell_pod(self, wanted: AllocateClaim) -> None:
        told = {"requestMappings": decode_json(wanted.mappings), "resourceClaimName": wanted.name}
        patch = {"metadata": {"uid": wanted.pod_uid}, "status": {"extendedResourceClaimStatus": told}}
        path = PODS.path(wanted.namespace, wanted.pod, "status")
        try:
            await persist(lambda: self._client.patch(path, patch, PatchType.STRATEGIC), self._pause)
        except ApiError as error:
            raise PreparationError(f"pod {wanted.pod}: its claim was not written: {error}") from error

    async def _drop(self, made: AllocateClaim) -> None:
        """Delete an unused ResourceClaim, after removing the scheduler's finalizer."""
        while True:
            claim = await self._document(made)
            if claim is None or claim["metadata"].get("uid") != made.uid:
                return
            left = [each for each in claim["metadata"].get("finalizers") or () if each != FINALIZER]
            if await self._patch(made, claim, {"metadata": {"finalizers": left or None}}, "") is not None:
                break
        path = _resource(made).path(made.namespace, made.name)
        try:
            await persist(lambda: self._client.delete(path, uid=made.uid), self._pause)
        except ApiError as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise PreparationError(f"resource claim {made.name}: {error}") from error

    # the API

    async def _usable(self, wanted: AllocateClaim) -> Document:
        claim = await self._document(wanted)
        if claim is None:
            raise PreparationError(f"resource claim {wanted.name} does not exist any more")
        metadata = claim["metadata"]
        if metadata.get("uid") != wanted.uid:
            raise PreparationError(f"resource claim {wanted.name} was replaced by another of its name")
        if metadata.get("deletionTimestamp"):
            raise PreparationError(f"resource claim {wanted.name} is being deleted")
        return claim

    async def _document(self, wanted: AllocateClaim) -> Document | None:
        path = _resource(wanted).path(wanted.namespace, wanted.name)
        try:
            found: Document = await persist(lambda: self._client.get(path), self._pause)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise PreparationError(f"resource claim {wanted.name}: {error}") from error
        return found

    async def _patch(
        self, wanted: AllocateClaim, claim: Document, change: dict[str, Any], subresource: str
    ) -> Document | None:
        """Patch the ResourceClaim and return it; None after a conflict with another writer."""
        path = _resource(wanted).path(wanted.namespace, wanted.name, subresource or None)
        version = claim["metadata"]["resourceVersion"]
        patch = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}}
        try:
            found: Document = await persist(lambda: self._client.patch(path, patch, PatchType.MERGE), self._pause)
        except ApiError as error:
            if error.status in (_CONFLICT, _NOT_FOUND):
                return None
            raise PreparationError(f"resource claim {wanted.name}: {error}") from error
        return found


def _resource(wanted: AllocateClaim) -> Resource:
    return Resource("resource.k8s.io", wanted.version, "resourceclaims", "ResourceClaim")


def _consumer(wanted: AllocateClaim) -> dict[str, str]:
    if wanted.group:
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
        return {**group, "name": wanted.group, "uid": wanted.group_uid}
    return {"resource": "pods", "name": wanted.pod, "uid": wanted.pod_uid}


def _same_devices(allocation: Document | None, wanted: AllocateClaim) -> bool:
    return allocation is not None and _devices(allocation) == _devices(decode_json(wanted.allocation))


def _devices(allocation: Document) -> list[tuple[object, ...]]:
    return [
        tuple(result.get(key) for key in ("request", "driver", "pool", "device", "shareID"))
        for result in (allocation.get("devices") or {}).get("results") or ()
    ]


def _readiness(claim: Document) -> tuple[bool, str]:
    """Return (whether a device is not ready yet, failure of a device or "") from the binding conditions of a
    ResourceClaim."""
    status = claim.get("status") or {}
    reported = {
        tuple(device.get(key) for key in ("driver", "pool", "device", "shareID")): {
            condition.get("type"): condition
            for condition in device.get("conditions") or ()
            if condition.get("status") == "True"
        }
        for device in status.get("devices") or ()
    }
    missing = False
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
        true = reported.get(tuple(result.get(key) for key in ("driver", "pool", "device", "shareID")), {})
        for kind in result.get("bindingFailureConditions") or ():
            if kind in true:
                message = true[kind].get("message") or true[kind].get("reason") or ""
                return missing, f"device {result.get('device')}: {kind}: {message}".rstrip(": ")
        missing = missing or any(kind not in true for kind in result.get("bindingConditions") or ())
    return missing, ""
