"""The connection to one member cluster: its lease, its copies, and the order in which they may be believed.

A session takes the hub's lease in the cluster, sweeps away copies of old epochs, and only then renews the lease:
the cluster's scheduler starts nothing of ours before. Each renewal is a compare-and-swap, so that a cluster that
was restored from a backup is found out (it does not know the version), and the session begins anew.
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
#: Seconds for what is needed before a cluster can be used; whoever takes longer tries again.
_SYNC_SECONDS = 60.0
_JOB_KINDS = {kind.resource: kind for kind in JOB_KINDS}
_JOBS = frozenset(_JOB_KINDS)
_SWEEP_PERIOD = 60.0
#: The reason of a connection that has neither been made nor failed.
CONNECTING = "Connecting"


class RefusedError(Exception):
    """The cluster cannot be used, whatever it answers: `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ConnectionPace(msgspec.Struct, frozen=True):
    """Seconds between renewals of the lease, the longest between tries to connect, for an answer, and between looks
    at what the cluster has."""

    renew: float = LEASE_SECONDS / 6
    retry: float = 15.0
    answer: float = 10.0
    survey: float = 300.0


class ClusterConnection:
    """`changed` is told the uid of a Dispatch whose copies have changed, "" for all. `records` reads the Dispatches
    from the hub's API, not from a cache. `reason` and `message` say how it stands; Active when it can be used."""

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
        #: As it was read last.
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
            for each in {old.label(DISPATCH_LABEL) if old else "", new.label(DISPATCH_LABEL) if new else ""} - {""}:
                self._changed(each)

        return ObjectStore(read_object, index=lambda each: each.label(DISPATCH_LABEL), changed=changed)

    # -- what is known --------------------------------------------------------------------------------------

    def copies(self, dispatch_uid: str) -> Iterable[StoredObject]:
        """The copies of pods; meaningless while it is not `ready`."""
        return self._pods.of(dispatch_uid)

    def group(self, dispatch_uid: str) -> StoredObject | None:
        return next((each for store in self._groups.values() for each in store.of(dispatch_uid)), None)

    def jobs(self, resource: Resource, dispatch_uid: str) -> Iterable[StoredObject]:
        """The copies of a job; meaningless while it is not `ready`."""
        store = self._jobs.get(resource)
        return [each for each in store.of(dispatch_uid) if is_copy(each)] if store is not None else ()

    @property
    def unheard_since(self) -> int:
        """Seconds since the epoch from which on nothing that was sent may have arrived."""
        return max(self.silent_since, self._last_sent)

    def sweep_soon(self) -> None:
        """Something has been left behind there."""
        self._sweep_due = True

    # -- the life of a connection ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
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
        was = self.ready
        self.ready = False
        self.reason, self.message = _reason(error), printable(error)
        # Whoever answers no is there; only silence is a loss.
        lost = isinstance(error, ConnectionLost | TimeoutError) and self.reason == "Unreachable"
        if was or not self.lost:
            self.silent_since = int(time.time())
        self.lost = lost
        if was:
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
                        # What was told to go is looked at again until it has gone.
                        self._sweep_due = await self._sweep() > 0
                    swept = time.monotonic()
                async with asyncio.timeout(self._pace.answer):
                    lease = await self._renew(lease)

    async def _survey(self) -> None:
        """What it has is told, and decides nothing: whatever it shows, the session goes on."""
        while True:
            try:
                async with asyncio.timeout(_SYNC_SECONDS):
                    self.capacity = await read_capacity(self.client)
            except (ApiError, ConnectionLost, TimeoutError) as error:
                log.info("cluster %s: what it has is not known: %s", self.name, printable(error))
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
        """A server that has just started names no custom kinds in its discovery yet, and refuses to list them:
        whoever believed that would take what runs there for gone. So each that is not named is asked for."""
        served = await discover(self.client)
        found = set[Resource]()
        for kind in [kind.resource for kind in GROUP_KINDS] + [kind.resource for kind in JOB_KINDS]:
            named = any(each.version == kind.version for each in served.find(kind.group, kind.plural))
            if named or await self._listable(kind):
                found.add(kind)
        return frozenset(found)

    async def _listable(self, kind: Resource) -> bool:
        try:
            await self.client.get(kind.path(), {"limit": 1})
        except ApiError as error:
            if error.status == 403 or (error.status == 404 and error.from_api_server):
                return False
            raise
        return True

    # -- the lease ------------------------------------------------------------------------------------------

    async def _take_lease(self) -> Json:
        """The lease as it is, unrenewed; made where there is none. Refused where another hub renews it."""
        path = LEASES.path(LEASE_NAMESPACE, HUB_LEASE)
        try:
            lease: Json = await self.client.get(path)
        except ApiError as error:
            if error.status != 404 or not error.from_api_server:
                raise
            # A renewal of long ago: the cluster's scheduler starts nothing on its account.
            spec = {"holderIdentity": self._hub, "leaseDurationSeconds": LEASE_SECONDS}
            made = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": HUB_LEASE}}
            lease = await self.client.create(LEASES.path(LEASE_NAMESPACE), {**made, "spec": spec})
        if not isinstance(lease, dict) or not isinstance(lease.get("spec") or {}, dict):
            raise RefusedError("NotAnApiServer", "what it answers is no Lease")
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and holder != self._hub:
            raise RefusedError(
                "OtherHub",
                f"lease {LEASE_NAMESPACE}/{HUB_LEASE} there belongs to the hub {printable(holder, 60)}; "
                "delete it to take over",
            )
        self.last_seen = int(time.time())
        return lease

    async def _renew(self, lease: Json) -> Json:
        """ApiError 409 where somebody else has written it, or the cluster does not know the version any more."""
        before = _moment((lease.get("spec") or {}).get("renewTime"))
        # Always later than the last, whatever became of our clock: the scheduler there compares no clocks.
        spec = {
            "holderIdentity": self._hub,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(max(time.time(), before + 0.001)),
        }
        self._last_sent = int(time.time())
        renewed: Json = await self.client.replace(LEASES.path(LEASE_NAMESPACE, HUB_LEASE), {**lease, "spec": spec})
        self.last_seen = int(time.time())
        return renewed

    # -- what is left of old epochs -------------------------------------------------------------------------

    async def _sweep_until_clean(self) -> None:
        pause = 0.1
        while await self._sweep():
            self.reason, self.message = "Cleaning", "copies of old epochs are being deleted there"
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    async def _sweep(self) -> int:
        """Deletes copies of old epochs; how many there were. The records are read after the list: a copy is made
        after its record was written, so what this record does not know has been left behind."""
        # A job before its pods: it would make them anew.
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
            found = await self.client.list_all(resource.path(), {"labelSelector": self._selector})
            groups = [
                each for item in found["items"] if (each := read_object(msgspec.json.encode(item))) is not None
            ]
            if groups and not fresh:
                records, fresh = await self._records(), True
            for each in groups:
                record = records.get(each.label(DISPATCH_LABEL))
                if record is None or record.status.cluster != self.name:
                    await _unless_gone(self.client.delete(resource.path(each.namespace, each.name), uid=each.uid))

    async def _list_jobs(self) -> list[tuple[Resource, StoredObject]]:
        found = []
        for resource in self.kinds & _JOBS:
            listed = await self.client.list_all(resource.path(), {"labelSelector": self._selector})
            read = (read_object(msgspec.json.encode(item)) for item in listed["items"])
            found += [(resource, each) for each in read if each is not None and is_copy(each)]
        return found

    async def list_copies(self, namespace: str) -> list[StoredObject]:
        """Read from the cluster's API now; of all namespaces where it is ""."""
        found = await self.client.list_all(PODS.path(namespace or None), {"labelSelector": self._selector})
        return [each for item in found["items"] if (each := read_object(msgspec.json.encode(item))) is not None]

    async def gone(self, namespace: str, dispatch_uid: str, granted: Iterable[str]) -> bool:
        """Whether a list that is read now shows neither copies of a Dispatch nor objects of these uids, nor pods
        that belong to one. All objects of the namespace are read: labels can be taken off by others."""
        uids = set(granted)
        # Jobs first: while there is one it may make pods.
        for resource in (*sorted(self.kinds & _JOBS, key=str), PODS):
            found = await self.client.list_all(resource.path(namespace))
            for item in found["items"]:
                metadata = item.get("metadata") or {}
                owners = {each.get("uid") for each in metadata.get("ownerReferences") or ()}
                if not uids.isdisjoint({metadata.get("uid"), *owners}):
                    return False
                if (metadata.get("labels") or {}).get(DISPATCH_LABEL) == dispatch_uid:
                    return False
        return True

    async def clear(self, namespace: str, step: protocol.Step, resource: Resource = PODS) -> None:
        """Carries out DeleteCopy, RecallCopy and ReleaseCopy; what is gone already is fine. A job goes after its
        pods."""
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
            left = [each for each in metadata.get("finalizers") or () if each != RESULT_FINALIZER]
            precise = {"uid": step.uid, "resourceVersion": metadata["resourceVersion"]}
            patch = {"metadata": {**precise, "finalizers": left}}
            await _unless_gone(self.client.patch(resource.path(namespace, step.name), patch, PatchType.MERGE))

    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message of the MemberCluster's condition Active."""
        return "True" if self.ready else "Unknown" if self.lost else "False", self.reason, self.message

    async def close(self) -> None:
        """After `run` was cancelled."""
        self.ready = False
        await self.client.close()


async def _unless_gone(request: Awaitable[Any]) -> Any:
    """None where the object is gone, is another by now, or has changed: a later look decides anew."""
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
