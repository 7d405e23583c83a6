"""How much of the idle GPUs is of no use to the jobs of the workload (the F of the plugin `fgd`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from phalanx.cluster.state import ClusterState
from phalanx.model.pod import PodClass
from phalanx.model.resources import CPU
from phalanx.scheduling.plugins.nodes.fgd import Fragmentation, TypicalPod, gpus_of, idle_cards
from phalanx.simulation.job import SimulatedJob


class WorkloadFragmentation:
    """The part of what is idle that is broken up, for jobs as frequent as they are in the workload."""

    def __init__(self, jobs: Iterable[SimulatedJob]) -> None:
        frequencies: Counter[PodClass] = Counter()
        for job in jobs:
            frequencies[job.pod_class] += job.pods
        self._fragmentation = Fragmentation(
            [
                TypicalPod(dict(pod_class.requests).get(CPU, 0), gpus, milli if gpus else 0, float(frequency))
                for pod_class, frequency in frequencies.items()
                for gpus, milli in [gpus_of(pod_class)]
            ]
        )

    def ratio(self, state: ClusterState) -> float:
        """0 where every idle GPU is of use to everybody, or none is idle."""
        rows = np.flatnonzero(state.nodes.alive)
        cards = idle_cards(state.nodes, rows)
        cards, rows = cards[cards.any(axis=1)], rows[cards.any(axis=1)]
        if not len(rows):
            return 0.0
        cpu = state.nodes.idle[state.space.find(CPU)][rows].astype(np.int64)
        # Nodes with the same idle are many, and which of their GPUs it is makes no difference.
        kinds, counts = np.unique(np.column_stack((cpu, np.sort(cards, axis=1))), axis=0, return_counts=True)
        broken = self._fragmentation.of(kinds[:, 0], kinds[:, 1:]) * counts
        return round(float(broken.sum() / cards.sum()), 6)
