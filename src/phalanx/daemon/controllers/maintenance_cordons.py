"""Nodes are cordoned when their maintenance begins, and uncordoned when it is over: those that we have cordoned."""

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

# Until a write that was refused is tried again (seconds).
_PAUSE = 30.0
# Until the watch shows what was written.
_SETTLES = 0.5


class MaintenanceCordons:
    """The annotation says for which occurrence of which window a node was cordoned, so that a restart changes
    nothing. Who was cordoned before has none and stays cordoned; who is uncordoned meanwhile stays so until the
    next occurrence. `known` tells whether all windows have been seen: until then none counts as gone.
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
        # As of which version of the cluster no node was marked while there was no window.
        self._clean = -1

    def check(self) -> None:
        """Cheap; to be called every second."""
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
        """By the name of a node: the marks of the windows that are under way there, the first by name first."""
        found: dict[str, tuple[str, ...]] = {}
        table, now = self._state.nodes.maintenance, int(self._now())
        for name, window in sorted(table.windows.items()):
            spans = window.spans(now, now + 1) if window.at_start is not AtStart.LEAVE else ()
            for row in table.rows_of(name) if spans else ():
                node = self._state.nodes.names[row]
                found[node] = (*found.get(node, ()), f"{window.uid}.{spans[0].start}")
        return found

    def _submit(self, node: Node) -> None:
        self._pool.submit(Urgency.DELETE, lambda: self._write(node))

    async def _write(self, node: Node) -> float | None:
        """The seconds until the next try, None where there is nothing more to do."""
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
                return _SETTLES  # somebody else has written it meanwhile
            if node.name not in self._refused:
                self._refused.add(node.name)
                log.warning("node %s is not cordoned or uncordoned for maintenance: %s", node.name, error)
            return _PAUSE
        self._refused.discard(node.name)
        what = "uncordoned" if patch["spec"]["unschedulable"] is None else "cordoned"
        log.info("node %s is %s for maintenance", node.name, what)
        return None


def _differs(marks: tuple[str, ...], mark: str, unschedulable: bool) -> bool:
    """Whether a node is to be marked (and cordoned), or its mark is to go (and it is to be uncordoned)."""
    if mark:
        return mark not in marks
    return bool(marks) and not unschedulable


def _patch(document: Any, uid: str, marks: tuple[str, ...]) -> dict[str, Any] | None:
    """What is to be written to the node as it is now; None for nothing, or where another has its name."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    mark = (metadata.get("annotations") or {}).get(CORDONED_BY) or ""
    unschedulable = spec.get("unschedulable") is True
    if metadata.get("uid") != uid or not _differs(marks, mark, unschedulable):
        return None
    # Somebody may cordon it at the same moment: of this version, or not at all.
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": metadata.get("resourceVersion"),
            "annotations": {CORDONED_BY: marks[0] if marks else None},
        },
        "spec": {"unschedulable": True if marks else None},
    }
