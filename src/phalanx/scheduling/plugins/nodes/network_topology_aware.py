"""Plugin `network-topology-aware` of Volcano: the levels of the network, and scores by how full its domains are."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.network.topology import Level, Topology
from phalanx.model.topology import TopologyRule
from phalanx.plugin import (
    Arguments,
    ClassRecord,
    FloatArray,
    Load,
    NodeBackoff,
    NodeTable,
    Plugin,
    PolicyError,
    TopologySettings,
)

_TIERS = TopologyRule(hypernodes=True)


class NetworkTopologyAware(Plugin):
    """Topology of the network (`TopologySettings`), and a score by usage of domains.

    Domains are filled up, so that whole ones stay free for gangs. The score of a node is
    - 100 x weight x (sum over tiers t = 0, 1 ... of fading^t x used part of its HyperNode of tier t) / (sum of
      fading^t).

    The used part is the weighted mean over the requested resources, with the pod placed. Without HyperNodes the
    configured `levels` are the tiers.
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
        self._levels = _labels(arguments)
        self.topology = TopologySettings(
            self._levels,
            {name: str(label) for name, label in arguments.mapping("layers").items() if label},
            arguments.integer("hypernode.gradient.evict.max-hypernodes", 8, least=1),
        )
        self._weight = arguments.integer("weight", 1, least=0)
        self._fading = arguments.number("hypernode.binpack.normal-pod.fading", 0.8, least=0)
        self._weights = {
            "cpu": arguments.integer("hypernode.binpack.cpu", 1, least=0),
            "memory": arguments.integer("hypernode.binpack.memory", 1, least=0),
        }
        for name in arguments.text("hypernode.binpack.resources").split(","):
            if resource := name.strip():
                self._weights[resource] = arguments.integer(f"hypernode.binpack.resources.{resource}", 1, least=0)
        self._domains: Topology | None = None
        if not self._weight or not arguments.boolean("hypernode.binpack.normal-pod.enable", True):
            self.disabled_points = frozenset({"score"})

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        self._domains = nodes.topology

    @property
    def depends_on_other_nodes(self) -> bool:
        return bool(self._tiers())

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        columns = [
            (column, weight)
            for name, amount in pod_class.spec.requests
            if amount and (weight := self._weights.get(name, 0)) and (column := load.column(name)) is not None
        ]
        whole = sum(weight for _, weight in columns)
        tiers = self._tiers()
        if not whole or not tiers:
            return 0.0
        fadings = [self._fading**place for place in range(len(tiers))]
        total: FloatArray | float = 0.0
        for level, fading in zip(tiers, fadings, strict=True):
            for column, weight in columns:
                total = total + load.fraction_within(level.ids, len(level.names), column) * (fading * weight)
        result: FloatArray = np.asarray(total) * (100.0 * self._weight / (whole * sum(fadings)))
        return result

    def _tiers(self) -> tuple[Level, ...]:
        """Return the levels that are filled up, the narrowest first."""
        topology = self._domains
        if topology is None:
            return ()
        if len(topology.hypernodes):
            return topology.ladder(_TIERS).levels[:-1]
        return topology.ladder(TopologyRule(), self._levels, True).levels[:-1] if self._levels else ()


def _labels(arguments: Arguments) -> tuple[str, ...]:
    levels = tuple(str(label) for label in arguments.sequence("levels"))
    if len(set(levels)) != len(levels):
        raise PolicyError(f"{arguments.owner}: argument levels: a label is named twice")
    return levels
