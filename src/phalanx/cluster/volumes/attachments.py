"""Attach limits: the maximum number of volumes of a CSI driver on a node, and the present number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.allocators.inventory import Inventory
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows, row_numbers
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.pod import Pod, PodClass
from phalanx.model.volumes import Attachment, ClaimAttachment, NodeAttachments, NodeStorage, StorageDriver

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

ATTACHMENTS = "attachments"
TOO_MANY = "node(s) exceed max volume count"

# ("", namespace/name) of a claim, or (driver, handle).
Key = tuple[str, str]
Handle = tuple[str, str]

_UNKNOWN = NodeStorage("")


class Attachments(NodeAllocator):
    """Allocator of volume attachments on nodes (kube-scheduler 1.36, NodeVolumeLimits).

    Volumes in use by the node's pods, and attached ones, count once per driver and handle. A volume of a new pod
    that no other pod there uses counts as one more, even if it is still attached from before, as upstream counts.
    """

    name = ATTACHMENTS

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._storage: dict[str, NodeStorage] = {}
        self._attached: dict[str, frozenset[Handle]] = {}
        self._claims: dict[str, Handle] = {}
        self._drivers: dict[str, StorageDriver] = {}
        self._used = Inventory[Key, Key](lambda key: key)

    def concerns(self, pod_class: PodClass) -> bool:
        return any(isinstance(need, Attachment) for need in pod_class.volumes)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        copies: IntArray = np.full(self._nodes.alive[rows].shape, UNLIMITED_COPIES, dtype=np.int64)
        needs = _needs(pod_class)
        if not self._storage and not self._wants_plugin(needs):
            return copies
        numbers = row_numbers(rows, self._nodes.capacity)
        for position, row in enumerate(numbers.tolist()):
            if self._nodes.alive[row]:
                copies[position] = 0 if self._missing(needs, row) else self._copies(needs, row)
        return copies

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        needs, shape = _needs(pod_class), self._nodes.alive[rows].shape
        numbers = row_numbers(rows, self._nodes.capacity)
        reasons: dict[str, BoolArray] = {}
        for position, row in enumerate(numbers.tolist()):
            driver = self._missing(needs, row)
            if driver:
                reason = f"{driver} CSI driver is not installed on the node"
            elif not self._copies(needs, row):
                reason = TOO_MANY
            else:
                continue
            reasons.setdefault(reason, np.zeros(shape, dtype=np.bool_))[position] = True
        return list(reasons.items())

    def _wants_plugin(self, needs: tuple[Attachment, ...]) -> bool:
        known = (self._drivers.get(need.driver) for need in needs)
        return any(driver is not None and driver.needs_node_plugin for driver in known)

    def _missing(self, needs: tuple[Attachment, ...], row: int) -> str:
        """Return the first required CSI driver that is missing on a node row; "" for none."""
        installed = self._storage.get(self._nodes.names[row], _UNKNOWN).drivers
        for need in needs:
            driver = self._drivers.get(need.driver)
            if driver is not None and driver.needs_node_plugin and need.driver not in installed:
                return need.driver
        return ""

    def _copies(self, needs: tuple[Attachment, ...], row: int) -> int:
        node = self._nodes.names[row]
        limits = dict(self._storage.get(node, _UNKNOWN).limits)
        minimum = UNLIMITED_COPIES
        for driver in {need.driver for need in needs} & limits.keys():
            used = self._held(row, driver)
            occupied = used | {
                handle for handle_driver, handle in self._attached.get(node, ()) if handle_driver == driver
            }
            own = sum(need.driver == driver and need.volume is None for need in needs)
            known = {
                self._handle(need.volume) for need in needs if need.driver == driver and need.volume is not None
            }
            joint = {handle for handle_driver, handle in known if handle_driver == driver} - used
            if not own and not joint:
                continue  # no further volume: upstream does not even check the present number
            room = limits[driver] - len(occupied)
            if own + len(joint) > room:
                return 0
            if own:
                minimum = min(minimum, 1 + (room - own - len(joint - occupied)) // own)
        return minimum

    def _held(self, row: int, driver: str) -> set[str]:
        """Return the volume handles of a CSI driver in use by pods of a node row."""
        handles = map(self._handle, self._used.at(row))
        return {handle for handle_driver, handle in handles if handle_driver == driver}

    def _handle(self, key: Key) -> Handle:
        return key if key[0] else self._claims.get(key[1], ("", ""))

    def observed(self, pod: Pod, row: int) -> object | None:
        keys = pod.volumes.attached
        self.book(keys, row, 1)
        return keys

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, tuple)
        self._used.count(row, allocated, sign)
        self.changes.note(row)

    def learn(self, fact: object) -> bool:
        match fact:
            case NodeStorage():
                last = self._storage.get(fact.node, _UNKNOWN)
                self._storage[fact.node] = fact
                if not fact.drivers:
                    del self._storage[fact.node]
                return self._changed_on(fact.node, (last.drivers, last.limits) != (fact.drivers, fact.limits))
            case NodeAttachments():
                last_attached = self._attached.pop(fact.node, frozenset())
                if fact.volumes:
                    self._attached[fact.node] = frozenset(fact.volumes)
                fewer = bool(last_attached - set(fact.volumes))
                self._changed_on(fact.node, last_attached != set(fact.volumes))
                return fewer
            case ClaimAttachment(claim, driver, handle):
                handles = (driver, handle) if driver else ("", "")
                if self._claims.get(claim, ("", "")) == handles:
                    return False
                if driver:
                    self._claims[claim] = handles
                else:
                    del self._claims[claim]
                rows = self._used.rows(("", claim))
                self.changes.note_all(rows)
                return bool(rows)
            case StorageDriver():
                known = self._drivers.get(fact.name)
                self._drivers[fact.name] = fact
                if (known or StorageDriver(fact.name)).needs_node_plugin != fact.needs_node_plugin:
                    self.changes.note_all(self._nodes.rows().tolist())
                    return True
        return False

    def _changed_on(self, node: str, changed: bool) -> bool:
        row = self._nodes.row(node)
        if changed and row >= 0:
            self.changes.note(row)
        return changed and row >= 0


def _needs(pod_class: PodClass) -> tuple[Attachment, ...]:
    return tuple(need for need in pod_class.volumes if isinstance(need, Attachment))
