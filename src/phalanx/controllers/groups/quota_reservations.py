"""Controller of quota reservations for PodGroups with `totalResources`, in namespaces that opt in.

Each reconciliation reads the whole state and updates the reservation ledger of the namespace. The admission check
(`phalanx.admission.quota_reservations`) uses only the ledger; the annotation of a group only informs users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.dialects.core import Metadata, Wire, decode_pod
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.registry import Dialects, installed_dialects
from phalanx.dialects.times import parse_time
from phalanx.jobs.quota_shortage import NamespaceQuota, read_quota
from phalanx.jobs.reservations import (
    CLAIM_SECONDS,
    ENABLED,
    LEDGER_NAMESPACE,
    LEDGER_PREFIX,
    QUOTA_RESERVED,
    RESERVING,
    ReservationLedger,
    ReservationRequest,
    ReservedPod,
    read_ledger,
    renew,
    reservation_request,
    with_ledger,
)
from phalanx.kube.changes import Key
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import CONFIG_MAPS, NAMESPACES, PODS, RESOURCE_QUOTAS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.own_objects import LABELS
from phalanx.kube.paths import Resource
from phalanx.model.pod_quota import mapping
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

# Quotas change with every pod: changes are grouped.
_GATHER = 0.3
_EXPIRY_PAUSE = 30.0
# Seconds after which a quota that is not reserved is a warning.
_REFUSED_SECONDS = 5.0


class _Named(Wire):
    metadata: Metadata


class ReservingGroup(msgspec.Struct, frozen=True):
    """PodGroup that requests a quota reservation, or has an unreadable request (`fault`)."""

    uid: str
    resource_version: str
    namespace: str
    name: str
    request: ReservationRequest | None
    fault: str
    published: str
    resource: Resource


class ReservingNamespace(msgspec.Struct, frozen=True):
    uid: str
    resource_version: str


_NAMED = msgspec.json.Decoder(_Named)


def _reader(dialects: Dialects, kind: ServedKind, resource: Resource) -> Callable[[bytes], ReservingGroup | None]:
    def read(raw: bytes) -> ReservingGroup | None:
        metadata = _NAMED.decode(raw).metadata
        document = decode_json(raw)
        specs = [spec for spec in dialects.read_group(kind, document) if not spec.made]
        if len(specs) != 1 or metadata.deletion_timestamp is not None:
            return None
        request, fault = reservation_request(document, specs[0].gang, parse_time(metadata.creation_timestamp))
        published = metadata.annotations.get(QUOTA_RESERVED, "")
        if request is None and not fault and not published:
            return None
        return ReservingGroup(
            metadata.uid,
            metadata.resource_version,
            metadata.namespace,
            metadata.name,
            request,
            fault,
            published,
            resource,
        )

    return read


def _read_namespace(raw: bytes) -> ReservingNamespace | None:
    metadata = _NAMED.decode(raw).metadata
    if metadata.labels.get(RESERVING) != ENABLED:
        return None
    return ReservingNamespace(metadata.uid, metadata.resource_version)


class _Refusal(msgspec.Struct):
    """Quota that is not reserved since a time (seconds), and whether a warning was recorded."""

    since: float
    note: str
    told: bool = False


class QuotaReservationController:
    """Controller that reconciles the quota reservations of a namespace when a PodGroup or a quota in it changes."""

    name = "quota reservation controller"

    def __init__(self, context: ControllerContext, dialects: Dialects | None = None) -> None:
        self._context = context
        dialects = dialects or Dialects(installed_dialects())
        self._declarations = dialects.declarations
        self._queue: WorkQueue[str] = WorkQueue()
        # By namespace and uid of the group.
        self._refused: dict[str, dict[str, _Refusal]] = {}
        self.namespaces: ObjectStore[ReservingNamespace] = ObjectStore(
            _read_namespace, changed=lambda key, old, new: self._queue.add(key[1])
        )
        self.quotas: ObjectStore[NamespaceQuota] = ObjectStore(read_quota, changed=self._changed)
        self.groups: dict[Resource, ObjectStore[ReservingGroup]] = {}
        for kind in dialects.groups.values():
            for version in kind.kind.versions:
                served = kind.kind.served_as(version)
                resource = Resource(served.group, served.version, served.plural, served.kind)
                self.groups[resource] = ObjectStore(
                    _reader(dialects, served, resource), index=lambda group: group.namespace, changed=self._changed
                )

    @property
    def watches(self) -> Sequence[WatchedKind]:
        kinds = (WatchedKind(resource, store.sink) for resource, store in self.groups.items())
        return (
            *kinds,
            WatchedKind(NAMESPACES, self.namespaces.sink, f"{RESERVING}={ENABLED}"),
            WatchedKind(RESOURCE_QUOTAS, self.quotas.sink),
        )

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _changed(self, key: Key, old: object, new: object) -> None:
        if self.namespaces.get(("", key[0])) is not None:
            self._queue.add(key[0], _GATHER)

    async def _try_reconcile(self, namespace: str) -> float | None:
        try:
            return await self.reconcile(namespace)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("quota reservations of namespace %s: %s", namespace, error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, namespace, error)
            raise

    async def reconcile(self, namespace: str) -> float | None:
        path = CONFIG_MAPS.path(LEDGER_NAMESPACE, LEDGER_PREFIX + namespace)
        groups = [group for store in self.groups.values() for group in store.of(namespace)]
        enabled = self.namespaces.get(("", namespace)) is not None
        stored = await self._stored(path)
        if not enabled:
            if stored is not None:
                await self._context.writer.delete(path, uid=stored["metadata"]["uid"])
            return None
        if stored is None and not groups:
            return None
        try:
            before = read_ledger(stored)
        except msgspec.DecodeError:
            before = ReservationLedger()  # the ledger was mangled by hand: all requests are granted again
        requests = [group.request for group in groups if group.request is not None]
        quotas, pods = await self._quotas(namespace), await self._pods(namespace)
        after, answers = renew(before, requests, quotas, pods, int(self._context.clock()))
        if after.groups != before.groups:
            if stored is None:
                metadata = {
                    "name": LEDGER_PREFIX + namespace,
                    "namespace": LEDGER_NAMESPACE,
                    "labels": dict(LABELS),
                }
                body = with_ledger({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, after)
                await self._context.writer.create(CONFIG_MAPS.path(LEDGER_NAMESPACE), body)
            else:
                # The replace requires the version that was read: a concurrently admitted pod is not lost.
                await self._context.writer.replace(path, with_ledger(stored, after))
        for group in groups:
            answer = answers.get(group.uid, f"False: {group.fault}" if group.fault else "")
            if answer != group.published:
                await self._publish(group, answer)
        pause = self._report_refusals(namespace, groups)
        pauses = [pause] if pause is not None else []
        if any(reservation.claimed for reservation in after.groups.values()):
            pauses.append(float(CLAIM_SECONDS))
        elif any(reservation.idle_since and not reservation.over for reservation in after.groups.values()):
            pauses.append(_EXPIRY_PAUSE)
        return min(pauses, default=None)

    async def _stored(self, path: str) -> dict[str, Any] | None:
        try:
            return dict(await self._context.client.get(path))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def _quotas(self, namespace: str) -> list[NamespaceQuota]:
        listed = await self._context.client.list_all(RESOURCE_QUOTAS.path(namespace))
        quotas = (read_quota(msgspec.json.encode(item)) for item in listed.get("items") or ())
        return [quota for quota in quotas if quota is not None]

    async def _pods(self, namespace: str) -> list[ReservedPod]:
        """Return the namespace's pods that are charged to a quota reservation."""
        listed = await self._context.client.list_all(PODS.path(namespace))
        pods = []
        for item in listed.get("items") or ():
            if mapping(item.get("status")).get("phase") in ("Succeeded", "Failed"):
                continue
            declared = self._declarations.declare(decode_pod(msgspec.json.encode(item)))
            if declared is not None:
                pods.append(ReservedPod(mapping(item.get("spec")), declared.name))
        return pods

    async def _publish(self, group: ReservingGroup, answer: str) -> None:
        metadata = {"uid": group.uid, "annotations": {QUOTA_RESERVED: answer or None}}
        path = group.resource.path(group.namespace, group.name)
        updated = await self._context.writer.patch(path, {"metadata": metadata}, PatchType.MERGE)
        self.groups[group.resource].put((group.namespace, group.name), msgspec.json.encode(updated))
        refused = self._refused.setdefault(group.namespace, {})
        last = refused.pop(group.uid, None)
        if answer == "True":
            self._record(group, "Normal", "QuotaReserved", "the quota for all members is reserved")
        elif answer:
            since = last.since if last is not None else self._context.clock()
            refused[group.uid] = _Refusal(since, answer.removeprefix("False: "))

    def _report_refusals(self, namespace: str, groups: Sequence[ReservingGroup]) -> float | None:
        """Record a warning for each group whose quota is not reserved after some seconds: in the first moments pods
        and groups come and go. Return the seconds until the next one is due."""
        refused = self._refused.pop(namespace, {})
        now, pauses = self._context.clock(), []
        for group in groups:
            refusal = refused.get(group.uid)
            if refusal is None:
                continue
            self._refused.setdefault(namespace, {})[group.uid] = refusal
            if refusal.told:
                continue
            remaining = refusal.since + _REFUSED_SECONDS - now
            if remaining > 0:
                pauses.append(remaining)
            else:
                refusal.told = True
                self._record(group, "Warning", "QuotaNotReserved", refusal.note)
        return min(pauses, default=None)

    def _record(self, group: ReservingGroup, kind: str, reason: str, note: str) -> None:
        regarding = ObjectReference(
            group.resource.kind,
            group.name,
            group.namespace,
            group.uid,
            group.resource.api_version,
            group.resource_version,
        )
        self._context.recorder.record(regarding, type=kind, reason=reason, action=reason, note=note)
