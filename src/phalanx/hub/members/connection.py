"""Connection to one member cluster: the hub's lease there, its copies, and the order in which they are valid.

A session acquires the hub's lease in the cluster, deletes copies of old epochs, and only then renews the lease.
Before, the cluster's scheduler starts no copy. Each renewal is a compare-and-swap, so a cluster that was restored
from a backup is detected (it does not know the version), and the session starts again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.dialects.dispatched import HUB_LEASE, LEASE_SECONDS, ORIGIN_LABEL
from phalanx.hub import protocol
from phalanx.hub.copies import copy_view
from phalanx.hub.dispatch import Dispatch
from phalanx.hub.jobs.copies import is_copy, job_view
from phalanx.hub.jobs.kinds import JOB_KINDS
from phalanx.hub.members.capacity import ClusterCapacity, read_capacity
from phalanx.hub.names import DISPATCH_LABEL, GROUP_KINDS, LEASE_NAMESPACE, RESULT_FINALIZER
from phalanx.hub.objects import StoredObject, printable, read_object
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.discovery import discover
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.failures import Failures
from phalanx.kube.lease import LEASES
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.kube.retry import Backoff
from phalanx.kube.timestamps import format_micro_time, parse_time

log = logging.getLogger(__name__)

Json = dict[str, Any]
#: Seconds for the start of a session; a slower cluster is tried again.
_SYNC_SECONDS = 60.0
_JOB_KINDS = {kind.resource: kind for kind in JOB_KINDS}
_JOBS = frozenset(_JOB_KINDS)
_SWEEP_PERIOD = 60.0
#: Reason of a connection that is neither established nor failed.
CONNECTING = "Connecting"


class RefusedError(Exception):
    """Error for a member cluster that is unusable although it answers; `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ConnectionPace(msgspec.Struct, frozen=True):
    """Intervals of a member cluster's connection in seconds.

    Between renewals of the lease, the longest between connection attempts, the timeout of an answer, and between
    surveys of the capacity.
    """

    renew: float = LEASE_SECONDS / 6
    retry: float = 15.0
    answer: float = 10.0
    survey: float = 300.0


class ClusterConnection:
    """Connection to one member cluster.

    `changed` is called with the uid of a Dispatch with changed copies, "" for all. `records` reads the Dispatches
    from the hub's API, not from a cache. `reason` and `message` describe the state; the reason is Active for a
    usable cluster.
    """

    def __init__(
        self,
        name: str,
        client: KubeClient,
        hub: str,
        records: Callable[[], Awaitable[Mapping[str, Dispatch]]],
        changed: Callable[[str], None],
        pace: ConnectionPace,
    ) -> None:
        self.name = name
        self.client = client
        self.ready = False
        self.reason, self.message = CONNECTING, ""
        self.lost = False
        self.silent_since = int(time.time())
        self.last_seen = 0
        #: ClusterCapacity at the last survey.
        self.capacity: ClusterCapacity | None = None
        self._last_sent = 0
        self._sweep_due = False
        self.kinds: frozenset[Resource] = frozenset()
        self._hub = hub
        self._records = records
        self._changed = changed
        self._pace = pace
        self._selector = f"{ORIGIN_LABEL}={hub}"
        self._failures = Failures()
        self._pods = self._store()
        self._groups: dict[Resource, ObjectStore[StoredObject]] = {}
        self._jobs: dict[Resource, ObjectStore[StoredObject]] = {}

    def _store(self) -> ObjectStore[StoredObject]:
        def changed(key: object, old: StoredObject | None, new: StoredObject | None) -> None:
            for dispatch_uid in {
                old.label(DISPATCH_LABEL) if old else "",
                new.label(DISPATCH_LABEL) if new else "",
            } - {""}:
                self._changed(dispatch_uid)

        return ObjectStore(
            read_object, index=lambda dispatch_uid: dispatch_uid.label(DISPATCH_LABEL), changed=changed
        )

    # -- observed state ------------------------------------------------------------------------------------

    def copies(self, dispatch_uid: str) -> Iterable[StoredObject]:
        """Return the copies of pods for a Dispatch; valid only while `ready`."""
        return self._pods.of(dispatch_uid)

    def group(self, dispatch_uid: str) -> StoredObject | None:
        return next((group for store in self._groups.values() for group in store.of(dispatch_uid)), None)

    def jobs(self, resource: Resource, dispatch_uid: str) -> Iterable[StoredObject]:
        """Return the copies of a job for a Dispatch; valid only while `ready`."""
        store = self._jobs.get(resource)
        return [job for job in store.of(dispatch_uid) if is_copy(job)] if store is not None else ()

    @property
    def unheard_since(self) -> int:
        """Time in seconds since the epoch after which requests to the cluster possibly did not arrive."""
        return max(self.silent_since, self._last_sent)

    def sweep_soon(self) -> None:
        """Request a sweep for copies of old epochs that were left in the cluster."""
        self._sweep_due = True

    # -- sessions ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Hold sessions with the member cluster until cancelled."""
        backoff = Backoff(base=0.5, cap=self._pace.retry)
        while True:
            try:
                await self._session(backoff)
            except* (ApiError, ConnectionLost, ConfigError, TimeoutError, RefusedError) as group:
                self._end(_first(group))
            except* Exception as group:
                self._failures.record_failure("cluster", self.name, group)
                self._end(_first(group))
            await asyncio.sleep(backoff.next())

    def _end(self, error: BaseException) -> None:
        was_ready = self.ready
        self.ready = False
        self.reason, self.message = _reason(error), printable(error)
        # A cluster that rejects a request is reachable; only silence is a loss.
        lost = isinstance(error, ConnectionLost | TimeoutError) and self.reason == "Unreachable"
        if was_ready or not self.lost:
            self.silent_since = int(time.time())
        self.lost = lost
        if was_ready:
            log.warning("cluster %s: %s: %s", self.name, self.reason, self.message)
        self._changed("")

    async def _session(self, backoff: Backoff) -> None:
        async with asyncio.timeout(_SYNC_SECONDS):
            lease = await self._take_lease()
            self.kinds = await self._served()
            await self._sweep_until_clean()
            lease = await self._renew(lease)
        self._pods = self._store()
        self._groups = {kind: self._store() for kind in self.kinds - _JOBS}
        self._jobs = {kind: self._store() for kind in self.kinds & _JOBS}
        async with asyncio.TaskGroup() as tasks:
            reflectors = [self._reflector(PODS, self._pods)]
            stores = [*self._groups.items(), *self._jobs.items()]
            reflectors += [self._reflector(kind, store) for kind, store in stores]
            for reflector in reflectors:
                tasks.create_task(reflector.run())
            async with asyncio.timeout(_SYNC_SECONDS):
                for reflector in reflectors:
                    await reflector.synced.wait()
            self.ready, self.lost, self.reason, self.message = True, False, "Active", ""
            backoff.reset()
            log.info("cluster %s: active", self.name)
            self._changed("")
            tasks.create_task(self._survey())
            swept = time.monotonic()
            while True:
                await asyncio.sleep(self._pace.renew)
                if self._sweep_due or time.monotonic() - swept > _SWEEP_PERIOD:
                    async with asyncio.timeout(_SYNC_SECONDS):
                        # Copies that are being deleted are checked again until they no longer exist.
                        self._sweep_due = await self._sweep() > 0
                    swept = time.monotonic()
                async with asyncio.timeout(self._pace.answer):
                    lease = await self._renew(lease)

    async def _survey(self) -> None:
        """Read the cluster's capacity periodically. A failure does not end the session."""
        while True:
            try:
                async with asyncio.timeout(_SYNC_SECONDS):
                    self.capacity = await read_capacity(self.client, self.capacity)
            except (ApiError, ConnectionLost, TimeoutError) as error:
                log.info("cluster %s: its capacity is unknown: %s", self.name, printable(error))
            except Exception as error:
                self._failures.record_failure("capacity of cluster", self.name, error)
            await asyncio.sleep(self._pace.survey)

    def _reflector(self, resource: Resource, store: ObjectStore[StoredObject]) -> Reflector[bytes]:
        return Reflector(
            self.client,
            resource,
            bytes,
            store.sink,
            label_selector=self._selector,
            failures=self._failures,
        )

    async def _served(self) -> frozenset[Resource]:
        """Return the kinds that the member cluster serves; request a list of each kind that discovery omits.

        An API server that has just started omits custom kinds from discovery and refuses to list them. Believing
        that would mean to treat running copies as deleted.
        """
        served = await discover(self.client)
        served_kinds = set[Resource]()
        for kind in [kind.resource for kind in GROUP_KINDS] + [kind.resource for kind in JOB_KINDS]:
            is_discovered = any(version.version == kind.version for version in served.find(kind.group, kind.plural))
            if is_discovered or await self._listable(kind):
                served_kinds.add(kind)
        return frozenset(served_kinds)

    async def _listable(self, kind: Resource) -> bool:
        try:
            await self.client.get(kind.path(), {"limit": 1})
        except ApiError as error:
            if error.status == 403 or (error.status == 404 and error.from_api_server):
                return False
            raise
        return True

    # -- lease ---------------------------------------------------------------------------------------------

    async def _take_lease(self) -> Json:
        """Return the hub's unrenewed lease in the member cluster; create a missing one. Raises RefusedError if
        another hub renews it."""
        path = LEASES.path(LEASE_NAMESPACE, HUB_LEASE)
        try:
            lease: Json = await self.client.get(path)
        except ApiError as error:
            if error.status != 404 or not error.from_api_server:
                raise
            # The new lease has no recent renewal, so the cluster's scheduler starts no copy because of it.
            spec = {"holderIdentity": self._hub, "leaseDurationSeconds": LEASE_SECONDS}
            new_lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": HUB_LEASE}}
            lease = await self.client.create(LEASES.path(LEASE_NAMESPACE), {**new_lease, "spec": spec})
        if not isinstance(lease, dict) or not isinstance(lease.get("spec") or {}, dict):
            raise RefusedError("NotAnApiServer", "its answer is not a Lease")
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and holder != self._hub:
            raise RefusedError(
                "OtherHub",
                f"lease {LEASE_NAMESPACE}/{HUB_LEASE} there belongs to the hub {printable(holder, 60)}; "
                "delete it to move the cluster to this hub",
            )
        self.last_seen = int(time.time())
        return lease

    async def _renew(self, lease: Json) -> Json:
        """Renew the hub's lease in the cluster. Raises ApiError 409 for another version, after a foreign write or a
        restore."""
        before = _moment((lease.get("spec") or {}).get("renewTime"))
        # The time is always later than the last, whatever our clock shows: the member's scheduler compares no
        # clocks.
        spec = {
            "holderIdentity": self._hub,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(max(time.time(), before + 0.001)),
        }
        self._last_sent = int(time.time())
        renewed: Json = await self.client.replace(LEASES.path(LEASE_NAMESPACE, HUB_LEASE), {**lease, "spec": spec})
        self.last_seen = int(time.time())
        return renewed

    # -- copies of old epochs ------------------------------------------------------------------------------

    async def _sweep_until_clean(self) -> None:
        pause = 0.1
        while await self._sweep():
            self.reason, self.message = "Cleaning", "copies of old epochs are being deleted there"
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    async def _sweep(self) -> int:
        """Delete copies of old epochs in the cluster; return their number.

        The records are read after the list: a copy is created after its record was written, so a copy that is
        unknown to its record is a leftover.
        """
        # A job is deleted before its pods, because it would create them again.
        jobs = await self._list_jobs()
        listed = await self.list_copies("")
        records = await self._records() if listed or jobs else {}
        count = 0
        for resource, job in jobs:
            view = job_view(_JOB_KINDS[resource], job.document, None)
            if protocol.stale(view, self.name, records.get(job.label(DISPATCH_LABEL))):
                count += 1
                for step in protocol.clear(view):
                    await self.clear(job.namespace, step, resource)
        for pod in listed:
            record = records.get(pod.label(DISPATCH_LABEL))
            view = copy_view(pod.document, None)
            if protocol.stale(view, self.name, record):
                count += 1
                for step in protocol.clear(view):
                    await self.clear(pod.namespace, step)
        await self._sweep_groups(records, bool(listed or jobs))
        return count

    async def _sweep_groups(self, records: Mapping[str, Dispatch], fresh: bool) -> None:
        for resource in self.kinds - _JOBS:
            listed = await self.client.list_all(resource.path(), {"labelSelector": self._selector})
            groups = [
                group for item in listed["items"] if (group := read_object(msgspec.json.encode(item))) is not None
            ]
            if groups and not fresh:
                records, fresh = await self._records(), True
            for group in groups:
                record = records.get(group.label(DISPATCH_LABEL))
                if record is None or record.status.cluster != self.name:
                    await _unless_gone(
                        self.client.delete(resource.path(group.namespace, group.name), uid=group.uid)
                    )

    async def _list_jobs(self) -> list[tuple[Resource, StoredObject]]:
        jobs = []
        for resource in self.kinds & _JOBS:
            listed = await self.client.list_all(resource.path(), {"labelSelector": self._selector})
            read = (read_object(msgspec.json.encode(item)) for item in listed["items"])
            jobs += [(resource, job) for job in read if job is not None and is_copy(job)]
        return jobs

    async def list_copies(self, namespace: str) -> list[StoredObject]:
        """Return the copies that the cluster's API lists now, in one namespace or in all ("")."""
        listed = await self.client.list_all(PODS.path(namespace or None), {"labelSelector": self._selector})
        return [copy for item in listed["items"] if (copy := read_object(msgspec.json.encode(item))) is not None]

    async def gone(self, namespace: str, dispatch_uid: str, granted: Iterable[str]) -> bool:
        """Return whether a fresh list shows no copies of a Dispatch, no objects of these uids and no pods of them.

        All objects of the namespace are read, because users can remove labels.
        """
        uids = set(granted)
        # Jobs are listed first: an existing job could still create pods.
        for resource in (*sorted(self.kinds & _JOBS, key=str), PODS):
            listed = await self.client.list_all(resource.path(namespace))
            for item in listed["items"]:
                metadata = item.get("metadata") or {}
                owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
                if not uids.isdisjoint({metadata.get("uid"), *owners}):
                    return False
                if (metadata.get("labels") or {}).get(DISPATCH_LABEL) == dispatch_uid:
                    return False
        return True

    async def clear(self, namespace: str, step: protocol.Step, resource: Resource = PODS) -> None:
        """Execute the protocol step DeleteCopy, RecallCopy or ReleaseCopy; ignore deleted copies. A job is deleted
        after its pods."""
        propagation = None if resource is PODS else "Foreground"
        if isinstance(step, protocol.DeleteCopy):
            path = resource.path(namespace, step.name)
            await _unless_gone(self.client.delete(path, uid=step.uid, propagation=propagation))
        elif isinstance(step, protocol.RecallCopy):
            path = resource.path(namespace, step.name)
            await _unless_gone(
                self.client.delete(path, uid=step.uid, version=step.version, propagation=propagation)
            )
        elif isinstance(step, protocol.ReleaseCopy):
            pod = await _unless_gone(self.client.get(resource.path(namespace, step.name)))
            if pod is None or pod["metadata"]["uid"] != step.uid:
                return
            metadata = pod["metadata"]
            finalizers = [
                finalizer for finalizer in metadata.get("finalizers") or () if finalizer != RESULT_FINALIZER
            ]
            precise = {"uid": step.uid, "resourceVersion": metadata["resourceVersion"]}
            patch = {"metadata": {**precise, "finalizers": finalizers}}
            await _unless_gone(self.client.patch(resource.path(namespace, step.name), patch, PatchType.MERGE))

    def condition(self) -> tuple[str, str, str]:
        """Return status, reason and message of the MemberCluster's condition Active."""
        return "True" if self.ready else "Unknown" if self.lost else "False", self.reason, self.message

    async def close(self) -> None:
        """Close the connection's client; call it after `run` was cancelled."""
        self.ready = False
        await self.client.close()


async def _unless_gone(request: Awaitable[Any]) -> Any:
    """Return the answer to a request; None if the object is deleted, replaced or changed, as a later check decides
    again."""
    try:
        return await request
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return None


def _moment(text: object) -> float:
    try:
        return parse_time(str(text))
    except ValueError:
        return 0.0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, RefusedError):
        return error.reason
    if isinstance(error, ApiError):
        if error.status in (401, 403):
            return error.reason[:60] if error.from_api_server else "Forbidden"
        return "Conflict" if error.status == 409 else "Refused"
    if isinstance(error, ConfigError):
        return "InvalidKubeconfig"
    if isinstance(error, ConnectionLost):
        text = str(error).lower()
        return "TLSError" if "certificate" in text or "ssl" in text else "Unreachable"
    return "Unreachable" if isinstance(error, TimeoutError) else "Failed"
