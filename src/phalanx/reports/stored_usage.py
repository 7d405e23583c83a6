"""Reader of the scheduler's usage records, for dry runs that depend on past usage."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.daemon.controllers.usage_record import DATA_KEY, MOST_OBJECTS, NAME, decode
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.reports.snapshot import Snapshot
from phalanx.scheduling.framework.policy import Policy


async def read_usage(
    client: KubeClient,
    snapshot: Snapshot,
    policy: Policy,
    namespace: str,
    scheduler_names: Sequence[str] = ("phalanx",),
) -> None:
    """Read the past usage of queues and quotas into the snapshot if a budget or the policy needs it.

    `namespace` is that of the scheduler's lease, `scheduler_names` are its names. Unreadable records are named in
    `snapshot.missing`.
    """
    snapshot.state.ledger.refresh_sums()
    if not snapshot.state.ledger.budgeted and policy.usage_decay.half_life is None:
        return
    for number in range(MOST_OBJECTS):
        name = f"{name_prefix(scheduler_names)}-{NAME}-{number}"
        try:
            document = await client.get(CONFIG_MAPS.path(namespace, name))
        except ApiError as error:
            if error.status == 403:
                snapshot.missing.append(f"configmap {namespace}/{name}: {error.message}")
            elif error.status != 404:
                raise
            return
        data = document.get("data") or {}
        usages, faults = decode(str(data.get(DATA_KEY, "")))
        snapshot.usages += usages
        snapshot.missing += [f"configmap {namespace}/{name}: {fault}" for fault in faults]
