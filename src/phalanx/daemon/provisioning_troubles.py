"""Failed provisioning of volumes: a node is avoided for some time after a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

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
    """Failure on one node: the smallest failed size in bytes, its seconds and their end, and whether it still
    counts.
    """

    size: int
    seconds: float
    until: float
    lasts: bool = True


class StoredTrouble(msgspec.Struct, frozen=True, order=True):
    """Stored form of a failure that counts until a time, in seconds since the epoch."""

    storage_class: str
    node: str
    size: int
    seconds: float
    until: float


class ProvisioningTroubles:
    """Provisioning failures of the last moments, published to the state and withdrawn later.

    `wake` requests a cycle; `later(seconds, call)` schedules a call; `now` returns seconds since the epoch.
    `version` counts the failures.
    """

    def __init__(
        self,
        state: ClusterState,
        wake: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.version = 0
        self._now = now
        self._state = state
        self._wake = wake
        self._later = later or (lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._known: dict[tuple[str, str], _Trouble] = {}

    def provisioning_failed(self, storage_class: str, node: str, size: int) -> None:
        """Record that no volume of this class and size (bytes) could be provisioned for the node."""
        last = self._known.get((storage_class, node))
        seconds = min(_LONGEST, 2 * last.seconds) if last is not None else _FIRST
        size = min(size, last.size) if last is not None and last.lasts else size
        self._avoid(StoredTrouble(storage_class, node, size, seconds, self._now() + seconds), seconds)

    def stored(self) -> tuple[StoredTrouble, ...]:
        """Return the failures that still count."""
        return tuple(
            sorted(
                StoredTrouble(*key, trouble.size, trouble.seconds, trouble.until)
                for key, trouble in self._known.items()
                if trouble.lasts
            )
        )

    def restore(self, troubles: Iterable[StoredTrouble]) -> None:
        """Restore the failures that an earlier process stored, as far as they still count."""
        for trouble in troubles:
            seconds = min(trouble.until - self._now(), _LONGEST)
            if seconds > 0 and (trouble.storage_class, trouble.node) not in self._known:
                self._avoid(trouble, seconds)

    def _avoid(self, stored: StoredTrouble, seconds: float) -> None:
        key = (stored.storage_class, stored.node)
        trouble = self._known[key] = _Trouble(stored.size, stored.seconds, stored.until)
        self.version += 1
        self._state.apply(AllocatorFact(VOLUMES, ProvisioningTrouble(*key, stored.size)))
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
