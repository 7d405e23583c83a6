"""Discovery of the served resources: aggregated and classic form, /version.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx_local.objects import Json
from phalanx_local.registry.resources import Registry, Version, version_priority

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"

# subresource -> (group, version, kind of its body, verbs); the default is the parent's kind
_SUBRESOURCES: Final = {
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "finalize": ("", "", "", ("update",)),
    "log": ("", "", "", ("get",)),
    "attach": ("", "v1", "PodAttachOptions", ("create", "get")),
    "exec": ("", "v1", "PodExecOptions", ("create", "get")),
    "portforward": ("", "v1", "PodPortForwardOptions", ("create", "get")),
    "proxy": ("", "v1", "ProxyOptions", ("create", "delete", "get", "patch", "update")),
}
_DEFAULT_VERBS: Final = ("get", "patch", "update")


def version_info(git_version: str) -> Json:
    major, minor = git_version.lstrip("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "phalanx",
        "platform": "python",
    }


def api_versions(address: str) -> Json:
    """Return the document of GET /api in classic form."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_document(group: str, versions: list[str]) -> Json:
    """Return the document of GET /apis/GROUP."""
    listed = [{"groupVersion": f"{group}/{name}", "version": name} for name in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def group_list(registry: Registry, forwarded: Mapping[str, list[str]]) -> Json:
    """Return the document of GET /apis in classic form. `forwarded` are groups that APIServices serve."""
    groups = []
    for group, versions in (*registry.groups().items(), *forwarded.items()):
        if group:
            document = group_document(group, versions)
            del document["kind"], document["apiVersion"]
            groups.append(document)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(registry: Registry, group: str, version: str) -> Json | None:
    """Return the document of GET /apis/GROUP/VERSION; None if the server does not serve this version."""
    served = registry.served(group, version)
    if not served:
        return None
    resources: list[Json] = []
    for item in served:
        type_ = item.type
        entry: Json = {
            "name": type_.plural,
            "singularName": type_.singular,
            "namespaced": type_.namespaced,
            "kind": type_.kind,
            "verbs": list(type_.verbs),
        }
        if type_.short_names:
            entry["shortNames"] = list(type_.short_names)
        if type_.categories:
            entry["categories"] = list(type_.categories)
        resources.append(entry)
        for name in sorted(item.subresources):
            group_, version_, kind, verbs = _subresource(item, name)
            sub: Json = {
                "name": f"{type_.plural}/{name}",
                "singularName": "",
                "namespaced": type_.namespaced,
                "kind": kind,
                "verbs": list(verbs),
            }
            if (group_, version_) != (group, version):
                sub["group"], sub["version"] = group_, version_
            resources.append(sub)
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def aggregated(registry: Registry, version: str, *, core: bool, forwarded: Sequence[Json] = ()) -> Json:
    """Return the APIGroupDiscoveryList of /api (`core`) or of /apis; `forwarded` are items of APIServices."""
    items = []
    for group, versions in registry.groups().items():
        if (group == "") is core:
            entries = [
                _aggregated_version(registry, group, name) for name in sorted(versions, key=version_priority)
            ]
            meta = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
            items.append({"metadata": meta, "versions": entries})
    items += forwarded
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def forwarded_item(group: str, versions: Mapping[str, tuple[list[Json], bool]]) -> Json:
    """Return the item of a group that an APIService serves, in aggregated form. Each version has its last known
    resources, as in classic discovery, and whether its server answers."""
    entries = []
    for version, (resources, answers) in versions.items():
        listed = [
            {
                "resource": item.get("name"),
                "responseKind": {"group": group, "version": version, "kind": item.get("kind")},
                "scope": "Namespaced" if item.get("namespaced") else "Cluster",
                "singularResource": item.get("singularName"),
                "verbs": item.get("verbs"),
            }
            for item in resources
        ]
        entries.append({"version": version, "resources": listed, "freshness": "Current" if answers else "Stale"})
    return {"metadata": {"name": group, "creationTimestamp": None}, "versions": entries}


def _aggregated_version(registry: Registry, group: str, version: str) -> Json:
    resources = []
    for item in registry.served(group, version):
        type_ = item.type
        entry: Json = {
            "resource": type_.plural,
            "responseKind": {"group": group, "version": version, "kind": type_.kind},
            "scope": "Namespaced" if type_.namespaced else "Cluster",
            "singularResource": type_.singular,
            "verbs": list(type_.verbs),
        }
        if type_.short_names:
            entry["shortNames"] = list(type_.short_names)
        if type_.categories:
            entry["categories"] = list(type_.categories)
        if item.subresources:
            entry["subresources"] = [_aggregated_sub(item, name) for name in sorted(item.subresources)]
        resources.append(entry)
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_sub(item: Version, name: str) -> Json:
    group, version, kind, verbs = _subresource(item, name)
    return {
        "subresource": name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": list(verbs),
    }


def _subresource(item: Version, name: str) -> tuple[str, str, str, tuple[str, ...]]:
    group, version, kind, verbs = _SUBRESOURCES.get(name, ("", "", "", _DEFAULT_VERBS))
    if not kind:
        return item.type.group, item.name, item.type.kind, verbs
    return group, version, kind, verbs
