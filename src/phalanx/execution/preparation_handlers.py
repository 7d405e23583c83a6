"""Who carries out which kind of preparation."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.execution.claim_allocation import ClaimAllocation
from phalanx.execution.preparation import Handler
from phalanx.execution.volume_binding import VolumeBinding
from phalanx.execution.writes import PooledClient
from phalanx.model.claims import AllocateClaim
from phalanx.model.preparations import Preparation
from phalanx.model.volumes import BindClaim


def preparation_handlers(client: PooledClient) -> Mapping[type[Preparation], Handler]:
    return {BindClaim: VolumeBinding(client), AllocateClaim: ClaimAllocation(client)}
