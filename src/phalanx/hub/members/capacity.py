"""Capacity of a member cluster: its nodes, their allocatable resources, and its version of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import decode_pod
from phalanx.dialects.pods.requests import usage_of
from phalanx.hub.objects import Json, printable
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.errors import ApiError
from phalanx.model.pod import PodPhase
from phalanx.model.resources import PODS as PODS_RESOURCE
from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import QuantityError, canonical_quantity

#: Maximum number of published resources, the most common first: a hostile cluster could name any number.
_MOST_RESOURCES = 24
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class ClusterCapacity(msgspec.Struct, frozen=True):
    """Capacity of a member cluster; `allocatable` is the sum over all nodes, `ready` a number of nodes. `used` are
    the requests of the pods on nodes at the first survey; None if they were not read."""

    version: str
    nodes: int
    ready: int
    allocatable: Mapping[str, int]
    used: Mapping[str, int] | None = None


async def read_capacity(client: KubeClient, last: ClusterCapacity | None = None) -> ClusterCapacity:
    """Read the capacity of a member cluster. Raises ApiError, ConnectionLost.

    All pods are read in the first survey only: later ones keep the usage of `last`, and each forecast for a gang
    has a newer one.
    """
    try:
        answer = await client.get("/version")
        version = printable(answer.get("gitVersion") or "", 60) if isinstance(answer, dict) else ""
    except ApiError:
        version = ""  # the right to read the version is optional
    nodes = [node for node in (await client.list_all(NODES.path()))["items"] if isinstance(node, dict)]
    used = last.used if last is not None else None
    if used is None:
        try:
            used = _used((await client.list_all(PODS.path(), {"fieldSelector": _ON_NODES}))["items"])
        except ApiError:
            used = None  # the hub can dispatch gangs without this right
    return ClusterCapacity(version, len(nodes), sum(map(_is_ready, nodes)), _sum(nodes), used)


def written(amounts: Mapping[str, int]) -> dict[str, str]:
    """Format resource amounts as quantities, sorted by name."""
    return {name: canonical_quantity(amount, name) for name, amount in sorted(amounts.items())}


def _sum(nodes: list[Json]) -> dict[str, int]:
    total: dict[str, int] = {}
    offers: dict[str, int] = {}
    for node in nodes:
        allocatable = _part(node, "status").get("allocatable")
        for name, quantity in (allocatable if isinstance(allocatable, dict) else {}).items():
            try:
                amount = parse_amount(name, quantity)
            except QuantityError:
                continue
            if amount > 0:
                total[name] = total.get(name, 0) + amount
                offers[name] = offers.get(name, 0) + 1
    most_common = sorted(total, key=lambda name: (-offers[name], name))[:_MOST_RESOURCES]
    return {name: total[name] for name in most_common}


def _used(pods: list[Json]) -> dict[str, int]:
    used: dict[str, int] = {}
    for document in pods:
        try:
            pod = decode_pod(msgspec.json.encode(document))
        except (msgspec.DecodeError, TypeError, ValueError):
            continue
        if not pod.spec.node_name or pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            continue
        for name, amount in (*usage_of(pod.spec, pod.status)[0], (PODS_RESOURCE, 1)):
            used[name] = used.get(name, 0) + amount
    return used


def _is_ready(node: Json) -> bool:
    conditions = _part(node, "status").get("conditions")
    return any(
        isinstance(condition, dict) and (condition.get("type"), condition.get("status")) == ("Ready", "True")
        for condition in (conditions if isinstance(conditions, list) else ())
    )


def _part(document: Json, name: str) -> dict[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}
