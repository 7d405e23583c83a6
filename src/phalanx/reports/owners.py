"""Who owns pods and PodGroups, and who owns those: gangs are asked about by the name of whatever made them.

The name of a PodGroup that an operator makes is the operator's affair, and so is which of the job, its pods and
what is between them it belongs to. So owner references are followed upwards from pods and PodGroups, whatever their
kinds.
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

Json = dict[str, Any]

# What lies between an object and its pods, or above many objects that have nothing else to do with each other.
_NO_JOBS = frozenset(("Pod", "Node", "Job", "ReplicaSet"))


class Owner(msgspec.Struct, frozen=True):
    """As an owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str


class OwnerTree:
    """Objects of one namespace, by uid, with the references to their owners."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._owners: dict[str, tuple[Owner, ...]] = {}

    def add(self, document: Mapping[str, Any]) -> None:
        metadata = mapping(document.get("metadata"))
        stated = metadata.get("ownerReferences")
        owners = [mapping(each) for each in stated] if isinstance(stated, list) else []
        self._owners[text(metadata.get("uid"))] = tuple(
            Owner(*(text(each.get(key)) for key in ("apiVersion", "kind", "name", "uid"))) for each in owners
        )

    def unread(self) -> set[tuple[str, str]]:
        """(apiVersion, kind) of owners that are not here, so that nobody knows who owns them."""
        owners = (owner for owners in self._owners.values() for owner in owners if owner.kind != "Node")
        return {(owner.api_version, owner.kind) for owner in owners if owner.uid not in self._owners}

    def above(self, uid: str) -> Iterator[Owner]:
        """All owners, each once, the nearest first."""
        seen, later = {uid}, [uid]
        for each in later:
            for owner in self._owners.get(each, ()):
                if owner.uid not in seen:
                    seen.add(owner.uid)
                    later.append(owner.uid)
                    yield owner

    def below(self, name: str, kind: str = "") -> set[str]:
        """The uids of what belongs to an owner of that name. `kind` is the owner's in small letters; "" for any
        that people submit, of several that belong to each other the topmost. Raises AmbiguousGangError."""
        tops = self.owners(name, kind)
        kinds = sorted({owner.kind.lower() for owner in tops})
        if len(kinds) > 1:
            raise AmbiguousGangError(self.namespace, name, [f"{each}/{name}" for each in kinds])
        return set[str]().union(*tops.values())

    def owners(self, name: str, kind: str = "") -> dict[Owner, set[str]]:
        """As `below`, by owner."""
        found: dict[Owner, set[str]] = defaultdict(set)
        for uid in self._owners:
            for owner in self.above(uid):
                fits = owner.kind.lower() == kind if kind else owner.kind not in _NO_JOBS
                if owner.name == name and fits:
                    found[owner].add(uid)
        uids = {owner.uid for owner in found}
        return {
            owner: below
            for owner, below in found.items()
            if uids.isdisjoint(each.uid for each in self.above(owner.uid))
        }


class OwnerLookup:
    """Reads objects of one namespace; kinds are listed once."""

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
        """(The kind, None where it cannot be listed; its objects of the namespace by uid)."""
        known = self._lists.get((api_version, kind))
        if known is None:
            group, _, version = api_version.rpartition("/")
            kinds = (await self.discovery()).find_kind(group, kind)
            resource = next((each for each in kinds if each.version == version), next(iter(kinds), None))
            objects: dict[str, Json] = {}
            if resource is not None:
                try:
                    listed = await self._client.list_all(resource.path(self.namespace))
                    objects = {text(mapping(each.get("metadata")).get("uid")): each for each in listed["items"]}
                except ApiError as error:
                    if error.status not in (403, 404):
                        raise
                    resource = None
            known = self._lists[api_version, kind] = (resource, objects)
        return known

    async def tree(self) -> OwnerTree:
        """Pods and PodGroups, and all above them that may be read."""
        tree, read = OwnerTree(self.namespace), set[tuple[str, str]]()
        groups = {(each.group, each.kind): each for each in reversed(group_kinds())}
        wanted = {(PODS.api_version, PODS.kind), *((each.api_version, each.kind) for each in groups.values())}
        while wanted:
            for api_version, kind in sorted(wanted):
                _, found = await self.objects(api_version, kind)
                for document in found.values():
                    tree.add(document)
            read |= wanted
            wanted = tree.unread() - read
        return tree

    async def called(self, name: str, kind: str = "") -> list[tuple[Resource, Json]]:
        """The jobs of that name, which need have neither pods nor a PodGroup; `kind` in small letters, "" for
        any."""
        served, found = await self.discovery(), []
        for group, plural, each in job_kinds():
            resource = next(iter(served.find(group, plural)), None)
            if resource is None or (kind and each.lower() != kind):
                continue
            try:
                found.append((resource, await self._client.get(resource.path(self.namespace, name))))
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
        return found


async def below(reader: OwnerLookup, name: str, kind: str = "") -> set[str]:
    """The uids of pods and PodGroups of the job of that name, as `OwnerTree.below`; where a job of that kind has
    none itself, of all that belongs to whoever made it. Raises AmbiguousGangError."""
    tree = await reader.tree()
    found = tree.below(name, kind)
    if found or not kind:
        return found
    for _, document in await reader.called(name, kind):
        tree.add(document)
        tops = list(tree.above(text(mapping(document.get("metadata")).get("uid"))))
        for top in tops[-1:]:
            found |= tree.below(top.name, top.kind.lower())
    return found


async def without_pods(reader: OwnerLookup, name: str, kind: str = "") -> str:
    """A sentence about a job of that name which has neither pods nor a PodGroup, "" for none."""
    for resource, document in await reader.called(name, kind):
        title = f"{resource.kind.lower()}/{name}"
        there = f"{title} has neither pods nor a PodGroup"
        suspendable = suspendable_kind(resource)
        if suspendable is not None and is_suspended(suspendable, document):
            return f"{there}: it is suspended. To let it go: phalanx release {title} -n {reader.namespace}"
        why = "it is over" if is_over(document) else "its operator has made none, or they are gone"
        return f"{there}: {why}"
    return ""


async def add_suspended_job(reader: OwnerLookup, answer: WhyAnswer | None) -> WhyAnswer | None:
    """Completes the answer about a gang without members whose job is suspended, where its operator leaves the
    PodGroup there meanwhile."""
    if answer is None or answer.kind != "Gang" or answer.reason != NOT_ENOUGH_MEMBERS:
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
        answer.change = f"let it go: phalanx release {title} -n {reader.namespace}"
        return answer
    return answer
