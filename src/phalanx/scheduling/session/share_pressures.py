"""Pressure on the shares of queues and quotas, compared from reading to reading."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.account import AccountKey

_NO_LIMIT = 2**63

PressureKey = tuple[AccountKey, int]
"""An account, and the number of the plugin that states the share."""


class SharePressure(msgspec.Struct, frozen=True):
    """Pressure on one share of a queue or quota, in the resources of which more than the share is requested:
    `excess` are the amounts used above the share, `shares` the contested shares."""

    excess: Mapping[str, int]
    shares: Mapping[str, int]


_NO_PRESSURE = SharePressure({}, {})


class SharePressures:
    """Pressures of the last reading, by account and plugin.

    `version` increases if a search for victims can find more although no room was freed. A larger excess exposes
    more pods of its account. A contested share that has grown, or is contested no more, lets units of its account
    reclaim. All other changes of shares, such as a request within an uncontested share, change no search.
    """

    def __init__(self) -> None:
        self.version = 0
        # The version for which victims of all waiting units have been searched, or will be in the next cycle.
        self.searched = 0
        # The versions of free and leaving capacity of the last such searches in a scheduler without rechecks.
        self.searched_in = (0, 0)
        # Versions of demand and cluster at the last reading.
        self.read_at: tuple[int, int] | None = None
        self._pressures: dict[PressureKey, SharePressure] = {}

    @property
    def accounts(self) -> dict[AccountKey, None]:
        """The accounts with a contested share at the last reading."""
        return {key: None for key, _ in self._pressures}

    def update(self, versions: tuple[int, int], pressures: Mapping[PressureKey, SharePressure]) -> None:
        """Record a reading at these versions of demand and cluster."""
        keys = self._pressures.keys() | pressures.keys()
        if any(_helps(self._pressures.get(key, _NO_PRESSURE), pressures.get(key, _NO_PRESSURE)) for key in keys):
            self.version += 1
        self.read_at, self._pressures = versions, dict(pressures)


def _helps(before: SharePressure, after: SharePressure) -> bool:
    """Return whether the change exposes more victims, or lets more units reclaim."""
    exposed = any(amount > before.excess.get(name, 0) for name, amount in after.excess.items())
    return exposed or any(after.shares.get(name, _NO_LIMIT) > amount for name, amount in before.shares.items())
