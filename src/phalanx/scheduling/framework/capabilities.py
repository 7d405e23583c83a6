"""Settings of plugins that the scheduler itself reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class TopologySettings(msgspec.Struct, frozen=True):
    """Topology of the network. `levels` are node labels, the widest domain first; empty: the usual labels of
    clusters. `layers` maps short names to labels, for use in gangs. `max_domains` is the number of domains in which
    victims are searched for a gang.
    """

    levels: tuple[str, ...] = ()
    layers: Mapping[str, str] = {}
    max_domains: int = 8


class UsageDecay(msgspec.Struct, frozen=True):
    """Decay of past usage. `half_life` (seconds) is None if past usage does not count. With `denied`, usage while
    other pods wait is charged twice. `shift` (at least 0) is the strength with which past usage shifts the weights
    of siblings that share a surplus.
    """

    half_life: int | None = None
    denied: bool = False
    shift: float = 0.0
