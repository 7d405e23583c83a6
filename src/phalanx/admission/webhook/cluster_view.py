"""Cluster data for the admission rules: queues and namespaces from watches, rights and groups on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.admission.context import DEFAULT, AdmissionContext, QueueCatalog, parent_of
from phalanx.admission.fields import Json, mapping, name_of, text
from phalanx.admission.queue_state import OPEN
from phalanx.admission.webhook.review import UserInfo
from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NAMESPACES
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.model.text.decoding import decode_json

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class AdmissionView:
    """Cluster data for the admission rules, updated by `run`. An object that a watch has not delivered yet is read
    on demand."""

    def __init__(self, client: KubeClient, context: AdmissionContext) -> None:
        self._client = client
        self._context = context
        self._queues = QueueCatalog()
        self._namespaces: dict[str, Json] = {}
        self._reflectors = (
            Reflector[dict[str, Any]](client, QUEUES, decode_json, self._queue_changed, optional=True),
            Reflector[dict[str, Any]](client, NAMESPACES, decode_json, self._namespace_changed, optional=True),
        )

    async def run(self) -> None:
        """Watch queues and namespaces until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())

    async def synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def context(self, namespace: str, queues: Iterable[str] = ()) -> AdmissionContext:
        """Return the data for the review of an object in a namespace that names some queues."""
        for queue in queues:
            await self._refresh_queue(queue)
        return msgspec.structs.replace(
            self._context, queues=self._queues, namespace=await self._namespace(namespace) if namespace else {}
        )

    async def with_unfinished_groups(self, context: AdmissionContext, queue: str) -> AdmissionContext:
        """Return the review data with the number of a queue's PodGroups that are not completed."""
        listed = await self._client.list_all(GROUPS.path())
        count = sum(
            (text(mapping(item.get("spec")).get("queue")) or DEFAULT) == queue
            and mapping(item.get("status")).get("phase") != "Completed"
            for item in listed["items"]
        )
        return msgspec.structs.replace(context, unfinished_groups={queue: count})

    async def may_use(self, user: UserInfo, queue: str) -> bool:
        """Return whether a user has the verb `use` on a queue. Raises ApiError if the access review fails."""
        if not user.username and not user.groups:
            return False
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": {
                "group": QUEUES.group,
                "resource": QUEUES.plural,
                "name": queue,
                "verb": "use",
            },
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._client.create(_REVIEWS, review)
        return mapping(mapping(answer).get("status")).get("allowed") is True

    async def _refresh_queue(self, name: str) -> None:
        """Read a queue and its ancestors if they are unknown or not open, because a change can be moments old."""
        visited: set[str] = set()
        while name and name not in visited:
            visited.add(name)
            known = self._queues.get(name)
            if known is None or mapping(known.get("status")).get("state", OPEN) != OPEN:
                known = await self._read(QUEUES, name)
                if known is None:
                    return
                self._queues.put(known)
            name = parent_of(known)

    async def _namespace(self, name: str) -> Json:
        known = self._namespaces.get(name)
        return known if known is not None else await self._read(NAMESPACES, name) or {"metadata": {"name": name}}

    async def _read(self, resource: Resource, name: str) -> Json | None:
        try:
            document: Json = await self._client.get(resource.path(None, name))
        except ValueError:
            return None  # no object can have such a name
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return document

    def _queue_changed(self, change: Change[dict[str, Any]]) -> None:
        match change:
            case Upsert(queue):
                self._queues.put(queue)
            case Delete((_, name)):
                self._queues.remove(name)

    def _namespace_changed(self, change: Change[dict[str, Any]]) -> None:
        match change:
            case Upsert(namespace):
                # Only the fields that rules read are stored, to save memory.
                meta = namespace["metadata"]
                metadata = {"name": name_of(namespace), "annotations": meta.get("annotations") or {}}
                self._namespaces[name_of(namespace)] = {"metadata": metadata}
            case Delete((_, name)):
                self._namespaces.pop(name, None)
