"""Checks of names against the objects of the cluster; each error lists the known names.

Objects that the user cannot list are not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from phalanx.orders.errors import OrderError

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Json = dict[str, Any]

# Longest list of known names in an error.
_LISTED = 20
# The API server creates these PriorityClasses itself.
_BUILT_IN_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


async def refuse_unknown_namespace(client: KubeClient, namespace: str) -> None:
    """Raise OrderError if `namespace` does not exist; "" is not checked."""
    from phalanx.kube.core_resources import NAMESPACES

    await _refuse(client, NAMESPACES.path(), "namespace", [namespace] if namespace else [])


async def refuse_unknown_queues(client: KubeClient, queues: Iterable[str]) -> None:
    """Raise OrderError if one of the Volcano queues `queues` does not exist."""
    from phalanx.reports.jobs.kinds import QUEUES

    await _refuse(client, QUEUES.path(), "queue", queues)


async def refuse_unknown_classes(client: KubeClient, classes: Iterable[str]) -> None:
    """Raise OrderError if one of the PriorityClasses `classes` does not exist."""
    from phalanx.kube.core_resources import PRIORITY_CLASSES

    checked = [name for name in classes if name not in _BUILT_IN_CLASSES]
    await _refuse(client, PRIORITY_CLASSES.path(), "PriorityClass", checked)


async def _refuse(client: KubeClient, path: str, kind: str, names: Iterable[str]) -> None:
    names = list(names)
    if not names:
        return
    objects = await read_objects(client, path)
    if objects is not None:
        refuse_missing(kind, names, objects)


def refuse_missing(kind: str, names: Iterable[str], objects: Collection[Json]) -> None:
    """Raise OrderError if one of `names` is the name of none of the objects."""
    known = {str(each["metadata"]["name"]) for each in objects}
    for name in names:
        if name not in known:
            raise OrderError(f'no {kind} "{name}"; {known_names(known)}')


def known_names(known: Collection[str]) -> str:
    """Return the end of an error about an unknown name: the first of the known names, in order."""
    if not known:
        return "there are none"
    listed = sorted(known)[:_LISTED]
    rest = len(known) - len(listed)
    return f"expected one of {', '.join(listed)}{f' and {rest} more' if rest else ''}"


async def read_objects(client: KubeClient, path: str) -> list[Json] | None:
    """Return the objects at `path`; None if the user cannot list them or the kind is not served."""
    from phalanx.kube.errors import ApiError

    try:
        objects: list[Json] = (await client.list_all(path))["items"]
        return objects
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
