"""Reader of the scheduler's record of nodes in back-off, for dry runs and lists of nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from phalanx.cluster.volumes.supply import VOLUMES
from phalanx.daemon.controllers.recent_history_record import (
    NAME,
    PROVISIONING_KEY,
    REJECTIONS_KEY,
    decode,
)
from phalanx.daemon.provisioning_troubles import StoredTrouble
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.model.events import AllocatorFact, ClusterEvent, NodeBackoffsRestored
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.volumes import ProvisioningTrouble


class StoredBackoffs(msgspec.Struct):
    """Back-offs that are in force, the events that state them, and one sentence for each fault of the record."""

    rejections: tuple[NodeBackoffEntry, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    faults: tuple[str, ...] = ()


async def read_backoffs(
    client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ("phalanx",)
) -> StoredBackoffs:
    """Read the nodes in back-off of the scheduler of these names. `namespace` is that of its lease."""
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
    entries, faults = decode(str(data.get(REJECTIONS_KEY, "")), NodeBackoffEntry)
    troubles, further_faults = decode(str(data.get(PROVISIONING_KEY, "")), StoredTrouble)
    rejections = tuple(entry for entry in entries if entry.until > now)
    return StoredBackoffs(
        rejections,
        (
            NodeBackoffsRestored(rejections),
            *(
                AllocatorFact(VOLUMES, ProvisioningTrouble(trouble.storage_class, trouble.node, trouble.size))
                for trouble in troubles
                if trouble.until > now
            ),
        ),
        tuple(f"configmap {namespace}/{name}: {fault}" for fault in (*faults, *further_faults)),
    )
