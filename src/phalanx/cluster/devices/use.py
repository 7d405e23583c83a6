"""Devices in use, and the number of ResourceClaims that use them."""

from __future__ import annotations

from collections import Counter

from phalanx.cluster.dra.amounts import nano
from phalanx.cluster.dra.supply import CounterId, Pool
from phalanx.model.devices.claims import ClaimResult, DeviceId
from phalanx.model.text.quantity import QuantityError


class DeviceUse:
    """Use of devices by allocated ResourceClaims. An admin-access allocation does not use its device."""

    def __init__(self) -> None:
        self._taken: Counter[DeviceId] = Counter()
        self._sharers: Counter[DeviceId] = Counter()
        self._consumed: dict[DeviceId, Counter[str]] = {}

    def book(self, allocation: ClaimResult, sign: int) -> set[tuple[str, str]]:
        """Add (sign 1) or remove (sign -1) a claim's allocation; return the affected device pools."""
        pools: set[tuple[str, str]] = set()
        for device in allocation.devices:
            if device.admin:
                continue
            pools.add(device.id[:2])
            if not device.shared:
                _count(self._taken, device.id, sign)
                continue
            _count(self._sharers, device.id, sign)
            consumed = self._consumed.setdefault(device.id, Counter())
            for name, text in device.consumed:
                consumed[name] += sign * _amount(text)
            if device.id not in self._sharers:
                del self._consumed[device.id]
        return pools

    def free(self, device: DeviceId) -> bool:
        """Return whether no ResourceClaim uses the device exclusively."""
        return device not in self._taken

    def shared(self, device: DeviceId) -> bool:
        return device in self._sharers

    def consumed(self, device: DeviceId, capacity: str) -> int:
        """Return the amount of a device's capacity that claims consume, in nano-units."""
        return self._consumed[device][capacity] if device in self._consumed else 0

    def left(self, pool: Pool) -> dict[CounterId, int]:
        """Return the remaining amounts of the counters of a device pool."""
        remaining = dict(pool.counters)
        for offer in pool.offers if remaining else ():
            if not self.free(offer.id) or self.shared(offer.id):
                for counter, amount in offer.draws.items():
                    remaining[counter] -= amount
        return remaining


def _count(counter: Counter[DeviceId], device: DeviceId, sign: int) -> None:
    counter[device] += sign
    if not counter[device]:
        del counter[device]


def _amount(text: str) -> int:
    try:
        return nano(text)
    except QuantityError:
        return 0
