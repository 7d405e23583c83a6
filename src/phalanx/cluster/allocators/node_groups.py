"""Allocator for queues' limits per node group (Volcano's nodegroup-resource-limits)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.pod import Pod, PodClass
from phalanx.model.pools import POOL_LABEL, PoolRule
from phalanx.model.resources import Requests

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

NODE_GROUPS = "node-groups"


class NodeGroupShare(msgspec.Struct, frozen=True):
    """A pod's requests, as part of its queue's usage of a node group."""

    queue: str
    amounts: Requests


class NodeGroups(NodeAllocator):
    """Usage of node groups by queues with limits, by row and by group; a node that changes its group moves its
    usage along.

    The limits come with the classes of the pods (`PoolRule.limits`).
    """

    name = NODE_GROUPS

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._group: dict[int, str] = {}
        self._rows: dict[str, set[int]] = {}
        self._held_on: dict[int, dict[str, Counter[str]]] = {}
        self._held_in: dict[tuple[str, str], Counter[str]] = {}

    def held(self, queue: str, group: str) -> Mapping[str, int]:
        return self._held_in.get((queue, group), {})

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.pool is not None and bool(pod_class.pool.limits)

    def shared(self, pod_class: PodClass) -> bool:
        return True

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        rule, column = _rule(pod_class), self._nodes.labels.column(POOL_LABEL)
        copies = np.full(len(column.values), UNLIMITED_COPIES, dtype=np.int64)
        limits, charged = dict(rule.limits), pod_class.charged(pod_class.requests)
        for number, group in enumerate(column.values):
            if number and group in limits:
                copies[number] = self._copies_in(rule.queue, group, limits[group], charged)
        result: IntArray = copies[column.ids[rows]]
        return result

    def observed(self, pod: Pod, row: int) -> object | None:
        charged = pod.pod_class.charged(pod.usage or pod.pod_class.requests)
        portion = NodeGroupShare(_rule(pod.pod_class).queue, tuple(sorted(charged.items())))
        self.book(portion, row, 1)
        return portion

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, NodeGroupShare)
        by_queue = self._held_on.setdefault(row, {})
        _add(by_queue.setdefault(allocated.queue, Counter()), dict(allocated.amounts), sign)
        if not by_queue[allocated.queue]:
            del by_queue[allocated.queue]
        if not by_queue:
            del self._held_on[row]
        group = self._group.get(row, "")
        if group:
            self._count(allocated.queue, group, dict(allocated.amounts), sign)
            self._note(group)

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        return [
            (
                "node(s) were in a node group in which the queue has reached its limit",
                self.copies(pod_class, rows) == 0,
            )
        ]

    def node_added(self, row: int) -> None:
        self._move(row, self._nodes.labels.of(row).get(POOL_LABEL, ""))

    def node_removed(self, row: int) -> None:
        self._move(row, "")

    def _move(self, row: int, group: str) -> None:
        last = self._group.get(row, "")
        if last == group:
            return
        for queue, amounts in self._held_on.get(row, {}).items():
            if last:
                self._count(queue, last, amounts, -1)
            if group:
                self._count(queue, group, amounts, 1)
        for name in filter(None, (last, group)):
            self._note(name)
        if last:
            self._rows[last].discard(row)
            if not self._rows[last]:
                del self._rows[last]
            del self._group[row]
        if group:
            self._rows.setdefault(group, set()).add(row)
            self._group[row] = group
        self.changes.note(row)

    def _note(self, group: str) -> None:
        """Record that the number of further pods has changed on all nodes of a group."""
        rows = self._rows.get(group, ())
        self.changes.note_all(rows)
        self._nodes.changes.note_all(rows)

    def _count(self, queue: str, group: str, amounts: Mapping[str, int], sign: int) -> None:
        used = self._held_in.setdefault((queue, group), Counter())
        _add(used, amounts, sign)
        if not used:
            del self._held_in[queue, group]

    def _copies_in(self, queue: str, group: str, limit: Requests, wanted: Mapping[str, int]) -> int:
        used = self.held(queue, group)
        parts = [
            (limit_amount - used.get(name, 0)) // wanted[name] for name, limit_amount in limit if wanted.get(name)
        ]
        return max(0, min(parts, default=UNLIMITED_COPIES))


def _rule(pod_class: PodClass) -> PoolRule:
    rule = pod_class.pool
    assert rule is not None
    return rule


def _add(counter: Counter[str], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        counter[name] += sign * amount
        if not counter[name]:
            del counter[name]
