"""Amounts of resources as keyword arguments: `cpu="500m", memory="1Gi", gpu=2`."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.model.account import Limits, limits_of
from phalanx.model.resources import Requests, parse_amount, requests_of

_RESOURCES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}


def amounts(**quantities: object) -> Requests:
    """Return quantities as canonical requests; `gpu` is nvidia.com/gpu, `storage` is ephemeral-storage."""
    return requests_of(_parsed(quantities))


def limits(quantities: Mapping[str, object]) -> Limits:
    """Return quantities as limits of an account, zeros included."""
    return limits_of(_parsed(quantities))


def resource_name(name: str) -> str:
    """Return the full name of a resource."""
    return _RESOURCES.get(name, name)


def _parsed(quantities: Mapping[str, object]) -> dict[str, int]:
    named = {resource_name(name): quantity for name, quantity in quantities.items()}
    return {name: parse_amount(name, quantity) for name, quantity in named.items()}
