"""`network-topology-aware`: which levels the network has (Volcano's plugin of that name)."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.scheduling.arguments import Arguments
from phalanx.scheduling.errors import PolicyError
from phalanx.scheduling.plugin import Plugin


class NetworkTopologyAware(Plugin):
    """`levels` are the node labels that part the network, the widest first; without them those count that clusters
    are usually labelled with, the wider the fewer domains they have. `layers` gives labels short names, by which
    groups may ask for them. `max_domains` is in how many domains others are asked to go for a gang.
    """

    name = "network-topology-aware"
    arguments = (
        "hypernode.binpack.cpu",
        "hypernode.binpack.memory",
        "hypernode.binpack.normal-pod.enable",
        "hypernode.binpack.normal-pod.fading",
        "hypernode.binpack.resources",
        "hypernode.binpack.resources.*",
        "hypernode.gradient.evict.max-hypernodes",
        "layers",
        "levels",
        "weight",
    )

    def __init__(self, arguments: Arguments) -> None:
        self.levels = _labels(arguments)
        self.layers: Mapping[str, str] = {
            name: str(label) for name, label in arguments.mapping("layers").items() if label
        }
        self.max_domains = arguments.integer("hypernode.gradient.evict.max-hypernodes", 8, least=1)


def _labels(arguments: Arguments) -> tuple[str, ...]:
    levels = tuple(str(label) for label in arguments.sequence("levels"))
    if len(set(levels)) != len(levels):
        raise PolicyError(f"{arguments.owner}: argument levels: a label is named twice")
    return levels
