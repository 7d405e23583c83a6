"""Reader of the promised starts in the scheduler's ConfigMap."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.views.promise_record import NAME, promises_of
from phalanx.views.promises import Promises


async def read_promises(
    client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ("phalanx",)
) -> Promises:
    """Read the promised starts of the scheduler with these names. `namespace` is that of its lease.

    Without a record there are no promises. Without the right to read it, `warning` states that.
    """
    name = f"{name_prefix(scheduler_names)}-{NAME}"
    try:
        document = await client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        if error.status == 404:
            return Promises()
        if error.status == 403:
            return Promises(warning=f"not read: configmap {namespace}/{name}, promised starts: {error.message}")
        raise
    return promises_of(document)
