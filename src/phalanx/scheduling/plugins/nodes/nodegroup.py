"""Plugin `nodegroup`: groups of nodes for queues (Volcano, plugins/nodegroup)."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.nodes.labels import ABSENT
from phalanx.model.pools import POOL_LABEL, PoolRule
from phalanx.plugin import Arguments, BoolArray, ClassRecord, FloatArray, NodeTable, Plugin, Rows


class NodeGroup(Plugin):
    """Filter and score by node group.

    The label `volcano.sh/nodegroup-name` names the group of a node; a queue's spec.affinity names the groups for
    its pods (`PoolRule`). With enableHierarchy, a queue without a rule uses the rule of its nearest ancestor with
    one.

    Pods of a queue without a rule fit no node if `strict` (the default), else nodes without a group. Unlike in
    Volcano, a group in both anti-affinity lists is forbidden.
    """

    name = "nodegroup"
    arguments = ("enablePreferredOrder", "strict")
    node_allocators = frozenset({"node-groups"})

    def __init__(self, arguments: Arguments) -> None:
        self._strict = arguments.boolean("strict", True)
        self._ordered = arguments.boolean("enablePreferredOrder", False)
        self._inherits = arguments.hierarchical

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        column = nodes.labels.column(POOL_LABEL)
        rule = self._rule(pod_class)
        known = np.array([rule is not None and rule.permits(group) for group in column.values], dtype=np.bool_)
        known[ABSENT] = rule is None and not self._strict
        result: BoolArray = known[column.ids[rows]]
        return result

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        ungrouped: BoolArray = nodes.labels.column(POOL_LABEL).ids[rows] == ABSENT
        refused = ~self.filter(pod_class, nodes, rows)
        if self._rule(pod_class) is None:
            # Nodes of a group are only for queues that name the group.
            reason = "node(s) were in a node group, but the queue names none"
            return [("node(s) were in no node group", refused & ungrouped), (reason, refused & ~ungrouped)]
        reason = "node(s) were in a node group that the queue does not allow"
        return [("node(s) were in no node group", ungrouped), (reason, refused & ~ungrouped)]

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        rule = self._rule(pod_class)
        if rule is None:
            return None
        column = nodes.labels.column(POOL_LABEL)
        points = np.array([rule.points(group, self._ordered) for group in column.values], dtype=np.float64)
        points[ABSENT] = 0.0
        result: FloatArray = points[column.ids]
        return result

    def _rule(self, pod_class: ClassRecord) -> PoolRule | None:
        rule = pod_class.spec.pool
        if rule is None or not rule.names_groups or (rule.inherited and not self._inherits):
            return None
        return rule
