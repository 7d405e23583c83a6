"""Plugin `random`: any eligible node, as a baseline for other scores."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import Arguments, ClassRecord, FloatArray, Load, Plugin


class RandomNode(Plugin):
    """Score: 100 x weight x a new random number for each node and pod; equal seeds give equal numbers."""

    name = "random"
    arguments = ("random.seed", "random.weight")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("random.weight", 1, least=0)
        self._draws = np.random.default_rng(arguments.integer("random.seed", 1, least=0))

    @property
    def depends_on_other_nodes(self) -> bool:
        """True, as random scores differ for each pod: nodes are scored again after each pod."""
        return True

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        drawn = self._draws.random((len(load.nodes.idle[0][load.rows]), load.depth)) * (100.0 * self._weight)
        return drawn[:, 0] if load.copies is None else drawn
