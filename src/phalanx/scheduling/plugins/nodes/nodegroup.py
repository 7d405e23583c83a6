"""`nodegroup`: queues that keep to groups of nodes (Volcano, plugins/nodegroup)."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import ABSENT, Rows
from phalanx.cluster.resource_space import BoolArray, FloatArray
from phalanx.model.pools import POOL_LABEL, PoolRule
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.plugin import Plugin


class NodeGroup(Plugin):
    """A node belongs to the group that its label `volcano.sh/nodegroup-name` names; a queue's spec.affinity says
    which groups its pods may use (`PoolRule`). With enableHierarchy a queue that says nothing follows the nearest
    one above it that does.

    Pods of a queue without a rule go nowhere if `strict` (the default), else to nodes that belong to no group.
    Unlike in Volcano, a group that is both forbidden and to be avoided is forbidden.
    """

    name = "nodegroup"
    arguments = ("enablePreferredOrder", "strict")
    stocks = frozenset({"node-groups"})

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
            # What is in a group is for queues that name it.
            reason = "node(s) were in a node group, and the queue names none"
            return [("node(s) were in no node group", refused & ungrouped), (reason, refused & ~ungrouped)]
        reason = "node(s) were in a node group that the queue may not use"
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
