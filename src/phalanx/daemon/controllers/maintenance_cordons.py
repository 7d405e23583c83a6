"""Cordons for maintenance: nodes are cordoned at the start of a window, and nodes that the scheduler cordoned are
uncordoned at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from phalanx.cluster.state import ClusterState
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import NODES
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.model.maintenance import CORDONED_BY, AtStart
from phalanx.model.node import Node

log = logging.getLogger(__name__)

# Seconds until a rejected write is retried.
_PAUSE = 30.0
# Seconds until the watch shows a write.
_SETTLES = 0.5


class MaintenanceCordons:
    """Controller that cordons nodes for maintenance windows.

    The annotation names the occurrence of the window for which a node was cordoned, so a restart changes nothing. A
    node that was cordoned before has no annotation and stays cordoned. A node that a user uncordons stays
    uncordoned until the next occurrence. `known` returns whether all windows are listed: before, no window counts
    as deleted.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        state: ClusterState,
        known: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._known = known
        self._now = now
        self._busy: set[str] = set()
        self._refused: set[str] = set()
        # Version of the cluster in which no node had the annotation while there was no window.
        self._clean = -1

    def check(self) -> None:
        """Submit the writes of all nodes with an outdated cordon; cheap without windows."""
        if not self._known() or (not self._state.nodes.maintenance.windows and self._clean == self._state.version):
            return
        wanted, marked = self._wanted(), False
        for node in self._state.nodes.nodes:
            if node is None:
                continue
            marked |= bool(node.cordoned_by)
            marks = wanted.get(node.name, ())
            if node.name not in self._busy and _differs(marks, node.cordoned_by, node.unschedulable):
                self._busy.add(node.name)
                self._submit(node)
        self._clean = -1 if marked else self._state.version

    def _wanted(self) -> dict[str, tuple[str, ...]]:
        """Return the annotations of the active windows by node name, ordered by window name."""
        marks: dict[str, tuple[str, ...]] = {}
        table, now = self._state.nodes.maintenance, int(self._now())
        for name, window in sorted(table.windows.items()):
            spans = window.spans(now, now + 1) if window.at_start is not AtStart.LEAVE else ()
            for row in table.rows_of(name) if spans else ():
                node = self._state.nodes.names[row]
                marks[node] = (*marks.get(node, ()), f"{window.uid}.{spans[0].start}")
        return marks

    def _submit(self, node: Node) -> None:
        self._pool.submit(Urgency.DELETE, lambda: self._write(node))

    async def _write(self, node: Node) -> float | None:
        """Write the cordon of a node; return the seconds until a retry, or None if no write is left."""
        pause: float | None = None
        try:
            pause = await self._attempt(node)
        finally:
            if pause is None:
                self._busy.discard(node.name)
        return pause

    async def _attempt(self, node: Node) -> float | None:
        path = NODES.path("", node.name)
        try:
            document = await self._client.get(path)
            patch = _patch(document, node.uid, self._wanted().get(node.name, ()))
            if patch is None:
                return None
            await self._client.patch(path, patch, PatchType.MERGE)
        except (ApiError, ConnectionLost, ConfigError) as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status == 404:
                return None
            if status == 409:
                return _SETTLES  # another client has written the node at the same time
            if node.name not in self._refused:
                self._refused.add(node.name)
                log.warning("the cordon of node %s for maintenance was not written: %s", node.name, error)
            return _PAUSE
        self._refused.discard(node.name)
        action = "uncordoned" if patch["spec"]["unschedulable"] is None else "cordoned"
        log.info("node %s is %s for maintenance", node.name, action)
        return None


def _differs(marks: tuple[str, ...], mark: str, unschedulable: bool) -> bool:
    """Return whether a node has to be cordoned for a window, or its annotation is outdated."""
    if mark:
        return mark not in marks
    return bool(marks) and not unschedulable


def _patch(document: Any, uid: str, marks: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the patch that cordons or uncordons a node; None if there is nothing to write or the node was
    replaced."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    mark = (metadata.get("annotations") or {}).get(CORDONED_BY) or ""
    unschedulable = spec.get("unschedulable") is True
    if metadata.get("uid") != uid or not _differs(marks, mark, unschedulable):
        return None
    # A user could cordon the node at the same moment: the patch applies to this version only.
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": metadata.get("resourceVersion"),
            "annotations": {CORDONED_BY: marks[0] if marks else None},
        },
        "spec": {"unschedulable": True if marks else None},
    }
