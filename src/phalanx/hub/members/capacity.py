"""What a member cluster has: its nodes, what they offer, and which Kubernetes it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.hub.objects import Json, printable
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NODES
from phalanx.kube.errors import ApiError
from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import QuantityError, canonical_quantity

#: Resources that are told, those that most nodes offer first: a hostile cluster could name any number.
_MOST_RESOURCES = 24


class ClusterCapacity(msgspec.Struct, frozen=True):
    """`allocatable` is the sum over all nodes, in the scheduler's units; `ready` of them report so."""

    version: str
    nodes: int
    ready: int
    allocatable: Mapping[str, int]


async def read_capacity(client: KubeClient) -> ClusterCapacity:
    """Raises ApiError, ConnectionLost."""
    try:
        answer = await client.get("/version")
        version = printable(answer.get("gitVersion") or "", 60) if isinstance(answer, dict) else ""
    except ApiError:
        version = ""  # (not everybody may ask)
    nodes = [node for node in (await client.list_all(NODES.path()))["items"] if isinstance(node, dict)]
    return ClusterCapacity(version, len(nodes), sum(map(_is_ready, nodes)), _sum(nodes))


def written(amounts: Mapping[str, int]) -> dict[str, str]:
    """As quantities, in the order of their names."""
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
    kept = sorted(total, key=lambda name: (-offers[name], name))[:_MOST_RESOURCES]
    return {name: total[name] for name in kept}


def _is_ready(node: Json) -> bool:
    conditions = _part(node, "status").get("conditions")
    return any(
        isinstance(each, dict) and (each.get("type"), each.get("status")) == ("Ready", "True")
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _part(document: Json, name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
