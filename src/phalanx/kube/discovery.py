"""Discovery of an API server: groups, versions, resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource

__all__ = ["Discovery", "ServedResource", "discover"]

log = logging.getLogger(__name__)

#: The aggregated documents answer everything in two requests (GA in 1.30); older servers ignore these
#: parameters and send the plain lists.
AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


class ServedResource(msgspec.Struct, frozen=True):
    """Served resource with the other fields of its discovery entry."""

    resource: Resource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Discovery:
    """Groups, versions and resources that an API server served at one moment. Kinds are added and removed: repeat
    the discovery when a reflector misses a kind."""

    #: In the server's order of preference: within a group the preferred version first.
    served: tuple[ServedResource, ...]
    #: group/version -> reason why it is unreadable (an aggregated API server is down). The resources of a degraded
    #: group are unknown, which is not the same as absent.
    degraded: Mapping[str, str] = field(default_factory=dict)

    def find(self, group: str, plural: str) -> list[Resource]:
        """Return the versions in which a resource is served, preferred first; empty if it is not served."""
        return [
            entry.resource
            for entry in self.served
            if entry.resource.group == group and entry.resource.plural == plural
        ]

    def find_kind(self, group: str, kind: str) -> list[Resource]:
        """Return the versions in which a kind is served, preferred first; empty if it is not served."""
        return [
            entry.resource for entry in self.served if entry.resource.group == group and entry.resource.kind == kind
        ]

    def entry(self, resource: Resource) -> ServedResource | None:
        """Return the discovery entry of a resource; None if the resource is not served."""
        return next((entry for entry in self.served if entry.resource == resource), None)

    def has_subresource(self, resource: Resource, name: str) -> bool:
        """Return whether a subresource such as ``status`` is served, which decides about the path of a status
        patch."""
        entry = self.entry(resource)
        return entry is not None and name in entry.subresources

    def serves_group(self, group: str) -> bool | None:
        """Return whether an API group is served; None if it is unreadable and no other version of it is known."""
        if any(entry.resource.group == group for entry in self.served):
            return True
        return None if any(_group_of(name) == group for name in self.degraded) else False

    def lookup(self, word: str) -> list[Resource]:
        """Return the resources for user input: plural, singular, short name or kind, with an optional ``.group``.

        In the server's order, each resource once (in its preferred version).
        """
        name, _, group = word.lower().partition(".")
        matches: dict[tuple[str, str], Resource] = {}
        for entry in self.served:
            resource = entry.resource
            names = {resource.plural, entry.singular, resource.kind.lower(), *entry.short_names}
            if name in names and (not group or resource.group == group):
                matches.setdefault((resource.group, resource.plural), resource)
        return list(matches.values())


async def discover(client: KubeClient) -> Discovery:
    """Read the whole discovery of an API server. An unreadable group is listed as degraded and does not affect the
    others.

    Raises ApiError or ConnectionLost only if the server as a whole does not answer.
    """
    degraded: dict[str, str] = {}
    served: list[ServedResource] = []
    core, groups = await asyncio.gather(
        client.get("/api", accept=AGGREGATED), client.get("/apis", accept=AGGREGATED)
    )
    if core.get("kind") == "APIGroupDiscoveryList":
        served += _aggregated(core, degraded)
    else:
        served += await _plain(client, [("", version) for version in core.get("versions") or ()], degraded)
    if groups.get("kind") == "APIGroupDiscoveryList":
        served += _aggregated(groups, degraded)
    else:
        served += await _plain(client, _preferred_order(groups), degraded)
    if degraded:
        log.warning("some API groups could not be read: %s", "; ".join(f"{k}: {v}" for k, v in degraded.items()))
    return Discovery(tuple(served), degraded)


def _aggregated(document: Any, degraded: dict[str, str]) -> Iterable[ServedResource]:
    for group in document.get("items") or ():
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group.get("versions") or ():
            label = version.get("version", "")
            if version.get("freshness") == "Stale":
                degraded[_label(name, label)] = "its API server does not answer (stale discovery)"
            for item in version.get("resources") or ():
                kind = item.get("responseKind") or {}
                yield ServedResource(
                    resource=Resource(
                        group=name,
                        version=label,
                        plural=item["resource"],
                        kind=kind.get("kind") or "",
                        namespaced=item.get("scope") == "Namespaced",
                    ),
                    singular=item.get("singularResource") or "",
                    short_names=tuple(item.get("shortNames") or ()),
                    verbs=frozenset(item.get("verbs") or ()),
                    subresources=frozenset(sub["subresource"] for sub in item.get("subresources") or ()),
                )


def _preferred_order(groups: Any) -> list[tuple[str, str]]:
    ordered = []
    for group in groups.get("groups") or ():
        versions = [version["version"] for version in group.get("versions") or ()]
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions.sort(key=lambda version: version != preferred)  # stable: other versions stay in the server's order
        ordered += [(group["name"], version) for version in versions]
    return ordered


async def _plain(
    client: KubeClient, versions: list[tuple[str, str]], degraded: dict[str, str]
) -> list[ServedResource]:
    async def read(group: str, version: str) -> list[ServedResource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            return _plain_version(group, version, await client.get(path))
        except (ApiError, ConnectionLost, msgspec.DecodeError) as error:
            degraded[_label(group, version)] = str(error)
            return []

    lists = await asyncio.gather(*(read(group, version) for group, version in versions))
    return [entry for entries in lists for entry in entries]


def _plain_version(group: str, version: str, document: Any) -> list[ServedResource]:
    items = document.get("resources") or ()
    below: dict[str, set[str]] = {}
    for item in items:
        plural, slash, subresource = item["name"].partition("/")
        if slash:
            below.setdefault(plural, set()).add(subresource)
    return [
        ServedResource(
            resource=Resource(
                group=group,
                version=version,
                plural=item["name"],
                kind=item.get("kind") or "",
                namespaced=bool(item.get("namespaced")),
            ),
            singular=item.get("singularName") or "",
            short_names=tuple(item.get("shortNames") or ()),
            verbs=frozenset(item.get("verbs") or ()),
            subresources=frozenset(below.get(item["name"], ())),
        )
        for item in items
        if "/" not in item["name"]
    ]


def _label(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _group_of(label: str) -> str:
    group, slash, _ = label.partition("/")
    return group if slash else ""
