"""Reads of API objects for a viewer: with the page's credentials, after a review of the viewer's right."""

from __future__ import annotations

from urllib.parse import unquote

from phalanx.dashboard.access import Login, Right, Viewer
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.model.text.decoding import quoted


def reads_for(client: KubeClient, login: Login, viewer: Viewer) -> KubeClient:
    """Return a client that sends a read only if the viewer has the right to it, and no writes. A refusal raises
    ApiError (403), as the API server's own."""

    async def check(method: str, path: str) -> None:
        right = right_of(path) if method == "GET" else None
        if right is None and method == "GET" and is_discovery(path):
            return
        if right is None or not await login.may(viewer, right):
            words = right.words if right is not None else f"{method} {path}"
            raise ApiError(403, "Forbidden", f"user {quoted(viewer.name)} lacks the right to {words}")

    return client.checked(check)


def is_discovery(path: str) -> bool:
    """Return whether a path lists the served kinds, which every authenticated user can read."""
    parts = path.strip("/").split("/")
    return (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) <= 3)


def right_of(path: str) -> Right | None:
    """Return the right to read the collection or the object at `path`; None for any other path.

    >>> right_of("/apis/batch/v1/namespaces/team/jobs/train").words
    'get jobs/train in namespace team'
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 2 or not all(rest):
        return None
    verb, name = ("get", rest[1]) if len(rest) == 2 else ("list", "")
    return Right(verb, rest[0], group, namespace, name)
