"""Queues of the gangs and pods of one namespace: their users wrote the names, so they can see these queues."""

from __future__ import annotations

from collections import defaultdict

from phalanx.cluster.state import ClusterState


class OwnQueues:
    """Queues by namespace, computed once for each dry run."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._generation = -1
        self._queues: dict[str, frozenset[str]] = {}

    def of(self, namespace: str, generation: int) -> frozenset[str]:
        """Return the queues of a namespace as of the dry run `generation`."""
        if generation != self._generation:
            self._generation, self._queues = generation, self._computed()
        return self._queues.get(namespace, frozenset())

    def _computed(self) -> dict[str, frozenset[str]]:
        queues: defaultdict[str, set[str]] = defaultdict(set)
        for key, record in self._state.gangs.items():
            if record.spec is not None and record.spec.queue:
                queues[key.namespace].add(record.spec.queue)
        for pod in self._state.pods.values():
            path = pod.charge_path
            if path is not None and path.queue is not None:
                queues[pod.pod.namespace].add(path.queue.key.name)
        return {namespace: frozenset(names) for namespace, names in queues.items()}
