"""Gang that a user's command concerns, with its owner, which would recreate its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.jobs.suspended import SUSPENDABLE, SuspendableKind
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import quoted
from phalanx.orders.errors import BadNameError, NotFoundError, OrderError
from phalanx.orders.found_job import find_job
from phalanx.reports.jobs.entries import PodEntry
from phalanx.reports.jobs.job_report import JobReader
from phalanx.reports.jobs.kinds import GANG, VOLCANO_JOBS, WORDS
from phalanx.reports.jobs.read_documents import controller_of, mapping, read_pod, text
from phalanx.reports.owner_kinds import job_words, suspendable_kind
from phalanx.reports.owners import OwnerLookup

Json = dict[str, Any]

_POD_WORDS = frozenset({"pod", "pods", "po"})
# Kinds that create jobs repeatedly: an order is for one run, below such an object.
_SCHEDULES = frozenset({"CronJob", "ScheduledSparkApplication", "CronWorkflow"})
_MOST_OWNERS = 8


@dataclass(frozen=True)
class Target:
    """Gang that a user's command concerns. `title` is its name for users, such as pytorchjob/train.

    `document` is the controlling object, None for a gang that only its pods declare; `resource` is its kind.
    `chain` has the titles from the named object up to the last one below the controlling object. `groups` are the
    PodGroups if the gang was found by them, `members` its pods as documents.
    """

    title: str
    namespace: str
    resource: Resource | None
    document: Json | None
    chain: tuple[str, ...]
    groups: tuple[tuple[Resource, Json], ...]
    members: tuple[Json, ...]

    @property
    def pods(self) -> list[PodEntry]:
        return [read_pod(pod) for pod in self.members]

    @property
    def running(self) -> int:
        return sum(pod.phase == "Running" and not pod.terminating for pod in self.pods)

    @property
    def placed(self) -> int:
        return sum(bool(pod.node) and pod.phase in ("Pending", "Running") for pod in self.pods)

    @property
    def volcano_job(self) -> bool:
        return self.resource == VOLCANO_JOBS

    @property
    def suspendable(self) -> SuspendableKind | None:
        """Kind of the gang's owner if jobs of this kind can be suspended, else None."""
        return suspendable_kind(self.resource) if self.resource is not None else None

    @property
    def path(self) -> str:
        assert self.resource is not None
        assert self.document is not None
        return self.resource.path(self.namespace, name_of(self.document))

    @property
    def uid(self) -> str:
        """Uid of the gang's owner; of the oldest pod if only pods declare the gang."""
        if self.document is None:
            pods = [mapping(metadata.get("metadata")) for metadata in self.members]
            keys = ("creationTimestamp", "name", "uid")
            ages = sorted(tuple(text(metadata.get(key)) for key in keys) for metadata in pods)
            return ages[0][2] if ages else ""
        return text(mapping(self.document.get("metadata")).get("uid"))

    def note(self, part: str, key: str) -> str:
        """Return a label (if `part` is labels) or annotation of the gang's owner; "" if absent."""
        return text(mapping(mapping((self.document or {}).get("metadata")).get(part)).get(key))


def name_of(document: Mapping[str, Any]) -> str:
    return text(mapping(document.get("metadata")).get("name"))


def text_of_row(name: str, *, pod: bool) -> str:
    """Return the argument of `TargetFinder.find` for a row of the page: a pod, a gang, or KIND/NAME of a job."""
    if pod:
        return f"pod/{name}"
    word, slash, _ = name.partition("/")
    return name if slash and (word in WORDS or word in job_words()) else f"podgroup/{name}"


