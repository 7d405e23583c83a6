"""Changes of queues and quotas: create, open, close, delete, set fields."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import parse_quantity
from phalanx.orders.errors import OrderError
from phalanx.orders.known_names import known_names
from phalanx.orders.volcano_command import CLOSE_QUEUE, OPEN_QUEUE, command_to_queue
from phalanx.reports.jobs.kinds import COMMANDS, QUEUES
from phalanx.reports.jobs.read_documents import mapping

QUOTAS = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_BUILT_IN = ("root", "default")
_OPEN, _SHUT = "Open", ("Closed", "Closing")
# Seconds to wait for the controller that writes the state of queues.
_PATIENCE = 8.0
_PAUSE = 0.2


async def create_queue(client: KubeClient, name: str, spec: Mapping[str, Any], *, dry_run: bool = False) -> str:
    """Create a queue and return a message. Raises OrderError if its parent does not exist."""
    parent = spec.get("parent")
    if parent and parent != "root":
        await _read(client, parent, "parent queue")
    manifest = {
        "apiVersion": f"{QUEUES.group}/{QUEUES.version}",
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        # The API's default of a weight is that of queues without one.
        "spec": {"weight": 1, **spec},
    }
    try:
        await client.create(QUEUES.path(), manifest, {"dryRun": "All"} if dry_run else None)
    except ApiError as error:
        if error.status != 409:
            raise
        raise OrderError(f"queue {name} exists already; change it with phalanx queue edit {name}") from error
    return f"queue {name} {'would be ' if dry_run else ''}created"


async def edit_queue(client: KubeClient, name: str, spec: Mapping[str, Any]) -> str:
    """Set fields of a queue's spec; None removes a field. Return a message."""
    before = await _read(client, name)
    after = await client.patch(QUEUES.path(name=name), {"spec": spec}, PatchType.MERGE)
    changed = after["metadata"].get("resourceVersion") != before["metadata"].get("resourceVersion")
    return f"queue {name} {'changed' if changed else 'unchanged'}"


async def set_open(client: KubeClient, name: str, *, opened: bool) -> str:
    """Open or close a queue and return a message with its state.

    Where Commands are served the controllers write the state, else the status of the queue is written.
    """
    queue = await _read(client, name)
    if _is_as_wanted(queue, opened):
        return f"queue {name} is already {_state(queue)}"
    action = OPEN_QUEUE if opened else CLOSE_QUEUE
    command = command_to_queue(name, queue["metadata"]["uid"], action)
    try:
        await client.create(COMMANDS.path("default"), command)
    except ApiError as error:
        if error.status != 404:
            raise
        await _write_state(client, name, _OPEN if opened else _SHUT[0])
        return f"queue {name} is {_OPEN if opened else _SHUT[0]}"
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        queue = await _read(client, name)
        if _is_as_wanted(queue, opened):
            return f"queue {name} is {_state(queue)}"
        await asyncio.sleep(_PAUSE)
    raise OrderError(
        f"queue {name} is still {_state(queue)}: the Command {action} is created and not yet executed; "
        "check that `phalanx controllers` or Volcano's controllers run, and that its parent queue is open"
    )


async def check_deletion(client: KubeClient, name: str) -> None:
    """Raise OrderError if a queue is built in, has sub-queues, or has gangs that are not completed."""
    if name in _BUILT_IN:
        raise OrderError(f"queue {name} always exists; it cannot be deleted")
    await _read(client, name)
    queues = (await client.list_all(QUEUES.path()))["items"]
    children = sorted(
        queue["metadata"]["name"] for queue in queues if (queue.get("spec") or {}).get("parent") == name
    )
    if children:
        raise OrderError(f"queue {name} has sub-queues: {', '.join(children[:8])}; delete or move them first")
    groups = (await client.list_all(_GROUPS.path()))["items"]
    gangs = sorted(
        f"{group['metadata']['namespace']}/{group['metadata']['name']}"
        for group in groups
        if (group.get("spec") or {}).get("queue") == name
        and (group.get("status") or {}).get("phase") != "Completed"
    )
    if gangs:
        shown = f"{', '.join(gangs[:5])}{f' and {len(gangs) - 5} more' if len(gangs) > 5 else ''}"
        raise OrderError(f"queue {name} has {len(gangs)} gangs: {shown}; cancel or move them first")


