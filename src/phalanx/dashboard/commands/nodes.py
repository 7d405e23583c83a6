"""Free room of the nodes for viewers: by name with the right to list nodes, else by pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NODES
from phalanx.model.label_selectors import parse_label_selector
from phalanx.model.matching import all_hold
from phalanx.reports.nodes.entries import POOL_LABELS, NodeEntry, NodeReason, NodesAnswer
from phalanx.reports.nodes.node_list import backoff_reason, node_entries
from phalanx.reports.nodes.tainted_devices import read_tainted_devices
from phalanx.reports.stored_history import read_backoffs

_FRESH_SECONDS = 5.0
_LONGEST = 1000


class NodeRoomReader:
    """Nodes of the cluster, read at most every few seconds, with the usage that the page's watch knows."""

    def __init__(self, client: KubeClient, watch: ClusterWatch) -> None:
        self._client, self._watch = client, watch
        self._read_at = float("-inf")
        self._documents: Sequence[Mapping[str, Any]] = ()
        self._reasons: dict[str, list[NodeReason]] = {}
        self._turn = asyncio.Lock()

    async def answer(self, scope: Scope, pool_label: str, selector: str) -> NodesAnswer:
        """Return the nodes. Raises ViewerAccessError, ApiError, ConnectionLost.

        A selector or a label of the viewer's choice would reveal names and labels of nodes, so both need the right
        to list nodes.
        """
        if not scope.nodes and (selector or (pool_label and pool_label not in POOL_LABELS)):
            raise ViewerAccessError(403, "--selector and --pool-label need the right to list nodes")
        try:
            requirements = parse_label_selector(selector[:_LONGEST])
        except ValueError as error:
            raise ViewerAccessError(400, f"invalid selector: {error}") from error
        await self._refresh()
        entries = node_entries(self._documents, self._watch.state, pool_label, self._reasons)
        if scope.nodes:
            return NodesAnswer(
                nodes=[entry for entry in entries if all_hold(requirements, entry.labels)], named=True
            )
        return NodesAnswer(nodes=sorted(map(_unnamed, entries), key=_order), named=False)

    async def _refresh(self) -> None:
        async with self._turn:
            if time.monotonic() - self._read_at < _FRESH_SECONDS:
                return
            options = self._watch.options
            documents = (await self._client.list_all(NODES.path()))["items"]
            reasons = {name: list(found) for name, found in (await read_tainted_devices(self._client)).items()}
            backoffs = await read_backoffs(self._client, options.lease_namespace, options.schedulers)
            for entry in sorted(backoffs.entries):
                reasons.setdefault(entry.scope.node, []).append(backoff_reason(entry))
            self._documents, self._reasons, self._read_at = documents, reasons, time.monotonic()


def _unnamed(entry: NodeEntry) -> NodeEntry:
    return msgspec.structs.replace(entry, name="", labels={}, reasons=())


def _order(entry: NodeEntry) -> tuple[Any, ...]:
    """Return a sort key without the name: the order of the entries must not reveal that of the names."""
    free, offered = entry.free, entry.offered
    return (entry.pool, entry.state, free.gpu, free.cpu, free.memory, offered.gpu, offered.cpu, offered.memory)
