"""Where volumes could not be made a moment ago: whoever is placed anew goes elsewhere for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.cluster.volume_supply import VOLUMES
from phalanx.model.events import StockFact
from phalanx.model.volumes import ProvisioningTrouble

# Without it the same node would be chosen again, where a driver does not publish what it has left (seconds).
_AVOIDED = 60.0


class ProvisioningTroubles:
    """Tells the state what a provisioner has sent back, and takes that back after a while. `wake` asks for a cycle;
    `later(seconds, call)` calls back."""

    def __init__(
        self,
        state: ClusterState,
        wake: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._state = state
        self._wake = wake
        self._later = later or (lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._last: dict[tuple[str, str], object] = {}

    def note(self, storage_class: str, node: str) -> None:
        token = self._last[storage_class, node] = object()
        self._state.apply(StockFact(VOLUMES, ProvisioningTrouble(storage_class, node)))
        self._later(_AVOIDED, lambda: self._forgive(storage_class, node, token))

    def _forgive(self, storage_class: str, node: str, token: object) -> None:
        if self._last.get((storage_class, node)) is not token:
            return
        del self._last[storage_class, node]
        self._state.apply(StockFact(VOLUMES, ProvisioningTrouble(storage_class, node, lasts=False)))
        self._wake()