class TargetFinder:
    """Finder of the gang that a user names, in one namespace; each kind is listed once."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._reader = JobReader(client)
        self._owners = OwnerLookup(client, namespace)

    async def find(self, name: str) -> Target:
        """Return the gang named `NAME` or `KIND/NAME`. Raises OrderError if there is none or more than one."""
        word, slash, object_name = name.partition("/")
        if not slash:
            word, object_name = "", name
        word = word.lower()
        if "/" in object_name and word not in WORDS:
            # The text is the name of a part of a job, as lists show it: orders apply to the whole job.
            owner = job_words().get(word)
            word, object_name = (owner, object_name.partition("/")[0]) if owner else ("", name)
        if not object_name:
            raise BadNameError(f"{quoted(name)}: expected NAME or KIND/NAME, such as vcjob/train")
        groups: tuple[tuple[Resource, Json], ...] = ()
        if word in _POD_WORDS:
            members: Sequence[Json] = [await self._get(PODS, object_name)]
            first, resource = members[0], PODS
        elif word == "" or word in WORDS:
            kind = WORDS.get(word, "")
            try:
                job_found = await find_job(self._reader, kind, object_name, self._namespace)
            except NotFoundError as error:
                # The operator gives the PodGroup another name, or has created none.
                job = None if kind else await self._job_named(object_name)
                if job is None:
                    if await self._is_pod(object_name):
                        raise NotFoundError(f"{error.message}; write pod/{object_name} for the pod") from error
                    raise
                (resource, first), members = job, []
            else:
                members = job_found.members
                if job_found.entry.kind == GANG:
                    group_resource = job_found.resource
                    groups = tuple(
                        (group_resource, group) for group in job_found.groups if group_resource is not None
                    )
                    return await self._of_gang(job_found.entry.name, groups, members)
                first, resource = job_found.document, job_found.resource or PODS
        else:
            resource = await self._suspendable_resource(word)
            members, first = [], await self._get(resource, object_name)
        top, chain = await self._top(resource, first)
        if resource is not PODS or top[0] is not PODS:
            members = await self._members_of(top[1]) or members
        return self._target(top[0], top[1], chain, groups, members)

    async def _of_gang(
        self, name: str, groups: tuple[tuple[Resource, Json], ...], members: Sequence[Json]
    ) -> Target:
        """Return the target for a PodGroup or labelled pods: the controller of the PodGroup, else of the first pod,
        else the gang itself."""
        for resource, document in (*groups, *((PODS, pod) for pod in members[:1])):
            if controller_of(document):
                top, chain = await self._top(resource, document)
                if top[1] is not document:
                    # Pods that name the gang and belong to another owner stay members.
                    owned_pods = await self._members_of(top[1])
                    return self._target(top[0], top[1], chain, groups, owned_pods or members)
        if groups:
            resource, document = groups[0]
            return self._target(resource, document, (), groups, members)
        if kinds := self._reader.unread_groups(members):
            raise OrderError(
                f"podgroup/{name}: cannot list {', '.join(kinds)} in namespace {self._namespace}, and its pods "
                "name such an object, which would remain; nothing was done. Get rights to list and delete them"
            )
        return Target(f"podgroup/{name}", self._namespace, None, None, (), (), tuple(members))

    def _target(
        self,
        resource: Resource,
        document: Json,
        chain: tuple[str, ...],
        groups: tuple[tuple[Resource, Json], ...],
        members: Sequence[Json],
    ) -> Target:
        title = _title(resource, document)
        return Target(title, self._namespace, resource, document, chain, groups, tuple(members))

    # owners

    async def _job_named(self, name: str) -> tuple[Resource, Json] | None:
        """Return the topmost job with a name, of any kind; None if there is none. Raises OrderError for several."""
        jobs = await self._owners.called(name)
        owners = (await self._owners.tree()).owners(name) if not jobs else {}
        for owner in owners:
            resource, objects = await self._owners.objects(owner.api_version, owner.kind)
            if resource is not None and owner.uid in objects:
                jobs.append((resource, objects[owner.uid]))
        tops: dict[str, tuple[Resource, Json]] = {}
        for job in jobs:
            top, _ = await self._top(*job)
            tops[text(mapping(top[1].get("metadata")).get("uid"))] = top
        if len(tops) > 1:
            titles = ", ".join(sorted(_title(*top) for top in tops.values()))
            raise OrderError(f"{len(tops)} jobs are named {quoted(name)}; specify one of {titles}")
        return next(iter(tops.values()), None)

    async def _top(self, resource: Resource, document: Json) -> tuple[tuple[Resource, Json], tuple[str, ...]]:
        """Return the topmost controller of an object, and the titles of the objects below it. A deleted controller
        is ignored. Raises OrderError if one cannot be read."""
        chain: list[str] = []
        for _ in range(_MOST_OWNERS):
            reference = controller_of(document)
            if not reference or reference.get("kind") in _SCHEDULES or reference.get("kind") == "Node":
                break
            owner_resource, objects = await self._owners.objects(
                text(reference.get("apiVersion")), text(reference.get("kind"))
            )
            above = objects.get(text(reference.get("uid")))
            if owner_resource is None:
                raise OrderError(
                    f"{_title(resource, document)} belongs to {reference.get('kind')}/{reference.get('name')} of "
                    f"{reference.get('apiVersion')}, which cannot be read"
                )
            if above is None:
                break
            chain.append(_title(resource, document))
            resource, document = owner_resource, above
        return (resource, document), tuple(chain)

    async def _members_of(self, top: Json) -> list[Json]:
        """Return the pods that an object controls, directly or through other controllers."""
        uid, members = text(mapping(top.get("metadata")).get("uid")), []
        _, pods = await self._owners.objects("v1", "Pod")
        for pod in pods.values():
            document: Json | None = pod
            for _ in range(_MOST_OWNERS):
                reference = controller_of(document or {})
                if not reference:
                    break
                if text(reference.get("uid")) == uid:
                    members.append(pod)
                    break
                _, above = await self._owners.objects(
                    text(reference.get("apiVersion")), text(reference.get("kind"))
                )
                document = above.get(text(reference.get("uid")))
        return members

    # reading

    async def _get(self, resource: Resource, name: str) -> Json:
        try:
            document: Json = await self._client.get(resource.path(self._namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise
            kind = resource.kind.lower()
            raise OrderError(f"no {kind} {quoted(name)} in namespace {quoted(self._namespace)}") from error
        return document

    async def _is_pod(self, name: str) -> bool:
        """Return whether a pod has this name, as far as the user can read it."""
        _, pods = await self._owners.objects("v1", "Pod")
        return any(name_of(pod) == name for pod in pods.values())

    async def _suspendable_resource(self, word: str) -> Resource:
        for kind in SUSPENDABLE:
            served = kind.served
            if word.partition(".")[0] in (served.kind.lower(), served.plural):
                resources = (await self._owners.discovery()).find(served.group, served.plural)
                if not resources:
                    raise OrderError(f"this cluster does not have the kind {served.kind} of {served.group}")
                return resources[0]
        if resources := [
            resource for resource in (await self._owners.discovery()).lookup(word) if resource.namespaced
        ]:
            return resources[0]
        known = ", ".join(["vcjob", "podgroup", "pod", *(kind.served.kind.lower() for kind in SUSPENDABLE)])
        raise BadNameError(f"unknown kind {quoted(word)}: expected one of {known}")


def _title(resource: Resource, document: Json) -> str:
    word = "vcjob" if resource == VOLCANO_JOBS else resource.kind.lower()
    return f"{word}/{name_of(document)}"
