"""Pods whose node is not known: not yet, or not any more."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord


class PodsOfUnknownNodes:
    """Records by the name of the node that they wait for, in the order in which they came."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodRecord]] = {}

    def add(self, node: str, record: PodRecord) -> None:
        self._by_node.setdefault(node, {})[record.pod.uid] = record

    def discard(self, record: PodRecord) -> None:
        """The pod waits for no node any more, whichever it was."""
        for node in {record.pod.node, record.pod.nominated_node, record.assumed_node, record.nominated_node}:
            waiting = self._by_node.get(node)
            if waiting is not None and waiting.pop(record.pod.uid, None) is not None and not waiting:
                del self._by_node[node]

    def pop(self, node: str) -> list[PodRecord]:
        """Those who have waited for a node that is known now."""
        return list(self._by_node.pop(node, {}).values())
