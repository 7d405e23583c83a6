"""Plugin `node-backoff`: no pods for nodes whose kubelet rejected such pods recently. The plugin is active in every
policy.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.cluster.node_table import NO_ROW
from phalanx.model.node_rejection import PROVISIONING_FAILED, BackoffScope
from phalanx.plugin import Arguments, BoolArray, ClassRecord, NodeBackoff, NodeTable, Plugin, Rows


class NodeBackoffPlugin(Plugin):
    """Filter that excludes nodes in back-off."""

    name = "node-backoff"

    def __init__(self, arguments: Arguments) -> None:
        self._backoff = NodeBackoff()

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        self._backoff = backoff

    def time_key(self, now: float) -> None:
        """Mark the filter as one that changes in time. The feature `rejecting-nodes` notes the changed rows."""

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if not self._backoff.active:
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        return ~_closed_rows(self._backoff.closed_to(pod_class.spec, pod_class.namespace), nodes, rows)

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        if not self._backoff.active:
            return []
        scopes = self._backoff.closed_to(pod_class.spec, pod_class.namespace)
        by_reason: dict[str, list[BackoffScope]] = {}
        for scope in scopes:
            by_reason.setdefault(scope.reason, []).append(scope)
        return [
            (_text(reason), _closed_rows(scopes_of_reason, nodes, rows))
            for reason, scopes_of_reason in sorted(by_reason.items())
        ]


def _text(reason: str) -> str:
    if reason == PROVISIONING_FAILED:
        return "node(s) had a volume refused by its provisioner a moment ago"
    return f"node(s) rejected a pod recently ({reason})"


def _closed_rows(scopes: Iterable[BackoffScope], nodes: NodeTable, rows: Rows) -> BoolArray:
    closed: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    for scope in scopes:
        row = nodes.row(scope.node)
        if row != NO_ROW:
            closed[row] = True
    result: BoolArray = closed[rows]
    return result
