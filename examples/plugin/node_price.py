"""`node-price`: prefers nodes that cost less."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import Arguments, BoolArray, ClassRecord, FloatArray, NodeTable, Plugin

LABEL = "example.com/cents-per-hour"


class NodePrice(Plugin):
    """The cheapest node gets 100 points times `weight`, the dearest none; so does one without a price."""

    name = "node-price"
    arguments = ("weight",)

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("weight", 1, least=0)

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        column = nodes.labels.column(LABEL)
        # One number for each value that the label has, then one for each node.
        price = np.array([float(text) if text.isdigit() else np.nan for text in column.values])[column.ids]
        known = mask & (price >= 0)
        if not known.any():
            return None
        dearest, cheapest = price[known].max(), price[known].min()
        points: FloatArray = 100.0 * self._weight * (dearest - price) / max(dearest - cheapest, 1.0)
        return np.where(known, points, 0.0)
