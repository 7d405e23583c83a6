"""What plugins tell the scheduler about themselves: settings that matter outside of the plugin that takes them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class TopologySettings(msgspec.Struct, frozen=True):
    """`levels` are the node labels that part the network, the widest first; without them those count that clusters
    are usually labelled with. `layers` gives labels short names, by which groups may ask for them. `max_domains` is
    in how many domains others are asked to go for a gang.
    """

    levels: tuple[str, ...] = ()
    layers: Mapping[str, str] = {}
    max_domains: int = 8


class UsageDecay(msgspec.Struct, frozen=True):
    """`half_life` (seconds) is how fast what accounts have held fades; None where the past does not count. With
    `denied` what is held while others wait is charged twice. `shift` (at least 0) is how far usage shifts the
    weights by which siblings share a surplus.
    """

    half_life: int | None = None
    denied: bool = False
    shift: float = 0.0
