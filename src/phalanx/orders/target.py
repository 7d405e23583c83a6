"""The gang that is meant, with the object at the top of it: whatever would make its pods anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.jobs.suspended import SUSPENDABLE, SuspendableKind
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.orders.errors import BadNameError, NotFoundError, OrderError
from phalanx.orders.found_job import find_job
from phalanx.reports.jobs.entries import PodEntry
from phalanx.reports.jobs.job_report import JobReader
from phalanx.reports.jobs.kinds import GANG, VOLCANO_JOBS, WORDS
from phalanx.reports.jobs.read_documents import controller_of, mapping, read_pod, text
from phalanx.reports.owner_kinds import suspendable_kind
from phalanx.reports.owners import OwnerLookup

Json = dict[str, Any]

_POD_WORDS = frozenset({"pod", "pods", "po"})
# What makes jobs again and again: a gang's run ends below it.
_SCHEDULES = frozenset({"CronJob", "ScheduledSparkApplication", "CronWorkflow"})
_MOST_OWNERS = 8


@dataclass(frozen=True)
class Target:
    """`title` is what people call it, such as pytorchjob/train. `document` is the object at the top, None for a
    gang that only its pods declare; `resource` is its kind. `chain` are the objects from what was named to the top.
    `groups` are its PodGroups where it was found by them, `members` its pods as documents."""

    title: str
    namespace: str
    resource: Resource | None
    document: Json | None
    chain: tuple[str, ...]
    groups: tuple[tuple[Resource, Json], ...]
    members: tuple[Json, ...]

    @property
    def pods(self) -> list[PodEntry]:
        return [read_pod(each) for each in self.members]

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
        """How it is suspended, where its kind can be."""
        return suspendable_kind(self.resource) if self.resource is not None else None

    @property
    def path(self) -> str:
        assert self.resource is not None
        assert self.document is not None
        return self.resource.path(self.namespace, name_of(self.document))

    @property
    def uid(self) -> str:
        """Of the object at the top; of a gang that only its pods declare, that of the oldest of them."""
        if self.document is None:
            pods = [mapping(each.get("metadata")) for each in self.members]
            keys = ("creationTimestamp", "name", "uid")
            ages = sorted(tuple(text(each.get(key)) for key in keys) for each in pods)
            return ages[0][2] if ages else ""
        return text(mapping(self.document.get("metadata")).get("uid"))

    def note(self, part: str, key: str) -> str:
        """A label (`part` labels) or annotation of the object at the top."""
        return text(mapping(mapping((self.document or {}).get("metadata")).get(part)).get(key))


def name_of(document: Mapping[str, Any]) -> str:
    return text(mapping(document.get("metadata")).get("name"))


class TargetFinder:
    """Looks targets up in one namespace; kinds are listed once."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._reader = JobReader(client)
        self._owners = OwnerLookup(client, namespace)

    async def find(self, name: str) -> Target:
        """`NAME` or `KIND/NAME`. Raises OrderError where there is none, or several."""
        word, slash, rest = name.partition("/")
        if not slash:
            word, rest = "", name
        word = word.lower()
        if "/" in rest and word not in WORDS:
            # A part of what an owner starts, as lists show it.
            word, rest = "", name
        if not rest:
            raise BadNameError(f"{name!r}: expected NAME or KIND/NAME, such as vcjob/train")
        groups: tuple[tuple[Resource, Json], ...] = ()
        if word in _POD_WORDS:
            members: Sequence[Json] = [await self._get(PODS, rest)]
            first, resource = members[0], PODS
        elif word == "" or word in WORDS:
            kind = WORDS.get(word, "")
            try:
                found = await find_job(self._reader, kind, rest, self._namespace)
            except NotFoundError:
                # Its operator calls the PodGroup something else, or has made none.
                job = None if kind else await self._job_called(rest)
                if job is None:
                    raise
                (resource, first), members = job, []
            else:
                members = found.members
                if found.entry.kind == GANG:
                    where = found.resource
                    groups = tuple((where, group) for group in found.groups if where is not None)
                    return await self._of_gang(found.entry.name, groups, members)
                first, resource = found.document, found.resource or PODS
        else:
            resource = await self._suspendable_resource(word)
            members, first = [], await self._get(resource, rest)
        top, chain = await self._top(resource, first)
        if resource is not PODS or top[0] is not PODS:
            members = await self._members_of(top[1]) or members
        return self._target(top[0], top[1], chain, groups, members)

    async def _of_gang(
        self, name: str, groups: tuple[tuple[Resource, Json], ...], members: Sequence[Json]
    ) -> Target:
        """By the controller of its PodGroup, else by that of its first pod."""
        for resource, document in (*groups, *((PODS, pod) for pod in members[:1])):
            if controller_of(document):
                top, chain = await self._top(resource, document)
                if top[1] is not document:
                    # Pods that hold to the gang without the owner (another's) stay members.
                    found = await self._members_of(top[1])
                    return self._target(top[0], top[1], chain, groups, found or members)
        if groups:
            resource, document = groups[0]
            return self._target(resource, document, (), groups, members)
        if kinds := self._reader.unread_groups(members):
            raise OrderError(
                f"podgroup/{name}: you may not list {', '.join(kinds)} in namespace {self._namespace}, and its "
                "pods name one, which would stay: nothing was done; ask for the right to list and delete them"
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

    async def _job_called(self, name: str) -> tuple[Resource, Json] | None:
        """The topmost job of a name, of whatever kind; None where there is none. Raises OrderError for several."""
        found = await self._owners.called(name)
        owners = (await self._owners.tree()).owners(name) if not found else {}
        for owner in owners:
            resource, objects = await self._owners.objects(owner.api_version, owner.kind)
            if resource is not None and owner.uid in objects:
                found.append((resource, objects[owner.uid]))
        tops: dict[str, tuple[Resource, Json]] = {}
        for each in found:
            top, _ = await self._top(*each)
            tops[text(mapping(top[1].get("metadata")).get("uid"))] = top
        if len(tops) > 1:
            told = ", ".join(sorted(_title(*top) for top in tops.values()))
            raise OrderError(f"several jobs are called {name!r}; say which: {told}")
        return next(iter(tops.values()), None)

    async def _top(self, resource: Resource, document: Json) -> tuple[tuple[Resource, Json], tuple[str, ...]]:
        """The topmost controller that makes a run, and the objects below it. What is not there any more is no
        controller. Raises OrderError where one cannot be read."""
        chain: list[str] = []
        for _ in range(_MOST_OWNERS):
            reference = controller_of(document)
            if not reference or reference.get("kind") in _SCHEDULES or reference.get("kind") == "Node":
                break
            where, objects = await self._owners.objects(
                text(reference.get("apiVersion")), text(reference.get("kind"))
            )
            above = objects.get(text(reference.get("uid")))
            if where is None:
                raise OrderError(
                    f"{_title(resource, document)} belongs to {reference.get('kind')}/{reference.get('name')} of "
                    f"{reference.get('apiVersion')}, which cannot be read"
                )
            if above is None:
                break
            chain.append(_title(resource, document))
            resource, document = where, above
        return (resource, document), tuple(chain)

    async def _members_of(self, top: Json) -> list[Json]:
        """The pods below an object."""
        uid, found = text(mapping(top.get("metadata")).get("uid")), []
        _, pods = await self._owners.objects("v1", "Pod")
        for pod in pods.values():
            document: Json | None = pod
            for _ in range(_MOST_OWNERS):
                reference = controller_of(document or {})
                if not reference:
                    break
                if text(reference.get("uid")) == uid:
                    found.append(pod)
                    break
                _, above = await self._owners.objects(
                    text(reference.get("apiVersion")), text(reference.get("kind"))
                )
                document = above.get(text(reference.get("uid")))
        return found

    # reading

    async def _get(self, resource: Resource, name: str) -> Json:
        try:
            found: Json = await self._client.get(resource.path(self._namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise
            what = resource.kind.lower()
            raise OrderError(f"no {what} {name!r} in namespace {self._namespace!r}") from error
        return found

    async def _suspendable_resource(self, word: str) -> Resource:
        for kind in SUSPENDABLE:
            served = kind.served
            if word.partition(".")[0] in (served.kind.lower(), served.plural):
                found = (await self._owners.discovery()).find(served.group, served.plural)
                if not found:
                    raise OrderError(f"this cluster does not have the kind {served.kind} of {served.group}")
                return found[0]
        if found := [each for each in (await self._owners.discovery()).lookup(word) if each.namespaced]:
            return found[0]
        known = ", ".join(["vcjob", "podgroup", "pod", *(kind.served.kind.lower() for kind in SUSPENDABLE)])
        raise BadNameError(f"unknown kind {word!r}: expected one of {known}")


def _title(resource: Resource, document: Json) -> str:
    word = "vcjob" if resource == VOLCANO_JOBS else resource.kind.lower()
    return f"{word}/{name_of(document)}"
