"""`bestfit`: the node on which least is left, in absolute amounts."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import CPU_COLUMN, Arguments, ClassRecord, FloatArray, Load, Plugin
from phalanx.scheduling.plugins.nodes.fgd import WHOLE, gpus_of, idle_cards, widest


class BestFit(Plugin):
    """weight x 100 x (1 - mean over CPU and GPUs of what is left with the pod, as a part of the largest node), in
    whole points.

    `binpack` looks at parts of each node; this one takes a small node that is half empty before a large one.
    """

    name = "bestfit"
    arguments = ("bestfit.weight",)

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("bestfit.weight", 1, least=0)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        nodes = load.nodes
        copies = np.ones(1) if load.copies is None else load.copies
        gpus, milli = gpus_of(pod_class.spec)
        asked_cpu = dict(pod_class.spec.requests).get("cpu", 0)
        cpu = nodes.idle[CPU_COLUMN][load.rows][:, None] - asked_cpu * copies
        cards = idle_cards(nodes, load.rows).sum(axis=1)[:, None] - gpus * milli * copies
        most_cpu = max(1.0, float(nodes.allocatable[CPU_COLUMN].max(initial=0)))
        most_cards = max(1.0, float(widest(nodes) * WHOLE))
        left = (cpu / most_cpu + cards / most_cards) / 2.0
        points: FloatArray = np.floor((1.0 - left) * 100.0) * self._weight
        return points[:, 0] if load.copies is None else points
