"""`large-pods-only`: keeps small pods off machines that are kept for large ones."""

from __future__ import annotations

import numpy as np

from phalanx.plugin import BoolArray, ClassRecord, NodeTable, Plugin, Rows

LABEL = "example.com/least-cores"


class LargePodsOnly(Plugin):
    """A node with the label takes only pods that ask for at least so many cores."""

    name = "large-pods-only"

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        millicores = dict(pod_class.spec.requests).get("cpu", 0)
        column = nodes.labels.column(LABEL)
        allowed = [not text.isdigit() or millicores >= 1000 * int(text) for text in column.values]
        result: BoolArray = np.array(allowed, dtype=np.bool_)[column.ids[rows]]
        return result

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        return [("node(s) take larger pods only", ~self.filter(pod_class, nodes, rows))]
