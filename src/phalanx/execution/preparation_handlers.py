"""Registry of the handlers for each kind of preparation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.execution.claim_allocation import ClaimAllocation
from phalanx.execution.preparation import Handler
from phalanx.execution.volume_binding import VolumeBinding
from phalanx.execution.writes import PooledClient
from phalanx.model.devices.claims import AllocateClaim
from phalanx.model.preparations import Preparation
from phalanx.model.volumes import BindClaim


def preparation_handlers(
    client: PooledClient, unprovisioned: Callable[[str, str, str, int], None]
) -> Mapping[type[Preparation], Handler]:
    """Return the handler of each kind of preparation.

    A volume that could not be provisioned is passed to `unprovisioned(namespace, storage class, node, bytes)`.
    """
    return {BindClaim: VolumeBinding(client, unprovisioned), AllocateClaim: ClaimAllocation(client)}
