"""Devices as requests: the amounts that pods with ResourceClaims are charged for, under Volcano's resource
names."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from phalanx.model.devices.claims import MOST_DEVICES, ClaimSpec, DeviceAsk, DeviceRequest, ExtendedNeed
from phalanx.model.resources import MAX_AMOUNT, Requests
from phalanx.model.text.quantity import QuantityError, parse_quantity

# `deviceclass/gpu` counts devices, `memory.deviceclass/gpu` the consumption of a capacity.
PREFIX = "deviceclass/"


def devices_of(spec: ClaimSpec) -> dict[str, int]:
    """Return the maximum number of devices per class that a ResourceClaim can hold: the largest alternative, and
    all devices for `allocationMode: All`."""
    return _of_requests(spec.requests)


def offered_by_classes(needs: tuple[ExtendedNeed, ...]) -> dict[str, int]:
    """Return the maximum number of devices per class that a pod's extended resources can hold."""
    return _of_requests(tuple(request for need in needs for request in need.requests))


def add_amounts(amounts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def without(requests: Requests, removed: Requests) -> Requests:
    names = {name for name, _ in removed}
    return tuple(entry for entry in requests if entry[0] not in names) if names else requests


def _of_requests(requests: tuple[DeviceRequest, ...]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for request in requests:
        maxima: dict[str, int] = {}
        for ask in request.asks:
            if ask.admin:
                continue  # admin access occupies no device
            for name, amount in _of_ask(ask).items():
                maxima[name] = max(maxima.get(name, 0), amount)
        add_amounts(amounts, maxima)
    return amounts


def _of_ask(ask: DeviceAsk) -> dict[str, int]:
    count = ask.count or MOST_DEVICES
    amounts = {f"{PREFIX}{ask.device_class}": count}
    for name, text in ask.capacity:
        try:
            consumed = Fraction(parse_quantity(text, 1000), 1000)
        except QuantityError:
            continue  # the claim is rejected for it elsewhere
        amounts[f"{name}.{PREFIX}{ask.device_class}"] = min(
            MAX_AMOUNT, -(-consumed.numerator * count // consumed.denominator)
        )
    return amounts
