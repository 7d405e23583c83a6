"""Owners of pods and PodGroups: users name a gang by the job that created it.

Operators choose the name of a PodGroup, and whether the job, its pods or an object between them owns it. Therefore
owner references are followed upwards from pods and PodGroups, for any kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from phalanx.jobs.suspended import QUEUE_LABEL, is_over, is_suspended
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.discovery import Discovery, discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.gang_names import AmbiguousGangError
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.jobs.kinds import group_kinds
from phalanx.reports.jobs.read_documents import mapping, text
from phalanx.reports.owner_kinds import job_kinds, suspendable_kind
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.refusals.refusal import AWAITING_ADMISSION

Json = dict[str, Any]

# Kinds between an object and its pods, or kinds above many unrelated objects.
_NO_JOBS = frozenset(("Pod", "Node", "Job", "ReplicaSet"))


class Owner(msgspec.Struct, frozen=True):
    """Owner of an object as an owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str


class OwnerTree:
    """Objects of one namespace by uid, with their owner references."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._owners: dict[str, tuple[Owner, ...]] = {}

    def add(self, document: Mapping[str, Any]) -> None:
        metadata = mapping(document.get("metadata"))
        stated = metadata.get("ownerReferences")
        owners = [mapping(reference) for reference in stated] if isinstance(stated, list) else []
        self._owners[text(metadata.get("uid"))] = tuple(
            Owner(*(text(reference.get(key)) for key in ("apiVersion", "kind", "name", "uid")))
            for reference in owners
        )

    def unread(self) -> set[tuple[str, str]]:
        """Return (apiVersion, kind) of owners that were not read, so that their own owners are unknown."""
        owners = (owner for owners in self._owners.values() for owner in owners if owner.kind != "Node")
        return {(owner.api_version, owner.kind) for owner in owners if owner.uid not in self._owners}

    def above(self, uid: str) -> Iterator[Owner]:
        """Yield all owners of an object, each once, nearest first."""
        seen, later = {uid}, [uid]
        for each in later:
            for owner in self._owners.get(each, ()):
                if owner.uid not in seen:
                    seen.add(owner.uid)
                    later.append(owner.uid)
                    yield owner

    def below(self, name: str, kind: str = "") -> set[str]:
        """Return the uids of all objects below the owner with a given name.

        `kind` is in lower case, "" for any kind that users submit; of nested owners the topmost counts. Raises
        AmbiguousGangError.
        """
        tops = self.owners(name, kind)
        kinds = sorted({owner.kind.lower() for owner in tops})
        if len(kinds) > 1:
            raise AmbiguousGangError(self.namespace, name, [f"{candidate}/{name}" for candidate in kinds])
        return set[str]().union(*tops.values())

    def owners(self, name: str, kind: str = "") -> dict[Owner, set[str]]:
        """Return, for each owner with a given name, the uids of the objects below it."""
        uids_by_owner: dict[Owner, set[str]] = defaultdict(set)
        for uid in self._owners:
            for owner in self.above(uid):
                fits = owner.kind.lower() == kind if kind else owner.kind not in _NO_JOBS
                if owner.name == name and fits:
                    uids_by_owner[owner].add(uid)
        uids = {owner.uid for owner in uids_by_owner}
        return {
            owner: below
            for owner, below in uids_by_owner.items()
            if uids.isdisjoint(ancestor.uid for ancestor in self.above(owner.uid))
        }


class OwnerLookup:
    """Reader of the jobs, PodGroups and pods in one namespace. Each kind is listed once."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._served: Discovery | None = None
        self._lists: dict[tuple[str, str], tuple[Resource | None, dict[str, Json]]] = {}

    async def discovery(self) -> Discovery:
        if self._served is None:
            self._served = await discover(self._client)
        return self._served

    async def objects(self, api_version: str, kind: str) -> tuple[Resource | None, dict[str, Json]]:
        """Return (the kind, None if it cannot be listed; its objects in the namespace by uid)."""
        known = self._lists.get((api_version, kind))
        if known is None:
            group, _, version = api_version.rpartition("/")
            kinds = (await self.discovery()).find_kind(group, kind)
            resource = next(
                (candidate for candidate in kinds if candidate.version == version), next(iter(kinds), None)
            )
            objects: dict[str, Json] = {}
            if resource is not None:
                try:
                    listed = await self._client.list_all(resource.path(self.namespace))
                    objects = {
                        text(mapping(candidate.get("metadata")).get("uid")): candidate
                        for candidate in listed["items"]
                    }
                except ApiError as error:
                    if error.status not in (403, 404):
                        raise
                    resource = None
            known = self._lists[api_version, kind] = (resource, objects)
        return known

    async def tree(self) -> OwnerTree:
        """Return the tree of pods, PodGroups and all readable owners above them."""
        tree, read = OwnerTree(self.namespace), set[tuple[str, str]]()
        groups = {(group_kind.group, group_kind.kind): group_kind for group_kind in reversed(group_kinds())}
        wanted = {
            (PODS.api_version, PODS.kind),
            *((group_kind.api_version, group_kind.kind) for group_kind in groups.values()),
        }
        while wanted:
            for api_version, kind in sorted(wanted):
                _, found = await self.objects(api_version, kind)
                for document in found.values():
                    tree.add(document)
            read |= wanted
            wanted = tree.unread() - read
        return tree

    async def called(self, name: str, kind: str = "") -> list[tuple[Resource, Json]]:
        """Return the jobs with a given name, with or without pods and a PodGroup.

        `kind` is in lower case, "" for any.
        """
        served, documents = await self.discovery(), []
        for group, plural, each in job_kinds():
            resource = next(iter(served.find(group, plural)), None)
            if resource is None or (kind and each.lower() != kind):
                continue
            try:
                documents.append((resource, await self._client.get(resource.path(self.namespace, name))))
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
        return documents


