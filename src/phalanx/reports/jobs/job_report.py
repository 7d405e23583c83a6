"""Jobs of one or all namespaces with their pods and PodGroups; rights in one namespace suffice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.core import decode_pod
from phalanx.dialects.gangs.declaration import Declaration, GangDeclarations
from phalanx.dialects.gangs.job_owner import submitted_job
from phalanx.dialects.registry import installed_dialects
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.discovery import Discovery, discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangOwner
from phalanx.model.gang_names import AmbiguousGangError
from phalanx.model.text.decoding import quoted
from phalanx.model.verdict_condition import LAST_VERDICT
from phalanx.reports.jobs.document_facts import document_facts
from phalanx.reports.jobs.entries import (
    ConditionEntry,
    EventEntry,
    JobDescription,
    JobEntry,
    PodEntry,
)
from phalanx.reports.jobs.job_names import find_named, name_facts, with_shown_names
from phalanx.reports.jobs.job_run_time import documented_run_time
from phalanx.reports.jobs.kinds import GANG, JOB, JOB_SET, RESOURCES, VCJOB, VOLCANO_JOBS, group_kinds
from phalanx.reports.jobs.read_documents import (
    conditions_of,
    controller_of,
    job_entry,
    mapping,
    number,
    policy_lines,
    read_pod,
    task_entries,
    text,
)
from phalanx.views.gang_state import gang_state

EVENTS = Resource("", "v1", "events", "Event")
_MOST_EVENTS = 12
_RAY_CLUSTER = Resource("ray.io", "v1", "rayclusters", "RayCluster")
# Kinds with pods that start and end one by one.
_SERVICES = frozenset({"ReplicaSet", "ReplicationController", "DaemonSet", "Node"})
_SELECTORS = {
    VCJOB: "volcano.sh/job-name",
    JOB: "batch.kubernetes.io/job-name",
    JOB_SET: "jobset.sigs.k8s.io/jobset-name",
}

Json = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name


class FoundJob(msgspec.Struct, frozen=True):
    """Job with its API objects: the job itself, its PodGroups and its pods.

    `document` is its own, `groups` are the PodGroups, `members` the pods. `target` is KIND/NAME for commands, "" if
    it was read alone. `job` is the job that the user created, if it is neither this one nor its controller.
    """

    entry: JobEntry
    document: Json
    groups: tuple[Json, ...]
    pods: tuple[PodEntry, ...]
    resource: Resource | None
    members: tuple[Json, ...] = ()
    target: str = ""
    job: GangOwner | None = None


class _Row:
    def __init__(self, kind: str, document: Json, resource: Resource | None) -> None:
        self.kind = kind
        self.document = document
        self.resource = resource
        self.pods: list[Json] = []
        self.groups: list[Json] = []
        # Minimum that the pods state, if only pods declare the gang.
        self.minimum = ""
        self.job: GangOwner | None = None


class JobReader:
    """Reader of jobs from the API. `warnings` names unreadable kinds. Kinds are discovered once."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._served: Discovery | None = None
        self._gangs = GangDeclarations([naming for dialect in installed_dialects() for naming in dialect.namings])
        self._progress: Callable[[str, int, int], object] = lambda kind, read, remaining: None
        self.warnings: list[str] = []
        # Forbidden kinds, with the API server's message.
        self.forbidden: dict[Resource, str] = {}

    async def has_volcano_jobs(self) -> bool:
        return VOLCANO_JOBS in (await self._discovery()).find(VOLCANO_JOBS.group, VOLCANO_JOBS.plural)

    async def kinds(self) -> list[Resource]:
        """Return all kinds that a list of jobs reads."""
        return [PODS, *(await self._resources()).values(), *await self._group_resources()]

    async def jobs(
        self,
        namespace: str | None,
        now: float,
        kinds: Collection[str] = (),
        *,
        loose: Collection[str] = (),
        progress: Callable[[str, int, int], object] = lambda kind, read, remaining: None,
    ) -> list[FoundJob]:
        """Return the jobs of a namespace or of the cluster, by namespace and name.

        `kinds` restricts them. Unowned pods of the schedulers `loose` have rows of their own, one row per
        controller. `progress` receives a kind, its number of objects read, and the number remaining.
        """
        self.warnings.clear()
        self.forbidden.clear()
        self._progress = progress
        resources = await self._resources()
        groups = await self._group_resources()
        listed = await asyncio.gather(
            *(self._list(resource, namespace) for resource in (PODS, *resources.values(), *groups))
        )
        pods, of_kind, of_group = listed[0], listed[1 : 1 + len(resources)], listed[1 + len(resources) :]
        rows: dict[str, _Row] = {}
        inner: dict[str, str] = {}
        for (kind, resource), documents in zip(resources.items(), of_kind, strict=True):
            for document in documents:
                rows[_uid(document)] = _Row(kind, document, resource)
        for uid, row in list(rows.items()):
            owner = text(controller_of(row.document).get("uid"))
            if owner in rows:
                inner[uid] = owner
                del rows[uid]
        all_groups = [
            (resource, document)
            for resource, documents in zip(groups, of_group, strict=True)
            for document in documents
        ]
        _join(rows, inner, pods, all_groups, self._gang_of)
        if loose:
            _add_loose(rows, pods, loose)
        await self._note_submitted(rows.values(), namespace)
        named = with_shown_names([_found(row, now) for row in rows.values()])
        selected = [found for found in named if not kinds or found.entry.kind in kinds]
        return sorted(selected, key=lambda job: (job.entry.namespace, job.entry.name, job.entry.kind))

    async def _note_submitted(self, rows: Iterable[_Row], namespace: str | None) -> None:
        """Record the RayJobs and RayServices above the RayClusters that control pods or PodGroups."""
        of_cluster = [row for row in rows if controller_of(row.document).get("kind") == _RAY_CLUSTER.kind]
        if not of_cluster or not (await self._discovery()).find(_RAY_CLUSTER.group, _RAY_CLUSTER.plural):
            return
        clusters = {_uid(document): document for document in await self._list(_RAY_CLUSTER, namespace)}
        for row in of_cluster:
            cluster = clusters.get(text(controller_of(row.document).get("uid")))
            row.job = submitted_job(cluster["metadata"]) if cluster is not None else None

    async def job(self, kind: str, namespace: str, name: str, now: float) -> FoundJob | None:
        """Return one job; without a kind the first job of that name, Volcano Jobs first. Raises AmbiguousName."""
        jobs = []
        for candidate in (kind,) if kind else (VCJOB, JOB, JOB_SET):
            resource = (await self._resources()).get(candidate)
            if resource is None:
                continue
            document = await self._get(resource, namespace, name)
            if document is not None:
                jobs.append((candidate, resource, document))
        if len(jobs) > 1:
            raise AmbiguousName(name, [f"{candidate}/{name}" for candidate, _, _ in jobs])
        if not jobs:
            gangs = await self.jobs(namespace, now, (GANG,)) if kind in ("", GANG) else []
            return next((candidate for candidate in gangs if candidate.entry.name == name), None)
        ((kind, resource, document),) = jobs
        selector = f"{_SELECTORS[kind]}={name}"
        pods = await self._list(PODS, namespace, selector=selector) if len(name) < 64 else []
        row = _Row(kind, document, resource)
        uid = _uid(document)
        # Pods of a deleted job of the same name are excluded; pods of a JobSet belong to its jobs.
        row.pods = [
            candidate for candidate in pods if kind == JOB_SET or controller_of(candidate).get("uid") == uid
        ]
        owners = {uid, *(text(controller_of(candidate).get("uid")) for candidate in row.pods)}
        names = {self._gang_of(candidate)[0] for candidate in row.pods[:1]}
        listed = await asyncio.gather(
            *(self._list(candidate, namespace) for candidate in await self._group_resources())
        )
        for groups in listed:
            row.groups += [group for group in groups if _owners(group) & owners or _name(group) in names]
        return _found(row, now)

    def entry_of(self, job: FoundJob, document: Json, now: float) -> JobEntry:
        """Return the entry of a job from a later state of its own object, without its pods."""
        return _found(_Row(job.entry.kind, document, job.resource), now).entry

    async def named(self, namespace: str, name: str, now: float, kind: str = "") -> FoundJob | None:
        """Return the job with this name, or whose PodGroup or gang has this name. Raises AmbiguousName."""
        jobs = [(job, self._gangs_of(job)) for job in await self.jobs(namespace, now)]
        try:
            return find_named(jobs, namespace, name, kind)
        except AmbiguousGangError as error:
            raise AmbiguousName(name, error.candidates) from error

    def _gangs_of(self, found: FoundJob) -> frozenset[str]:
        named = frozenset(_name(group) for group in found.groups)
        return named or frozenset(self._gang_of(pod)[0] for pod in found.members) - {""}

    async def describe(self, job: FoundJob) -> JobDescription:
        uids = {job.entry.uid, *map(_uid, job.groups)} - {""}
        events = [event for event in await self._list(EVENTS, job.entry.namespace) if _about_uid(event) in uids]
        events.sort(key=_seen)
        conditions = conditions_of(job.document, job.entry.target)
        # Users do not know the name of a generated PodGroup.
        shown = {_name(group): f"podgroup/{name_facts(job).short}" for group in job.groups}
        for group in job.groups:
            if job.entry.kind != GANG:
                conditions += conditions_of(group, shown[_name(group)])
        volcano = job.entry.kind == VCJOB
        plugins = mapping(mapping(job.document.get("spec")).get("plugins")) if volcano else {}
        return JobDescription(
            job=job.entry,
            plugins={name: [str(word) for word in words or ()] for name, words in plugins.items()},
            policies=policy_lines(job.document) if volcano else [],
            tasks=task_entries(job.document) if volcano else [],
            pods=list(job.pods),
            run_time=documented_run_time(job.document, job.groups, job.members),
            # This condition repeats for programs the text of the other conditions.
            conditions=_newest_first(event for event in conditions if event.type != LAST_VERDICT),
            events=[_event(event, shown) for event in events[-_MOST_EVENTS:]],
        )

    # reading

    async def _discovery(self) -> Discovery:
        if self._served is None:
            self._served = await discover(self._client)
        return self._served

    async def _resources(self) -> dict[str, Resource]:
        served = await self._discovery()
        return {kind: resource for kind, resource in RESOURCES.items() if _serves(served, resource)}

    async def _group_resources(self) -> list[Resource]:
        """Return the preferred served version of each API group with PodGroups."""
        served = await self._discovery()
        best: dict[str, Resource] = {}
        for resource in group_kinds():
            if _serves(served, resource):
                best.setdefault(resource.group, resource)
        return list(best.values())

    async def _list(self, resource: Resource, namespace: str | None, selector: str | None = None) -> list[Json]:
        try:
            listed = await self._client.list_all(
                resource.path(namespace),
                {"labelSelector": selector},
                progress=lambda read, remaining: self._progress(resource.plural + resource.group, read, remaining),
            )
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            if error.status == 403:
                self.forbidden[resource] = error.message
            self.warnings.append(f"{resource.plural}.{resource.group or 'core'} not read: {error.message}")
            return []
        items: list[Json] = listed["items"]
        for item in items:  # items of a list omit their common apiVersion and kind
            item["apiVersion"], item["kind"] = resource.api_version, resource.kind
        return items

    async def _get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        try:
            document: Json = await self._client.get(resource.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return document

    def unread_groups(self, pods: Iterable[Json]) -> list[str]:
        """Return the kinds of PodGroups that pods name and the user cannot list."""
        named = {resource.naming for pod in pods if (resource := self._declared(pod)) is not None}
        groups = {
            kind.kind.group
            for dialect in installed_dialects()
            if any(naming in named and not naming.rules.alone for naming in dialect.namings)
            for kind in dialect.groups
        }
        hidden = [
            resource for resource in self.forbidden if resource.kind == "PodGroup" and resource.group in groups
        ]
        return sorted({f"{resource.plural}.{resource.group}" for resource in hidden})

    def _gang_of(self, pod: Json) -> tuple[str, str]:
        """Return the gang that a pod names and its stated minimum, ("", "") for none."""
        declared = self._declared(pod)
        if declared is None:
            return "", ""
        return declared.name, declared.minimum.value if declared.minimum is not None else ""

    def _declared(self, pod: Json) -> Declaration | None:
        try:
            return self._gangs.declare(decode_pod(msgspec.json.encode(pod)))
        except msgspec.DecodeError:
            return None


class AmbiguousName(Exception):  # noqa: N818 - not a failure
    def __init__(self, name: str, candidates: Iterable[str]) -> None:
        super().__init__(f"several jobs have the name {quoted(name)}: use {', '.join(candidates)}")


def _join(
    rows: dict[str, _Row],
    inner: Mapping[str, str],
    pods: Iterable[Json],
    groups: Iterable[tuple[Resource, Json]],
    gang_of: Any,
) -> None:
    """Assign pods and PodGroups to their jobs; gangs without a job become entries of their own."""
    members: dict[tuple[str, str], list[tuple[str, Json, str]]] = defaultdict(list)
    for pod in pods:
        owner = text(controller_of(pod).get("uid"))
        root = inner.get(owner, owner)
        root = root if root in rows else ""
        if root:
            rows[root].pods.append(pod)
        if not root or (rows[root].kind != VCJOB and len(rows[root].pods) == 1):
            name, minimum = gang_of(pod)
            if name:
                members[_namespace(pod), name].append((root, pod, minimum))
    for resource, group in groups:
        owned = [uid for uid in (inner.get(owner_uid, owner_uid) for owner_uid in _owners(group)) if uid in rows]
        of_group = members.pop((_namespace(group), _name(group)), [])
        roots = owned or ([root for root, _, _ in of_group] if all(root for root, _, _ in of_group) else [])
        for root in dict.fromkeys(roots):
            rows[root].groups.append(group)
        if not roots:
            row = rows[_uid(group)] = _Row(GANG, group, resource)
            row.pods = [pod for _, pod, _ in of_group]
            row.groups = [group]
    for (namespace, name), of_gang in members.items():
        for root, _, minimum in of_gang:
            if root:
                rows[root].minimum = minimum
        free = [(pod, minimum) for root, pod, minimum in of_gang if not root]
        if free:
            rows[f"{namespace}/{name}"] = _declared(namespace, name, free)


def _declared(namespace: str, name: str, members: list[tuple[Json, str]]) -> _Row:
    """Return the entry of a gang that only its pods declare."""
    stated = next((count for _, minimum in members if (count := _whole(minimum))), 0)
    created = min(text(mapping(pod["metadata"]).get("creationTimestamp")) for pod, _ in members)
    spec = {"minMember": stated}
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    row = _Row(GANG, {"metadata": metadata, "spec": spec}, None)
    row.pods = [pod for pod, _ in members]
    return row


def _add_loose(rows: dict[str, _Row], pods: Iterable[Json], schedulers: Collection[str]) -> None:
    """Add entries for the remaining pods: one per controller unless it is a service, else one per pod."""
    taken = {_uid(pod) for row in rows.values() for pod in row.pods}
    for pod in pods:
        owner = controller_of(pod)
        ours = mapping(pod.get("spec")).get("schedulerName") in schedulers
        if not ours or _uid(pod) in taken or owner.get("kind") in _SERVICES:
            continue
        metadata = mapping(pod.get("metadata"))
        if owner:
            metadata = {**metadata, "name": text(owner.get("name")), "uid": text(owner.get("uid"))}
        key = f"loose {_namespace(pod)}/{text(metadata.get('uid'))}"
        if key not in rows:
            alone = {"metadata": metadata, "spec": {"minMember": 1}}
            rows[key] = _Row(GANG, {"metadata": metadata}, None) if owner else _Row(GANG, alone, PODS)
        rows[key].pods.append(pod)


def _whole(text: str) -> int:
    """Parse a number of members; return 0 for an invalid text."""
    return int(text[:9]) if text.isascii() and text.isdecimal() else 0


def found_job(
    kind: str,
    document: Json,
    resource: Resource | None,
    members: Sequence[Json],
    groups: Sequence[Json],
    now: float,
) -> FoundJob:
    """Build the job of these API documents, with the state of its gang."""
    row = _Row(kind, document, resource)
    row.pods, row.groups = list(members), list(groups)
    return _found(row, now)


def _found(row: _Row, now: float) -> FoundJob:
    pods = sorted(map(read_pod, row.pods), key=lambda pod: (pod.task, pod.index, pod.name))
    entry = job_entry(row.kind, row.document, pods, row.groups, now)
    if not row.groups and row.kind in (JOB, JOB_SET) and (stated := _whole(row.minimum)):
        entry = msgspec.structs.replace(entry, minimum=stated)
    if row.kind == GANG and row.resource not in (None, PODS):
        # A queue label outside its spec charges nothing; the pods then name the queue.
        entry = msgspec.structs.replace(entry, queue=text(mapping(row.document.get("spec")).get("queue")))
    entry = msgspec.structs.replace(entry, state=gang_state(document_facts(entry, row.document, pods)))
    job = FoundJob(entry, row.document, tuple(row.groups), tuple(pods), row.resource, tuple(row.pods))
    return msgspec.structs.replace(job, job=row.job) if row.job is not None else job


def _serves(served: Discovery, resource: Resource) -> bool:
    return any(candidate.version == resource.version for candidate in served.find(resource.group, resource.plural))


def _newest_first(conditions: Iterable[ConditionEntry]) -> list[ConditionEntry]:
    return sorted(conditions, key=lambda condition: condition.since, reverse=True)


def _uid(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("uid"))


def _name(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("name"))


def _namespace(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("namespace"))


def _owners(document: Json) -> set[str]:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    return {text(mapping(owner).get("uid")) for owner in (owners if isinstance(owners, list) else ())} - {""}


def _about_uid(event: Json) -> str:
    return text((mapping(event.get("involvedObject")) or mapping(event.get("regarding"))).get("uid"))


def _seen(event: Json) -> str:
    series = text(mapping(event.get("series")).get("lastObservedTime"))
    return series or text(event.get("lastTimestamp")) or text(event.get("eventTime"))


def _event(event: Json, shown: Mapping[str, str]) -> EventEntry:
    """Return an Event for the description of a job; `shown` maps PodGroups to their shown names."""
    about = mapping(event.get("involvedObject"))
    kind, name = text(about.get("kind")).lower(), text(about.get("name"))
    return EventEntry(
        type=text(event.get("type")),
        reason=text(event.get("reason")),
        about=shown.get(name, f"{kind}/{name}") if kind == "podgroup" else f"{kind}/{name}",
        message=text(event.get("message")) or text(event.get("note")),
        count=number(mapping(event.get("series")).get("count")) or number(event.get("count")) or 1,
        seen=_seen(event),
    )
