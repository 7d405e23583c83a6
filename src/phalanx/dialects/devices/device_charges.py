"""Devices as amounts: what the accounts of pods with resource claims are charged, in Volcano's words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from phalanx.model.devices.claims import MOST_DEVICES, ClaimSpec, DeviceAsk, DeviceRequest, ExtendedNeed
from phalanx.model.resources import MAX_AMOUNT, Requests
from phalanx.model.text.quantity import QuantityError, parse_quantity

# `deviceclass/gpu` counts devices, `memory.deviceclass/gpu` what is consumed of a capacity.
PREFIX = "deviceclass/"


def devices_of(spec: ClaimSpec) -> dict[str, int]:
    """What a claim may come to hold: of alternatives the most, of `allocationMode: All` all that there can be."""
    return _of_requests(spec.requests)


def offered_by_classes(needs: tuple[ExtendedNeed, ...]) -> dict[str, int]:
    """The same for extended resources."""
    return _of_requests(tuple(request for need in needs for request in need.requests))


def add_amounts(amounts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def without(requests: Requests, taken: Requests) -> Requests:
    names = {name for name, _ in taken}
    return tuple(entry for entry in requests if entry[0] not in names) if names else requests


def _of_requests(requests: tuple[DeviceRequest, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for request in requests:
        most: dict[str, int] = {}
        for ask in request.asks:
            if ask.admin:
                continue  # it takes nothing from anybody
            for name, amount in _of_ask(ask).items():
                most[name] = max(most.get(name, 0), amount)
        add_amounts(found, most)
    return found


def _of_ask(ask: DeviceAsk) -> dict[str, int]:
    count = ask.count or MOST_DEVICES
    found = {f"{PREFIX}{ask.device_class}": count}
    for name, text in ask.capacity:
        try:
            each = Fraction(parse_quantity(text, 1000), 1000)
        except QuantityError:
            continue  # the claim itself is refused for it
        found[f"{name}.{PREFIX}{ask.device_class}"] = min(
            MAX_AMOUNT, -(-each.numerator * count // each.denominator)
        )
    return found
