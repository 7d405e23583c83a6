"""Lookup data for the admission rules, passed in by the caller; the rules read nothing by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from phalanx.admission.fields import Json, mapping, name_of, text

ROOT, DEFAULT = "root", "default"
MAX_QUEUE_DEPTH = 5


class QueueCatalog:
    """Queues of a cluster as JSON, by name and by parent."""

    def __init__(self, queues: Iterable[Json] = ()) -> None:
        self._queues: dict[str, Json] = {}
        self._children: dict[str, dict[str, Json]] = {}
        for queue in queues:
            self.put(queue)

    def get(self, name: str) -> Json | None:
        return self._queues.get(name)

    def all(self) -> list[Json]:
        return [self._queues[name] for name in sorted(self._queues)]

    def children(self, name: str) -> list[Json]:
        """Return the child queues of a queue, by name. A queue without a parent is a child of `root`, except `root`
        itself."""
        children = self._children.get(name, {})
        return [children[child] for child in sorted(children)]

    def put(self, queue: Json) -> None:
        self.remove(name_of(queue))
        name, parent = name_of(queue), parent_of(queue)
        self._queues[name] = queue
        if name != ROOT:
            self._children.setdefault(parent, {})[name] = queue

    def remove(self, name: str) -> None:
        queue = self._queues.pop(name, None)
        if queue is not None:
            self._children.get(parent_of(queue), {}).pop(name, None)


def parent_of(queue: Json) -> str:
    return text(mapping(queue.get("spec")).get("parent")) or ROOT


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of pods by namespace or annotation, with their defaults: an entry of resourceGroups in the
    configuration of Volcano's webhook."""

    name: str = ""
    namespaces: frozenset[str] = frozenset()
    annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    affinity: Json | None = None
    tolerations: tuple[Json, ...] = ()
    scheduler_name: str = ""


class AdmissionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data for the admission rules. `queues` is None if unknown: then the rules about queues are skipped.

    `unfinished_groups` is the number of a queue's PodGroups that are not completed, if known. `namespace` is the
    Namespace of the object. Without `ssh` the job plugin of that name is disabled.
    """

    queues: QueueCatalog | None = None
    unfinished_groups: Mapping[str, int] = {}
    namespace: Mapping[str, Any] = {}
    scheduler_names: tuple[str, ...] = ("phalanx",)
    resource_groups: tuple[ResourceGroup, ...] = ()
    max_queue_depth: int = MAX_QUEUE_DEPTH
    ssh: bool = True