async def below(reader: OwnerLookup, name: str, kind: str = "") -> set[str]:
    """Return the uids of pods and PodGroups of the named job.

    A job without own pods yields the objects of its owner. Raises AmbiguousGangError.
    """
    tree = await reader.tree()
    uids = tree.below(name, kind)
    if uids or not kind:
        return uids
    for _, document in await reader.called(name, kind):
        tree.add(document)
        tops = list(tree.above(text(mapping(document.get("metadata")).get("uid"))))
        for top in tops[-1:]:
            uids |= tree.below(top.name, top.kind.lower())
    return uids


async def without_pods(reader: OwnerLookup, name: str, kind: str = "") -> str:
    """Return a message about the named job without pods and without a PodGroup; "" if there is no such job."""
    for resource, document in await reader.called(name, kind):
        title = f"{resource.kind.lower()}/{name}"
        no_pods = f"{title} has neither pods nor a PodGroup"
        suspendable = suspendable_kind(resource)
        if suspendable is not None and is_suspended(suspendable, document):
            return f"{no_pods}: it is suspended. Fix: phalanx release {title} -n {reader.namespace}"
        why = "it is over" if is_over(document) else "its operator has not created them, or they were deleted"
        return f"{no_pods}: {why}"
    return ""


# Reasons of a gang whose owner creates no members while it is suspended.
_WITHOUT_MEMBERS = (NOT_ENOUGH_MEMBERS, AWAITING_ADMISSION)


async def add_suspended_job(reader: OwnerLookup, answer: WhyAnswer | None) -> WhyAnswer | None:
    """Add to the answer about a gang without members that its job is suspended, if so.

    Some operators keep the PodGroup of a suspended job.
    """
    if answer is None or answer.kind != "Gang" or answer.reason not in _WITHOUT_MEMBERS:
        return answer
    if answer.members is None or answer.members.present or answer.members.gated:
        return answer
    for owner in (await reader.tree()).above(answer.uid):
        resource, objects = await reader.objects(owner.api_version, owner.kind)
        kind, job = suspendable_kind(resource) if resource is not None else None, objects.get(owner.uid, {})
        if kind is None or not is_suspended(kind, job) or QUEUE_LABEL in mapping(job["metadata"].get("labels")):
            continue
        title = f"{owner.kind.lower()}/{owner.name}"
        answer.message += f": {title} is suspended"
        answer.change = f"run: phalanx release {title} -n {reader.namespace}"
        return answer
    return answer
