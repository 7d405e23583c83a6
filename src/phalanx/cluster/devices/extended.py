"""Standing of a pod class with ResourceClaims: the claims and extended resources that are not allocated yet."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.cluster.allocators.base import UNLIMITED_COPIES
from phalanx.model.devices.claims import ClaimSpec, DeviceRequest, ExtendedNeed
from phalanx.model.selectors import NodeSelectorTerm


class ClassStanding(msgspec.Struct, frozen=True):
    """Status of a class: the `fresh` claims to allocate, the `nodes` that its allocated claims permit, and the
    `room` for further consumers of these. `joint` means that one of the fresh claims has several pods.
    `extended` are resources that amounts or devices satisfy, depending on the node; `everything` is to be
    allocated where devices satisfy all of them."""

    fresh: tuple[ClaimSpec, ...] = ()
    extended: tuple[ExtendedNeed, ...] = ()
    nodes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    room: int = UNLIMITED_COPIES
    joint: bool = False
    limited: bool = False
    waits: str = ""
    everything: tuple[ClaimSpec, ...] = ()


def requests_of(needs: Iterable[ExtendedNeed]) -> tuple[DeviceRequest, ...]:
    requests = (request for need in needs for request in need.requests)
    return tuple(sorted(requests, key=lambda request: request.name))
