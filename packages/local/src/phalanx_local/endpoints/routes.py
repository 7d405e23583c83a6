"""The shape of resource paths: /api/v1/... and /apis/GROUP/VERSION/..."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Target(NamedTuple):
    """What a resource path is about; empty strings where a part is absent."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """The target of a path below /api/VERSION or /apis/GROUP/VERSION; None for every other path.

    A path that ends at the version has an empty plural: it asks for the list of resources.
    """
    parts = path.split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    while parts and parts[-1] == "":
        parts.pop()
    if len(parts) >= 3 and parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif len(parts) >= 4 and parts[1] == "apis":
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    if not rest:
        return Target(group, version, "")
    about_namespaces = len(rest) <= 2 or (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES)
    if rest[0] == "namespaces" and not group and about_namespaces:
        name = rest[1] if len(rest) > 1 else ""
        return Target(group, version, "namespaces", "", name, rest[2] if len(rest) == 3 else "")
    if rest[0] == "namespaces" and len(rest) >= 3:
        return _target(group, version, rest[1], rest[2:])
    return _target(group, version, "", rest)


def _target(group: str, version: str, namespace: str, rest: list[str]) -> Target:
    return Target(
        group,
        version,
        rest[0],
        namespace,
        rest[1] if len(rest) > 1 else "",
        "/".join(rest[2:]),
    )
