"""Reader of the scheduler's record of recent events, for dry runs and lists of nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from phalanx.daemon.controllers.recent_history_record import (
    BACKOFFS_KEY,
    NAME,
    NODE_REQUESTS_KEY,
    decode,
)
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.node_request import NodeRequest


class StoredBackoffs(msgspec.Struct, frozen=True):
    """Back-offs that are in force, requests for nodes, and one sentence for each fault of the record."""

    entries: tuple[NodeBackoffEntry, ...] = ()
    faults: tuple[str, ...] = ()
    requests: tuple[NodeRequest, ...] = ()


async def read_backoffs(
    client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ("phalanx",)
) -> StoredBackoffs:
    """Read the record of the scheduler of these names. `namespace` is that of its lease."""
    name = f"{name_prefix(scheduler_names or ('phalanx',))}-{NAME}"
    try:
        document = await client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        if error.status == 403:
            return StoredBackoffs(faults=(f"configmap {namespace}/{name}, nodes in back-off: {error.message}",))
        if error.status != 404:
            raise
        return StoredBackoffs()
    data, now = document.get("data") or {}, time.time()
    entries, faults = decode(str(data.get(BACKOFFS_KEY, "")), NodeBackoffEntry)
    requests, more = decode(str(data.get(NODE_REQUESTS_KEY, "")), NodeRequest)
    in_force = tuple(entry for entry in entries if entry.until > now)
    told = tuple(f"configmap {namespace}/{name}: {fault}" for fault in (*faults, *more))
    return StoredBackoffs(in_force, told, tuple(requests))
