"""Failed provisioning of volumes: a node is avoided for some time after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.cluster.volumes.supply import VOLUMES
from phalanx.model.events import AllocatorFact
from phalanx.model.volumes import ProvisioningTrouble

# Seconds for which a node is avoided; they double while it keeps failing. The first is longer than the first pause
# of a failed pod, or the pod would get the same node again. It is short, as a failure can be brief and the node the
# only one.
_FIRST = 4.0
_LONGEST = 60.0


class _Trouble(msgspec.Struct):
    """Failure to provision a volume for one node: the smallest failed size in bytes, its seconds, and whether it
    still counts."""

    size: int
    seconds: float
    lasts: bool = True


class ProvisioningTroubles:
    """Recent provisioning failures, published to the state and withdrawn later.

    `wake` requests a cycle; `later(seconds, call)` schedules a call.
    """

    def __init__(
        self,
        state: ClusterState,
        wake: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._state = state
        self._wake = wake
        self._later = later or (lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._known: dict[tuple[str, str], _Trouble] = {}

    def provisioning_failed(self, storage_class: str, node: str, size: int) -> None:
        """Record that no volume of this class and size (bytes) could be provisioned for the node."""
        key, last = (storage_class, node), self._known.get((storage_class, node))
        seconds = min(_LONGEST, 2 * last.seconds) if last is not None else _FIRST
        size = min(size, last.size) if last is not None and last.lasts else size
        trouble = self._known[key] = _Trouble(size, seconds)
        self._state.apply(AllocatorFact(VOLUMES, ProvisioningTrouble(storage_class, node, size)))
        self._later(seconds, lambda: self._forgive(key, trouble))

    def _forgive(self, key: tuple[str, str], trouble: _Trouble) -> None:
        if self._known.get(key) is not trouble:
            return
        trouble.lasts = False
        storage_class, node = key
        self._state.apply(AllocatorFact(VOLUMES, ProvisioningTrouble(storage_class, node, lasts=False)))
        self._later(_LONGEST, lambda: self._forget(key, trouble))
        self._wake()

    def _forget(self, key: tuple[str, str], trouble: _Trouble) -> None:
        if self._known.get(key) is trouble:
            del self._known[key]
