"""How a class of pods with claims stands: what is yet to be allocated, by claims and for amounts."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.cluster.allocators.base import UNLIMITED_COPIES
from phalanx.model.devices.claims import ClaimSpec, DeviceRequest, ExtendedNeed
from phalanx.model.selectors import NodeSelectorTerm


class ClassStanding(msgspec.Struct, frozen=True):
    """How a class stands: what of its claims is yet to be allocated, where the others let it go, and for how many
    pods there is room among their consumers. `joint`: one of those to be allocated has several pods. `extended` are
    resources that are met by amounts or by devices, node by node; `everything` is to be allocated where all are met
    by devices."""

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