async def delete_queue(client: KubeClient, name: str) -> str:
    """Delete a queue and return a message. Raises OrderError as `check_deletion` does."""
    await check_deletion(client, name)
    await client.delete(QUEUES.path(name=name))
    return f"queue {name} deleted"


async def set_quota(client: KubeClient, namespace: str, name: str, spec: Mapping[str, Any]) -> str:
    """Replace `min` and `max` of an ElasticQuota, which is created if it does not exist; None removes one. Return a
    message. Raises OrderError for a `min` above `max`, which the scheduler would cut."""
    path = QUOTAS.path(namespace, name)
    try:
        before = await client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        new = {field: values for field, values in spec.items() if values is not None}
        _refuse_min_above_max(new)
        manifest = {
            "apiVersion": f"{QUOTAS.group}/{QUOTAS.version}",
            "kind": QUOTAS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": new,
        }
        await client.create(QUOTAS.path(namespace), manifest)
        return f"quota {namespace}/{name} created"
    old = before.get("spec") or {}
    _refuse_min_above_max({**old, **spec})
    patch = {field: None if values is None else replacing(old.get(field), values) for field, values in spec.items()}
    after = await client.patch(path, {"spec": patch}, PatchType.MERGE)
    changed = after["metadata"].get("resourceVersion") != before["metadata"].get("resourceVersion")
    return f"quota {namespace}/{name} {'changed' if changed else 'unchanged'}"


def _refuse_min_above_max(spec: Mapping[str, Any]) -> None:
    minimum, maximum = mapping(spec.get("min")), mapping(spec.get("max"))
    for resource in sorted(minimum.keys() & maximum.keys()):
        try:
            exceeds = parse_quantity(minimum[resource], 1000) > parse_quantity(maximum[resource], 1000)
        except ValueError:
            continue
        if exceeds:
            raise OrderError(f"min of {resource} is {minimum[resource]}, above its max {maximum[resource]}")


def replacing(before: object, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch that replaces a mapping: without this, names that only `before` has would stay."""
    patch: dict[str, Any] = dict.fromkeys(before) if isinstance(before, dict) else {}
    for key, value in after.items():
        inner = before.get(key) if isinstance(before, dict) else None
        patch[key] = replacing(inner, value) if isinstance(value, dict) else value
    return patch


async def read_spec(client: KubeClient, name: str) -> dict[str, Any]:
    """Return the spec of a queue. Raises OrderError if it does not exist."""
    return dict((await _read(client, name)).get("spec") or {})


async def _read(client: KubeClient, name: str, what: str = "queue") -> dict[str, Any]:
    try:
        return dict(await client.get(QUEUES.path(name=name)))
    except ApiError as error:
        if error.status != 404:
            raise
    try:
        names = [queue["metadata"]["name"] for queue in (await client.list_all(QUEUES.path()))["items"]]
    except ApiError:
        raise OrderError("this cluster does not serve Volcano's queues; `phalanx install` installs them") from None
    raise OrderError(f"no {what} {quoted(name)}; {known_names(names)}")


async def _write_state(client: KubeClient, name: str, state: str) -> None:
    patch = {"status": {"state": state}}
    try:
        await client.patch(f"{QUEUES.path(name=name)}/status", patch, PatchType.MERGE)
    except ApiError as error:
        if error.status != 404:
            raise
        await client.patch(QUEUES.path(name=name), patch, PatchType.MERGE)


def _state(queue: Mapping[str, Any]) -> str:
    return str((queue.get("status") or {}).get("state") or _OPEN)


def _is_as_wanted(queue: Mapping[str, Any], opened: bool) -> bool:
    return (_state(queue) == _OPEN) if opened else (_state(queue) in _SHUT)
