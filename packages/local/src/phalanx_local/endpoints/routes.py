"""Resource paths: /api/v1/... and /apis/GROUP/VERSION/..."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Target(NamedTuple):
    """Group, version, namespace, resource, name and subresource of a request path; absent parts are empty
    strings."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """Return the parts of a path below /api/VERSION or /apis/GROUP/VERSION; None for every other path.

    A path that ends at the version has an empty plural: it requests the list of resources.
    """
    parts = path.split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    while parts and parts[-1] == "":
        parts.pop()
    if len(parts) >= 3 and parts[1] == "api":
        group, version, segments = "", parts[2], parts[3:]
    elif len(parts) >= 4 and parts[1] == "apis":
        group, version, segments = parts[2], parts[3], parts[4:]
    else:
        return None
    if not segments:
        return Target(group, version, "")
    about_namespaces = len(segments) <= 2 or (len(segments) == 3 and segments[2] in _NAMESPACE_SUBRESOURCES)
    if segments[0] == "namespaces" and not group and about_namespaces:
        name = segments[1] if len(segments) > 1 else ""
        return Target(group, version, "namespaces", "", name, segments[2] if len(segments) == 3 else "")
    if segments[0] == "namespaces" and len(segments) >= 3:
        return _target(group, version, segments[1], segments[2:])
    return _target(group, version, "", segments)


def _target(group: str, version: str, namespace: str, segments: list[str]) -> Target:
    return Target(
        group,
        version,
        segments[0],
        namespace,
        segments[1] if len(segments) > 1 else "",
        "/".join(segments[2:]),
    )
