"""Cancel: what would make the pods anew is deleted, and the pods with it."""

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
    """What would be deleted, in a line."""
    pods = f"{len(target.members)} pods ({target.running} running)"
    below = f", the owner of {target.chain[0]}" if target.chain else ""
    return f"{target.title} in namespace {target.namespace}{below}, with its {pods}"


def refuse_foreign_members(target: Target) -> None:
    """Raises OrderError where pods of a loose gang have controllers, which would make them anew."""
    if target.document is not None and target.resource is not None and target.resource.kind not in _LOOSE:
        return
    makers = sorted(
        {f"{owner.get('kind')}/{owner.get('name')}" for pod in target.members if (owner := controller_of(pod))}
    )
    if makers:
        raise OrderError(
            f"{target.title}: its pods belong to {', '.join(makers)}, which would make them anew; cancel that"
        )


async def cancel(client: KubeClient, target: Target) -> str:
    """Says what happened. Raises OrderError."""
    refuse_foreign_members(target)
    top = [(target.path, target.uid)] if target.document is not None else []
    rest: list[tuple[str, str]] = []
    if target.resource is None or target.resource.kind in _LOOSE:
        found = [(PODS.path(target.namespace, name_of(pod)), _uid(pod)) for pod in target.members]
        rest = [each for each in found if each not in top]
    if top and rest:
        await _refuse_parts(client, target, [*top, *rest])
    for path, uid in top:
        await client.delete(path, uid=uid, propagation="Background")
    await asyncio.gather(*(_delete(client, path, uid) for path, uid in rest))
    return f"{target.title} cancelled: it and its {len(target.members)} pods are deleted"


async def _refuse_parts(client: KubeClient, target: Target, objects: list[tuple[str, str]]) -> None:
    """Raises OrderError where only a part would be deleted: a gang is cancelled as a whole or not at all."""
    for number, (path, uid) in enumerate(objects):
        try:
            await client.delete(path, uid=uid, dry_run=True)
        except ApiError as error:
            if error.status == 404:
                continue
            if not number:
                raise
            raise OrderError(
                f"{target.title}: only a part of it could be deleted, so nothing was: {error.message}"
            ) from error


async def _delete(client: KubeClient, path: str, uid: str) -> None:
    try:
        await client.delete(path, uid=uid)
    except ApiError as error:
        if error.status != 404:
            raise


def _uid(document: dict[str, object]) -> str:
    return text(mapping(document.get("metadata")).get("uid"))
