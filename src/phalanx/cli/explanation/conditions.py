"""Answer of `phalanx why` without a dry run: the conditions of the PodGroup, else of the pod."""

from __future__ import annotations

from typing import Any

import click

from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import quoted
from phalanx.model.verdict_condition import LAST_VERDICT
from phalanx.reports.jobs.kinds import group_kinds
from phalanx.reports.jobs.read_documents import conditions_of, mapping, text

Json = dict[str, Any]
_MAX_OBJECTS = 5


async def read_conditions(client: KubeClient, namespace: str, kind: str, name: str) -> Json:
    """Return the conditions of the PodGroups, or else the pods, that have this name or an owner of this name, as a
    document. Raises click.ClickException if there is none."""
    kinds = [] if kind == "pod" else list(group_kinds())
    for resource in (*kinds, PODS):
        objects = [item for item in await _list(client, resource, namespace) if _is_named(item, name)]
        if objects:
            return {
                "name": f"{namespace}/{name}",
                "objects": [_entry(resource, item) for item in objects[:_MAX_OBJECTS]],
            }
    raise click.ClickException(f"no PodGroup or pod {quoted(name)} in namespace {quoted(namespace)}")


def condition_lines(document: Json) -> list[str]:
    """Return the lines of a document of `read_conditions`."""
    lines = []
    for entry in document["objects"]:
        lines.append(f"{entry['kind']} {entry['name']}" + (f": {entry['phase']}" if entry["phase"] else ""))
        # The last verdict is for programs; another condition has its text.
        shown = [condition for condition in entry["conditions"] if condition["type"] != LAST_VERDICT]
        for condition in shown:
            reason = f" ({condition['reason']})" if condition["reason"] else ""
            message = f": {condition['message']}" if condition["message"] else ""
            lines.append(f"  {condition['type']}={condition['status']}{reason}{message}")
        if not shown:
            lines.append("  no conditions yet")
    return lines


async def _list(client: KubeClient, resource: Resource, namespace: str) -> list[Json]:
    try:
        return list((await client.list_all(resource.path(namespace)))["items"])
    except ApiError as error:
        if error.status == 404 or (error.status == 403 and resource != PODS):
            return []
        raise


def _is_named(document: Json, name: str) -> bool:
    metadata = mapping(document.get("metadata"))
    owners = metadata.get("ownerReferences")
    names = [mapping(owner).get("name") for owner in (owners if isinstance(owners, list) else ())]
    return name in (metadata.get("name"), *names)


def _entry(resource: Resource, document: Json) -> Json:
    conditions = [
        {"type": found.type, "status": found.status, "reason": found.reason, "message": found.message}
        for found in conditions_of(document)
    ]
    return {
        "kind": resource.kind,
        "name": text(mapping(document.get("metadata")).get("name")),
        "phase": text(mapping(document.get("status")).get("phase")),
        "conditions": conditions,
    }
