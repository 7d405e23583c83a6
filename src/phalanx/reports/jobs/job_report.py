"""Jobs of a namespace or of all, read from the API with what belongs to them; rights in the namespace will do."""

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
# Whose pods come and go one by one.
_SERVICES = frozenset({"ReplicaSet", "ReplicationController", "DaemonSet", "Node"})
_SELECTORS = {
    VCJOB: "volcano.sh/job-name",
    JOB: "batch.kubernetes.io/job-name",
    JOB_SET: "jobset.sigs.k8s.io/jobset-name",
}

Json = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name


class FoundJob(msgspec.Struct, frozen=True):
    """A job with its objects: `document` is its own, `groups` are its PodGroups', `members` its pods'.
    `target` is KIND/NAME, as commands take it, "" where it was read alone. `job` is the
    job that a user wrote, where it is neither this one nor a controller of it."""

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
        # What its pods state, where they alone declare the gang that they are.
        self.minimum = ""
        self.job: GangOwner | None = None


class JobReader:
    """`warnings` names kinds that could not be read. Kinds are looked up once."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._served: Discovery | None = None
        self._gangs = GangDeclarations([naming for dialect in installed_dialects() for naming in dialect.namings])
        self._progress: Callable[[str, int, int], object] = lambda kind, read, left: None
        self.warnings: list[str] = []
        # The kinds that may not be listed, and what the API server says.
        self.forbidden: dict[Resource, str] = {}

    async def has_volcano_jobs(self) -> bool:
        return VOLCANO_JOBS in (await self._discovery()).find(VOLCANO_JOBS.group, VOLCANO_JOBS.plural)

    async def kinds(self) -> list[Resource]:
        """All whose objects are read for a list."""
        return [PODS, *(await self._resources()).values(), *await self._group_resources()]

    async def jobs(
        self,
        namespace: str | None,
        now: float,
        kinds: Collection[str] = (),
        *,
        loose: Collection[str] = (),
        progress: Callable[[str, int, int], object] = lambda kind, read, left: None,
    ) -> list[FoundJob]:
        """All of a namespace, or of the cluster, of some kinds or of all; by namespace and name. Pods of the
        schedulers `loose` that belong to none of them have rows of their own, together where one controller makes
        them. `progress` is told how many objects of a kind are read, and how many are left."""
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
        found = [each for each in named if not kinds or each.entry.kind in kinds]
        return sorted(found, key=lambda job: (job.entry.namespace, job.entry.name, job.entry.kind))

    async def _note_submitted(self, rows: Iterable[_Row], namespace: str | None) -> None:
        """Note the RayJobs and RayServices above the RayClusters that control pods or PodGroups."""
        of_cluster = [row for row in rows if controller_of(row.document).get("kind") == _RAY_CLUSTER.kind]
        if not of_cluster or not (await self._discovery()).find(_RAY_CLUSTER.group, _RAY_CLUSTER.plural):
            return
        clusters = {_uid(each): each for each in await self._list(_RAY_CLUSTER, namespace)}
        for row in of_cluster:
            cluster = clusters.get(text(controller_of(row.document).get("uid")))
            row.job = submitted_job(cluster["metadata"]) if cluster is not None else None

    async def job(self, kind: str, namespace: str, name: str, now: float) -> FoundJob | None:
        """One job; without a kind the first of that name, Volcano Jobs first. Raises AmbiguousName."""
        found = []
        for each in (kind,) if kind else (VCJOB, JOB, JOB_SET):
            resource = (await self._resources()).get(each)
            if resource is None:
                continue
            document = await self._get(resource, namespace, name)
            if document is not None:
                found.append((each, resource, document))
        if len(found) > 1:
            raise AmbiguousName(name, [f"{each}/{name}" for each, _, _ in found])
        if not found:
            gangs = await self.jobs(namespace, now, (GANG,)) if kind in ("", GANG) else []
            return next((each for each in gangs if each.entry.name == name), None)
        ((kind, resource, document),) = found
        selector = f"{_SELECTORS[kind]}={name}"
        pods = await self._list(PODS, namespace, selector=selector) if len(name) < 64 else []
        row = _Row(kind, document, resource)
        uid = _uid(document)
        # Pods of a job of the same name that is gone are not its own; those of a JobSet belong to its jobs.
        row.pods = [each for each in pods if kind == JOB_SET or controller_of(each).get("uid") == uid]
        owners = {uid, *(text(controller_of(each).get("uid")) for each in row.pods)}
        names = {self._gang_of(each)[0] for each in row.pods[:1]}
        listed = await asyncio.gather(*(self._list(each, namespace) for each in await self._group_resources()))
        for groups in listed:
            row.groups += [group for group in groups if _owners(group) & owners or _name(group) in names]
        return _found(row, now)

    async def named(self, namespace: str, name: str, now: float, kind: str = "") -> FoundJob | None:
        """Return the job that a user means by a name of its own, of its PodGroup, or of a gang of its pods. Raises
        AmbiguousName."""
        jobs = [(found, self._gangs_of(found)) for found in await self.jobs(namespace, now)]
        try:
            return find_named(jobs, namespace, name, kind)
        except AmbiguousGangError as error:
            raise AmbiguousName(name, error.candidates) from error

    def _gangs_of(self, found: FoundJob) -> frozenset[str]:
        named = frozenset(_name(group) for group in found.groups)
        return named or frozenset(self._gang_of(pod)[0] for pod in found.members) - {""}

    async def describe(self, job: FoundJob) -> JobDescription:
        uids = {job.entry.uid, *map(_uid, job.groups)} - {""}
        events = [each for each in await self._list(EVENTS, job.entry.namespace) if _about_uid(each) in uids]
        events.sort(key=_seen)
        conditions = conditions_of(job.document, job.entry.target)
        # A generated PodGroup has a name that its user did not write.
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
            # What this one has for programs the others have for people.
            conditions=_newest_first(each for each in conditions if each.type != LAST_VERDICT),
            events=[_event(each, shown) for each in events[-_MOST_EVENTS:]],
        )

    # reading

    async def _discovery(self) -> Discovery:
        if self._served is None:
            self._served = await discover(self._client)
        return self._served

    async def _resources(self) -> dict[str, Resource]:
        served = await self._discovery()
        return {kind: each for kind, each in RESOURCES.items() if _serves(served, each)}

    async def _group_resources(self) -> list[Resource]:
        """Of each API group the best version that is served."""
        served = await self._discovery()
        best: dict[str, Resource] = {}
        for each in group_kinds():
            if _serves(served, each):
                best.setdefault(each.group, each)
        return list(best.values())

    async def _list(self, resource: Resource, namespace: str | None, selector: str | None = None) -> list[Json]:
        try:
            listed = await self._client.list_all(
                resource.path(namespace),
                {"labelSelector": selector},
                progress=lambda read, left: self._progress(resource.plural + resource.group, read, left),
            )
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            if error.status == 403:
                self.forbidden[resource] = error.message
            self.warnings.append(f"{resource.plural}.{resource.group or 'core'} not read: {error.message}")
            return []
        items: list[Json] = listed["items"]
        for item in items:  # a list leaves out what all of its items are
            item["apiVersion"], item["kind"] = resource.api_version, resource.kind
        return items

    async def _get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        try:
            found: Json = await self._client.get(resource.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def unread_groups(self, pods: Iterable[Json]) -> list[str]:
        """The kinds of PodGroups that may not be listed and of which the pods name one."""
        named = {each.naming for pod in pods if (each := self._declared(pod)) is not None}
        groups = {
            kind.kind.group
            for dialect in installed_dialects()
            if any(naming in named and not naming.rules.alone for naming in dialect.namings)
            for kind in dialect.groups
        }
        hidden = [each for each in self.forbidden if each.kind == "PodGroup" and each.group in groups]
        return sorted({f"{each.plural}.{each.group}" for each in hidden})

    def _gang_of(self, pod: Json) -> tuple[str, str]:
        """The gang that a pod names and the minimum that it states, "" for none."""
        declared = self._declared(pod)
        if declared is None:
            return "", ""
        return declared.name, declared.minimum.value if declared.minimum is not None else ""

    def _declared(self, pod: Json) -> Declaration | None:
        try:
            return self._gangs.declare(decode_pod(msgspec.json.encode(pod)))
        except msgspec.DecodeError:
            return None


class AmbiguousName(Exception):  # noqa: N818 - nothing failed yet
    def __init__(self, name: str, candidates: Iterable[str]) -> None:
        super().__init__(f"several jobs have the name {name!r}: write {', '.join(candidates)}")


def _join(
    rows: dict[str, _Row],
    inner: Mapping[str, str],
    pods: Iterable[Json],
    groups: Iterable[tuple[Resource, Json]],
    gang_of: Any,
) -> None:
    """Gives each job its pods and groups; gangs that are nobody's get rows of their own."""
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
        owned = [uid for uid in (inner.get(each, each) for each in _owners(group)) if uid in rows]
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
    """A gang that only its pods declare."""
    stated = next((found for _, minimum in members if (found := _whole(minimum))), 0)
    created = min(text(mapping(pod["metadata"]).get("creationTimestamp")) for pod, _ in members)
    spec = {"minMember": stated}
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    row = _Row(GANG, {"metadata": metadata, "spec": spec}, None)
    row.pods = [pod for pod, _ in members]
    return row


