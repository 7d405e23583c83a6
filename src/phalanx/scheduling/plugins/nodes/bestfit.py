"""Plugin `bestfit`: prefer the node on which the pod leaves the smallest absolute rest."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import CPU_COLUMN, Arguments, ClassRecord, FloatArray, Load, Plugin
from phalanx.scheduling.plugins.nodes.fgd import WHOLE, gpus_of, idle_cards, widest


class BestFit(Plugin):
    """Score in whole points: weight x 100 x (1 - mean over CPU and GPUs of the rest with the pod placed, relative
    to the largest node).

    `binpack` compares fractions of each node; this plugin prefers a small half-empty node to a large one.
    """

    name = "bestfit"
    arguments = ("bestfit.weight",)

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("bestfit.weight", 1, least=0)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        nodes = load.nodes
        copies = np.ones(1) if load.copies is None else load.copies
        gpus, milli = gpus_of(pod_class.spec)
        requested_cpu = dict(pod_class.spec.requests).get("cpu", 0)
        cpu = nodes.idle[CPU_COLUMN][load.rows][:, None] - requested_cpu * copies
        cards = idle_cards(nodes, load.rows).sum(axis=1)[:, None] - gpus * milli * copies
        largest_cpu = max(1.0, float(nodes.allocatable[CPU_COLUMN].max(initial=0)))
        largest_cards = max(1.0, float(widest(nodes) * WHOLE))
        remainder = (cpu / largest_cpu + cards / largest_cards) / 2.0
        points: FloatArray = np.floor((1.0 - remainder) * 100.0) * self._weight
        return points[:, 0] if load.copies is None else points
