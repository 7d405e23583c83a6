"""Pods with an unknown node: not known yet, or removed."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord


class PodsOfUnknownNodes:
    """Pods by the name of their unknown node, in the order of arrival."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodRecord]] = {}

    def add(self, node: str, record: PodRecord) -> None:
        self._by_node.setdefault(node, {})[record.pod.uid] = record

    def discard(self, record: PodRecord) -> None:
        """Remove a pod, under any of its possible nodes."""
        for node in {record.pod.node, record.pod.nominated_node, record.assumed_node, record.nominated_node}:
            waiting = self._by_node.get(node)
            if waiting is not None and waiting.pop(record.pod.uid, None) is not None and not waiting:
                del self._by_node[node]

    def pop(self, node: str) -> list[PodRecord]:
        """Remove and return the pods of a node that is known now."""
        return list(self._by_node.pop(node, {}).values())
