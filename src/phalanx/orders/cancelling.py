"""Cancellation of a gang: deletes the controller that would recreate the pods, and the pods with it."""

from __future__ import annotations

import asyncio

from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.orders.errors import OrderError
from phalanx.orders.target import Target, name_of
from phalanx.reports.jobs.read_documents import controller_of, mapping, text

_LOOSE = frozenset({"PodGroup", "Pod"})


def described(target: Target) -> str:
    """Return a one-line description of the objects that the cancellation of a gang deletes."""
    pods = f"{_pods(len(target.members))} ({target.running} running)"
    if target.resource is PODS:
        return f"{target.title} in namespace {target.namespace} ({'running' if target.running else 'not running'})"
    below = f", the owner of {target.chain[0]}" if target.chain else ""
    return f"{target.title} in namespace {target.namespace}{below}, with its {pods}"


def refuse_foreign_members(target: Target) -> None:
    """Raise OrderError if pods of a gang without a job have controllers, because these would recreate them."""
    if target.document is not None and target.resource is not None and target.resource.kind not in _LOOSE:
        return
    controllers = sorted(
        {f"{owner.get('kind')}/{owner.get('name')}" for pod in target.members if (owner := controller_of(pod))}
    )
    if controllers:
        raise OrderError(
            f"{target.title}: its pods belong to {', '.join(controllers)}, which would recreate them; "
            "cancel this owner"
        )


async def cancel(client: KubeClient, target: Target) -> str:
    """Delete the objects of a gang. Return a message for the user. Raises OrderError."""
    refuse_foreign_members(target)
    top = [(target.path, target.uid)] if target.document is not None else []
    pods: list[tuple[str, str]] = []
    if target.resource is None or target.resource.kind in _LOOSE:
        members = [(PODS.path(target.namespace, name_of(pod)), _uid(pod)) for pod in target.members]
        pods = [member for member in members if member not in top]
    if top and pods:
        await _refuse_parts(client, target, [*top, *pods])
    for path, uid in top:
        await client.delete(path, uid=uid, propagation="Background")
    await asyncio.gather(*(_delete(client, path, uid) for path, uid in pods))
    if target.resource is PODS:
        return f"{target.title} cancelled: the pod is deleted"
    count = len(target.members)
    return f"{target.title} cancelled: the gang and its {_pods(count)} are deleted"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


async def _refuse_parts(client: KubeClient, target: Target, objects: list[tuple[str, str]]) -> None:
    """Raise OrderError if only some of a gang's objects can be deleted, as a gang is cancelled as a whole or not at
    all."""
    for number, (path, uid) in enumerate(objects):
        try:
            await client.delete(path, uid=uid, dry_run=True)
        except ApiError as error:
            if error.status == 404:
                continue
            if not number:
                raise
            raise OrderError(
                f"{target.title}: not cancelled, because only a part of it can be deleted: {error.message}"
            ) from error


async def _delete(client: KubeClient, path: str, uid: str) -> None:
    try:
        await client.delete(path, uid=uid)
    except ApiError as error:
        if error.status != 404:
            raise


def _uid(document: dict[str, object]) -> str:
    return text(mapping(document.get("metadata")).get("uid"))
