"""Objects in the hub's own API: PodGroups, pods with the dispatch gate, jobs, and Dispatches."""

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

#: Kind of a gang: a PodGroup with its pods, or one job.
GangKind: TypeAlias = DispatchedGroupKind | JobKind
#: Key of a group: its kind (an index into GROUP_KINDS), namespace and name.
GroupKey = tuple[int, str, str]


class HubObjects:
    """Stores of the objects in the hub's own API.

    `refused` is called with a gated pod without a group that can be dispatched. `job_seen` is called with each job
    of a kind that can be dispatched, or is known not to be. `changed` is called with the uid of a changed gang's
    PodGroup or job, `clusters_changed` after a change of a MemberCluster.
    """

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
            read_dispatch, index=lambda record: record.gang.uid, changed=self._record_changed
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
        # These CRDs belong to other projects and are optional.
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

    # -- queries -------------------------------------------------------------------------------------------

    def record(self, gang_uid: str) -> Dispatch | None:
        """Return the Dispatch of a gang, the oldest if a user has created a second one."""
        records = sorted(self.records.of(gang_uid), key=lambda record: (record.created, record.uid))
        return records[0] if records else None

    def gang_of(self, dispatch_uid: str) -> str:
        """Return the uid of the gang that a Dispatch concerns; "" for an unknown Dispatch."""
        return self._gang_of.get(dispatch_uid, "")

    def gangs(self) -> Iterator[str]:
        """Yield the uids of all gangs at the hub and of the gangs of all Dispatches."""
        for store in self.groups:
            for group in store.values():
                yield group.uid
        for record in self.records.values():
            yield record.gang.uid

    def group(self, gang_uid: str) -> tuple[GangKind, StoredObject] | None:
        """Return the PodGroup or the job of a gang by the gang's uid."""
        for kind, store in zip(GROUP_KINDS, self.groups, strict=True):
            for group in store.of(gang_uid):
                if group.document["metadata"].get("deletionTimestamp") is None:
                    return kind, group
        return self.job(gang_uid)

    def job(self, uid: str) -> tuple[JobKind, StoredObject] | None:
        """Return a job that the hub dispatches, by its uid."""
        for kind, store in self.jobs:
            for job in store.of(uid):
                if job.document["metadata"].get("deletionTimestamp") is None and is_left(kind, job.document):
                    return kind, job
        return None

    def data_needs(self, gang_uid: str) -> DataNeeds:
        kind_and_group = self.group(gang_uid)
        if kind_and_group is None:
            return DataNeeds()
        kind, group = kind_and_group
        return self.data.needs(kind.resource.api_version, kind.resource.kind, group)

    def _batch_job(self, namespace: str, name: str) -> StoredObject | None:
        store = next(store for kind, store in self.jobs if kind.resource.group == "batch")
        return store.get((namespace, name))

    def members(self, kind: GangKind, group: StoredObject) -> Iterable[StoredObject]:
        """Return the gated pods of a PodGroup by name. A job is its own only member."""
        if isinstance(kind, JobKind):
            return [group]
        key = _text(GROUP_KINDS.index(kind), group.namespace, group.name)
        pods = [pod for pod in self.pods.of(key) if pod.document["metadata"].get("deletionTimestamp") is None]
        return sorted(pods, key=lambda pod: pod.name)

    def view(self, gang_uid: str) -> OriginGang | None:
        """Return the gang, or None if its PodGroup or job no longer exists."""
        kind_and_group = self.group(gang_uid)
        if kind_and_group is None:
            return None
        kind, group = kind_and_group
        if isinstance(kind, JobKind):
            return self._job_view(kind, group)
        pods = tuple(
            OriginPod(pod.name, pod.uid, ended(pod.document), pod.document["status"].get("phase") == "Failed")
            for pod in self.members(kind, group)
            if waits_for_hub(pod.document)
        )
        min_member = (group.document.get("spec") or {}).get("minMember")
        return OriginGang(
            gang_uid,
            pods,
            min_member if isinstance(min_member, int) and min_member > 0 else 1,
            suspended(group.document),
            _policy(group.annotation(WHEN_LOST)),
            _seconds(group.annotation(RERUN_AFTER)),
            _names(group.annotation(CLUSTERS)),
        )

    def _job_view(self, kind: JobKind, job: StoredObject) -> OriginGang:
        """Return a job as a gang of the hub; a suspended job is not dispatched, and its granted copy is
        suspended."""
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

    # -- changes -------------------------------------------------------------------------------------------

    def _group_store(self) -> ObjectStore[StoredObject]:
        def changed(key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
            for uid in {group.uid for group in (old, new) if group is not None}:
                self._changed(uid)

        return ObjectStore(read_object, index=lambda group: group.uid, changed=changed)

    def _job_store(self, resource: Resource) -> ObjectStore[StoredObject]:
        def changed(key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
            if new is not None:
                self._job_seen(resource, new)
            for uid in {job.uid for job in (old, new) if job is not None}:
                self._changed(uid)

        return ObjectStore(read_object, index=lambda job: job.uid, changed=changed)

    def _pod_changed(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        if new is not None and group_of(new) is None:
            self._refused(key)
        for pod in (old, new):
            if pod is not None and (group := group_of(pod)) is not None:
                kind, namespace, name = group
                stored_group = self.groups[kind].get((namespace, name))
                if stored_group is not None:
                    self._changed(stored_group.uid)

    def _record_changed(self, key: Key, old: Dispatch | None, new: Dispatch | None) -> None:
        if old is not None:
            self._gang_of.pop(old.uid, None)
        if new is not None:
            self._gang_of[new.uid] = new.gang.uid
        for uid in {record.gang.uid for record in (old, new) if record is not None}:
            self._changed(uid)


def reference(kind: GangKind, group: StoredObject) -> GangReference:
    return GangReference(kind.resource.api_version, group.name, group.uid, kind.resource.kind)


def group_of(pod: StoredObject) -> GroupKey | None:
    """Return the PodGroup that a pod names; None if it names none of a dispatched kind."""
    for index, kind in enumerate(GROUP_KINDS):
        if name := kind.group_of(pod.document["metadata"]):
            return index, pod.namespace, name
    return None


def _gated(raw: bytes) -> StoredObject | None:
    pod = read_object(raw)
    return pod if pod is not None and has_gate(pod.document) else None


def _group_text(pod: StoredObject) -> str:
    group = group_of(pod)
    return _text(*group) if group is not None else ""


def _text(kind: int, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _policy(text: str) -> LostPolicy:
    """Return the policy for gangs in lost clusters that an annotation states; Wait without a valid one."""
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
    """Return the Dispatches of an API list by uid. Raises msgspec.ValidationError for an unreadable one.

    Then no copy must be deleted as stale.
    """
    records = [read_dispatch(msgspec.json.encode(item)) for item in items]
    return {record.uid: record for record in records}
