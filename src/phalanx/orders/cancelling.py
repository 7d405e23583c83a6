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
    if target.document is not None:
        await client.delete(target.path, uid=target.uid, propagation="Background")
    if target.resource is None or target.resource.kind in _LOOSE:
        rest = [pod for pod in target.members if _uid(pod) != target.uid]
        await asyncio.gather(*(_delete(client, target.namespace, pod) for pod in rest))
    return f"{target.title} cancelled: it and its {len(target.members)} pods are deleted"


async def _delete(client: KubeClient, namespace: str, pod: dict[str, object]) -> None:
    try:
        await client.delete(PODS.path(namespace, name_of(pod)), uid=_uid(pod))
    except ApiError as error:
        if error.status != 404:
            raise


def _uid(document: dict[str, object]) -> str:
    return text(mapping(document.get("metadata")).get("uid"))
