"""What the hub's own API holds: PodGroups, the pods that are left to the hub, and the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.dialects.dispatched import WHEN_LOST
from phalanx.hub.copies import ended, has_gate, suspended, waits_for_hub
from phalanx.hub.data_objects import DataNeeds, DataObjects
from phalanx.hub.dispatch import Dispatch, GangReference, Phase, read_dispatch
from phalanx.hub.jobs.kinds import JOB_KINDS, REFUSED_KINDS, JobKind, is_left, job_end, wants_suspension
from phalanx.hub.names import (
    CLUSTERS,
    DISPATCHES,
    GROUP_KINDS,
    MEMBER_CLUSTERS,
    QUEUES,
    RERUN_AFTER,
    DispatchedGroupKind,
)
from phalanx.hub.objects import StoredObject, read_object
from phalanx.hub.observed import RERUN_SECONDS, LostPolicy, OriginGang, OriginPod
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.model.text.duration import parse_duration

#: What a gang is: a PodGroup with its pods, or one job.
GangKind: TypeAlias = DispatchedGroupKind | JobKind
#: A group by its kind (an index into GROUP_KINDS), namespace and name.
GroupKey = tuple[int, str, str]


class HubObjects:
    """`refused` is told of a pod that is left to the hub although it is in no group that is dispatched, and
    `job_seen` of each job (an object of a kind that could be dispatched, or of one that is known not to be) as it
    is. `changed` is told which gang (the uid of its PodGroup or job) to look at, `clusters_changed` that a
    MemberCluster has changed."""

    def __init__(
        self,
        changed: Callable[[str], None],
        clusters_changed: Callable[[], None],
        refused: Callable[[Key], None] = lambda key: None,
        job_seen: Callable[[Resource, StoredObject], None] = lambda resource, job: None,
    ) -> None:
        self._job_seen = job_seen
        self._changed = changed
        self._refused = refused
        self.pods: ObjectStore[StoredObject] = ObjectStore(_gated, index=_group_text, changed=self._pod_changed)
        self.groups = [self._group_store() for _ in GROUP_KINDS]
        self.jobs = [(kind, self._job_store(kind.resource)) for kind in JOB_KINDS]
        self.records: ObjectStore[Dispatch] = ObjectStore(
            read_dispatch, index=lambda each: each.gang.uid, changed=self._record_changed
        )
        self.data = DataObjects(self._batch_job)
        self._gang_of: dict[str, str] = {}
        self.queues: ObjectStore[StoredObject] = ObjectStore(read_object)
        self.clusters: ObjectStore[StoredObject] = ObjectStore(
            read_object, changed=lambda key, old, new: clusters_changed()
        )

    def reflectors(self, client: KubeClient, failures: Failures) -> list[Reflector[bytes]]:
        sinks: list[tuple[Resource, Callable[..., None]]] = [
            (PODS, self.pods.sink),
            (DISPATCHES, self.records.sink),
            (MEMBER_CLUSTERS, self.clusters.sink),
            (QUEUES, self.queues.sink),
            *((kind.resource, store.sink) for kind, store in zip(GROUP_KINDS, self.groups, strict=True)),
        ]
        # These may be somebody else's definitions, or not be there.
        jobs = [(kind.resource, store.sink) for kind, store in self.jobs]
        jobs += [(resource, self._job_store(resource).sink) for resource in REFUSED_KINDS]
        return [
            *(Reflector(client, resource, bytes, sink, failures=failures) for resource, sink in sinks),
            *(
                Reflector(client, resource, bytes, sink, failures=failures, optional=True)
                for resource, sink in jobs
            ),
            *self.data.reflectors(client, failures),
        ]

    # -- what is asked --------------------------------------------------------------------------------------

    def record(self, gang_uid: str) -> Dispatch | None:
        """The record of a gang; the oldest where somebody has made a second."""
        found = sorted(self.records.of(gang_uid), key=lambda each: (each.created, each.uid))
        return found[0] if found else None

    def gang_of(self, dispatch_uid: str) -> str:
        """The uid of the PodGroup that a record is about; "" for a record that is not there."""
        return self._gang_of.get(dispatch_uid, "")

    def gangs(self) -> Iterator[str]:
        """All that there may be something to do for."""
        for store in self.groups:
            for group in store.values():
                yield group.uid
        for record in self.records.values():
            yield record.gang.uid

    def group(self, gang_uid: str) -> tuple[GangKind, StoredObject] | None:
        """The PodGroup or the job."""
        for kind, store in zip(GROUP_KINDS, self.groups, strict=True):
            for each in store.of(gang_uid):
                if each.document["metadata"].get("deletionTimestamp") is None:
                    return kind, each
        return self.job(gang_uid)

    def job(self, uid: str) -> tuple[JobKind, StoredObject] | None:
        """A job that is left to the hub."""
        for kind, store in self.jobs:
            for each in store.of(uid):
                if each.document["metadata"].get("deletionTimestamp") is None and is_left(kind, each.document):
                    return kind, each
        return None

    def data_needs(self, gang_uid: str) -> DataNeeds:
        found = self.group(gang_uid)
        if found is None:
            return DataNeeds()
        kind, group = found
        return self.data.needs(kind.resource.api_version, kind.resource.kind, group)

    def _batch_job(self, namespace: str, name: str) -> StoredObject | None:
        store = next(store for kind, store in self.jobs if kind.resource.group == "batch")
        return store.get((namespace, name))

    def members(self, kind: GangKind, group: StoredObject) -> Iterable[StoredObject]:
        """The pods of a group that are left to the hub, by name. A job is its only member."""
        if isinstance(kind, JobKind):
            return [group]
        key = _text(GROUP_KINDS.index(kind), group.namespace, group.name)
        found = [pod for pod in self.pods.of(key) if pod.document["metadata"].get("deletionTimestamp") is None]
        return sorted(found, key=lambda pod: pod.name)

    def view(self, gang_uid: str) -> OriginGang | None:
        """None where there is no such PodGroup or job any more."""
        found = self.group(gang_uid)
        if found is None:
            return None
        kind, group = found
        if isinstance(kind, JobKind):
            return self._job_view(kind, group)
        pods = tuple(
            OriginPod(pod.name, pod.uid, ended(pod.document), pod.document["status"].get("phase") == "Failed")
            for pod in self.members(kind, group)
            if waits_for_hub(pod.document)
        )
        least = (group.document.get("spec") or {}).get("minMember")
        return OriginGang(
            gang_uid,
            pods,
            least if isinstance(least, int) and least > 0 else 1,
            suspended(group.document),
            _policy(group.annotation(WHEN_LOST)),
            _seconds(group.annotation(RERUN_AFTER)),
            _names(group.annotation(CLUSTERS)),
        )

    def _job_view(self, kind: JobKind, job: StoredObject) -> OriginGang:
        """One that is suspended is not sent anywhere; one that has been granted is suspended where it is."""
        end, record = job_end(kind, job.document), self.record(job.uid)
        nowhere = record is None or record.phase in (Phase.PENDING, Phase.COPYING)
        return OriginGang(
            job.uid,
            (OriginPod(job.name, job.uid, end.ended, end.failed),),
            suspended=suspended(job.document) or (nowhere and wants_suspension(kind, job.document)),
            lost_policy=_policy(job.annotation(WHEN_LOST)),
            rerun_after=_seconds(job.annotation(RERUN_AFTER)),
            clusters=_names(job.annotation(CLUSTERS)),
        )

    # -- what has changed -----------------------------------------------------------------------------------

    def _group_store(self) -> ObjectStore[StoredObject]:
        def changed(key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
            for uid in {each.uid for each in (old, new) if each is not None}:
                self._changed(uid)

        return ObjectStore(read_object, index=lambda each: each.uid, changed=changed)

    def _job_store(self, resource: Resource) -> ObjectStore[StoredObject]:
        def changed(key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
            if new is not None:
                self._job_seen(resource, new)
            for uid in {each.uid for each in (old, new) if each is not None}:
                self._changed(uid)

        return ObjectStore(read_object, index=lambda each: each.uid, changed=changed)

    def _pod_changed(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        if new is not None and group_of(new) is None:
            self._refused(key)
        for pod in (old, new):
            if pod is not None and (group := group_of(pod)) is not None:
                kind, namespace, name = group
                found = self.groups[kind].get((namespace, name))
                if found is not None:
                    self._changed(found.uid)

    def _record_changed(self, key: Key, old: Dispatch | None, new: Dispatch | None) -> None:
        if old is not None:
            self._gang_of.pop(old.uid, None)
        if new is not None:
            self._gang_of[new.uid] = new.gang.uid
        for uid in {each.gang.uid for each in (old, new) if each is not None}:
            self._changed(uid)


def reference(kind: GangKind, group: StoredObject) -> GangReference:
    return GangReference(kind.resource.api_version, group.name, group.uid, kind.resource.kind)


def group_of(pod: StoredObject) -> GroupKey | None:
    """Which group a pod is in; None for none of a kind that is dispatched."""
    for index, kind in enumerate(GROUP_KINDS):
        if name := kind.group_of(pod.document["metadata"]):
            return index, pod.namespace, name
    return None


def _gated(raw: bytes) -> StoredObject | None:
    found = read_object(raw)
    return found if found is not None and has_gate(found.document) else None


def _group_text(pod: StoredObject) -> str:
    found = group_of(pod)
    return _text(*found) if found is not None else ""


def _text(kind: int, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _policy(text: str) -> LostPolicy:
    """Wait where nothing else is said, and where what is said is not understood."""
    try:
        return LostPolicy(text or LostPolicy.WAIT.value)
    except ValueError:
        return LostPolicy.WAIT


def _seconds(text: str) -> int:
    if not text:
        return RERUN_SECONDS
    try:
        return max(0, int(parse_duration(text)))
    except (ValueError, OverflowError):
        return RERUN_SECONDS


def records_by_uid(items: Iterable[object]) -> dict[str, Dispatch]:
    """Of a list from the API. Raises msgspec.ValidationError where one cannot be read: nothing may be swept
    then."""
    found = [read_dispatch(msgspec.json.encode(item)) for item in items]
    return {each.uid: each for each in found}