def _add_loose(rows: dict[str, _Row], pods: Iterable[Json], schedulers: Collection[str]) -> None:
    """Rows for pods that are in none: by their controllers, which mean no service; else one each."""
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
    """A number of members, 0 for what is none."""
    return int(text[:9]) if text.isascii() and text.isdecimal() else 0


def found_job(
    kind: str,
    document: Json,
    resource: Resource | None,
    members: Sequence[Json],
    groups: Sequence[Json],
    now: float,
) -> FoundJob:
    """Return the job of these documents, with the state of its gang."""
    row = _Row(kind, document, resource)
    row.pods, row.groups = list(members), list(groups)
    return _found(row, now)


def _found(row: _Row, now: float) -> FoundJob:
    pods = sorted(map(read_pod, row.pods), key=lambda pod: (pod.task, pod.index, pod.name))
    entry = job_entry(row.kind, row.document, pods, row.groups, now)
    if not row.groups and row.kind in (JOB, JOB_SET) and (stated := _whole(row.minimum)):
        entry = msgspec.structs.replace(entry, minimum=stated)
    if row.kind == GANG and row.resource not in (None, PODS):
        # What stands beside its spec charges it to nothing: then its pods say the queue.
        entry = msgspec.structs.replace(entry, queue=text(mapping(row.document.get("spec")).get("queue")))
    entry = msgspec.structs.replace(entry, state=gang_state(document_facts(entry, row.document, pods)))
    found = FoundJob(entry, row.document, tuple(row.groups), tuple(pods), row.resource, tuple(row.pods))
    return msgspec.structs.replace(found, job=row.job) if row.job is not None else found


def _serves(served: Discovery, resource: Resource) -> bool:
    return any(each.version == resource.version for each in served.find(resource.group, resource.plural))


def _newest_first(conditions: Iterable[ConditionEntry]) -> list[ConditionEntry]:
    return sorted(conditions, key=lambda each: each.since, reverse=True)


def _uid(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("uid"))


def _name(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("name"))


def _namespace(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("namespace"))


def _owners(document: Json) -> set[str]:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    return {text(mapping(each).get("uid")) for each in (owners if isinstance(owners, list) else ())} - {""}


def _about_uid(event: Json) -> str:
    return text((mapping(event.get("involvedObject")) or mapping(event.get("regarding"))).get("uid"))


def _seen(event: Json) -> str:
    series = text(mapping(event.get("series")).get("lastObservedTime"))
    return series or text(event.get("lastTimestamp")) or text(event.get("eventTime"))


def _event(event: Json, shown: Mapping[str, str]) -> EventEntry:
    """Return an event; `shown` has the names of PodGroups in views."""
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
