"""`random`: any node that will do, as the measure of what the other scores are worth."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import Arguments, ClassRecord, FloatArray, Load, Plugin


class RandomNode(Plugin):
    """100 x weight x a number drawn anew for each node and pod; the same seed draws the same."""

    name = "random"
    arguments = ("random.seed", "random.weight")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("random.weight", 1, least=0)
        self._draws = np.random.default_rng(arguments.integer("random.seed", 1, least=0))

    @property
    def depends_on_other_nodes(self) -> bool:
        """Nodes are drawn for anew after each pod."""
        return True

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        drawn = self._draws.random((len(load.nodes.idle[0][load.rows]), load.depth)) * (100.0 * self._weight)
        return drawn[:, 0] if load.copies is None else drawn
