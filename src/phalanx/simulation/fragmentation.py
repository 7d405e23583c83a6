"""Fragmentation: the part of idle GPUs that the workload's jobs cannot use (F of the plugin `fgd`)."""

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
    """Fragmentation of idle GPUs for the jobs of a workload, weighted by their frequency."""

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
        """Return the fragmented part: 0 if every job can use every idle GPU, or none is idle."""
        rows = np.flatnonzero(state.nodes.alive)
        cards = idle_cards(state.nodes, rows)
        cards, rows = cards[cards.any(axis=1)], rows[cards.any(axis=1)]
        if not len(rows):
            return 0.0
        cpu = state.nodes.idle[state.space.find(CPU)][rows].astype(np.int64)
        # Many nodes have the same idle resources, and the order of their GPUs is irrelevant.
        kinds, counts = np.unique(np.column_stack((cpu, np.sort(cards, axis=1))), axis=0, return_counts=True)
        fragmented = self._fragmentation.of(kinds[:, 0], kinds[:, 1:]) * counts
        return round(float(fragmented.sum() / cards.sum()), 6)
