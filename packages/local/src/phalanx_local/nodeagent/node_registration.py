"""Registration, heartbeats, taints and removal of nodes, as kubelets do them.

One routine (`_reconcile`) brings a node to its wanted state. It runs once per node at a time, so that two writes of
the agent about one node never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from phalanx.kube.changes import Change, Delete, Malformed, Upsert
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import Backoff
from phalanx.model.text.decoding import decode_json, parse_whole
from phalanx_local.nodeagent import node_objects, resource_slices
from phalanx_local.nodeagent.addresses import NODE_NETWORK, AddressPool
from phalanx_local.nodeagent.core_v1 import V1Node, V1NodeStatus
from phalanx_local.nodeagent.kubelet_node import read_offer
from phalanx_local.nodeagent.node_file import NodeFileEntry
from phalanx_local.nodeagent.node_objects import HOST_ADDRESS, LEASE_NAMESPACE, LEASES, NODES, Machine
from phalanx_local.nodeagent.pod_workers import PodWorkers
from phalanx_local.nodeagent.resource_slices import DeviceOffer
from phalanx_local.nodeagent.work_queue import KeyedQueue

log = logging.getLogger(__name__)

#: Periods of the kubelet, in seconds.
LEASE_PERIOD = 10.0
STATUS_PERIOD = 300.0
# Interval of the heartbeat check. All heartbeats of one check are sent together, so that an idle agent rarely
# wakes.
_TICK = 0.25
# Heartbeats have their own concurrency limit, so that heartbeats and pod writes do not block each other.
_CONCURRENCY = 16
_DRAIN_POLL = 0.1


class Adoption(enum.Enum):
    """Policy that selects the nodes of other clients that the agent adopts (simulates)."""

    NONE = "none"
    MARKED = "marked"  # nodes with the label or annotation phalanx.dev/fake: "true"
    ALL = "all"


class _OwnNode:
    """State of one node that the agent manages, and of its pending writes."""

    __slots__ = (
        "address",
        "applied",
        "backoff",
        "cordoned",
        "gone",
        "lease_due",
        "leased",
        "node",
        "published",
        "retiring",
        "seen",
        "spec",
        "status_due",
    )

    def __init__(self, spec: NodeFileEntry | None) -> None:
        self.spec = spec  # entry of the node file; None for a node that another client created
        self.applied: NodeFileEntry | None = None  # entry that the API has
        self.address = ""  # address from the pool; "" until the node needs one
        self.node: V1Node | None = None  # last state that the API returned
        self.seen: V1NodeStatus | None = None  # status at the last time that the allocatable was correct
        self.published: tuple[DeviceOffer, ...] = ()
        self.leased = False
        self.lease_due = 0.0
        self.status_due = 0.0
        self.retiring = False
        self.cordoned = False  # the agent cordoned the node because it retires
        self.gone = False  # another client deleted the node: no new registration until its entry changes
        self.backoff = Backoff(base=0.5)


class NodeKeeper:
    """Keeper of the agent's nodes: it registers the nodes of the file, sends heartbeats for them and for adopted
    nodes, and passes their capacity to `pods`.

    `clock` returns Unix seconds. `recount(node)` is called when the pods of a node must be read again.
    """

    def __init__(
        self,
        client: KubeClient,
        pods: PodWorkers,
        machine: Machine,
        *,
        adoption: Adoption,
        clock: Callable[[], float],
        recount: Callable[[str], None],
    ) -> None:
        self._client = client
        self._pods = pods
        self._machine = machine
        self._adoption = adoption
        self._clock = clock
        self._recount = recount
        self._nodes: dict[str, _OwnNode] = {}
        self._addresses = AddressPool(NODE_NETWORK)
        self._missing: set[str] = set()
        self._progress = asyncio.Event()
        self._queue = KeyedQueue(self._reconcile, _CONCURRENCY)

    @property
    def ready(self) -> int:
        """Number of nodes that exist in the API and have a Lease of this agent."""
        return sum(1 for own in self._nodes.values() if own.node is not None and own.leased)

    async def standing(self) -> None:
        """Wait until every wanted node exists and has its first heartbeat."""
        while self._missing:
            self._progress.clear()
            await self._progress.wait()

    def want(self, specs: Mapping[str, NodeFileEntry], *, complete: bool = True) -> None:
        """Set the nodes of the nodes file. If the list is complete, the agent removes nodes that are missing from
        it."""
        for name, spec in specs.items():
            own = self._nodes.setdefault(name, _OwnNode(None))
            if own.spec == spec and not own.retiring:
                continue
            if own.retiring:
                own.applied = None  # the removal has begun and must be undone
                self._pods.undrain(name)
            own.spec = spec
            own.retiring = own.gone = False
            self._missing.add(name)
            self._queue.mark(name)
        for name, own in self._nodes.items():
            if complete and name not in specs and own.spec is not None and not own.retiring:
                own.retiring = True
                self._queue.mark(name)

    def sink(self, change: Change[V1Node]) -> None:
        """Apply an addition, change or deletion of a node in the API."""
        if isinstance(change, Upsert):
            self._observed(change.object)
        elif isinstance(change, Delete):
            self._vanished(change.key[1])
        elif isinstance(change, Malformed):
            log.warning("node %s cannot be read: %s", change.key[1], change.error)

    async def run(self) -> None:
        """Send node heartbeats until cancelled."""
        try:
            while True:
                now = self._clock()
                for name, own in self._nodes.items():
                    if own.node is not None and min(own.lease_due, own.status_due) <= now:
                        self._queue.mark(name)
                await asyncio.sleep(_TICK)
        finally:
            await self._queue.close()

    # Changes from the API

    def _observed(self, node: V1Node) -> None:
        name = node.metadata.name
        own = self._nodes.get(name)
        if own is None:
            if not self._adopts(node):
                return
            own = self._nodes[name] = _OwnNode(None)
            self._missing.add(name)
        elif own.spec is None and not self._adopts(node):
            self._abandon(name)
            return
        elif own.node is not None and _version(node) < _version(own.node):
            return
        own.gone = False
        own.node = node
        self._update_pods(node)
        if not self._in_order(own, node):
            self._queue.mark(name)

    def _adopts(self, node: V1Node) -> bool:
        if self._adoption is Adoption.ALL:
            return True
        return self._adoption is Adoption.MARKED and node_objects.is_marked(node)

    def _update_pods(self, node: V1Node) -> None:
        offer, problems = read_offer(node)
        for problem in problems:
            log.warning("%s", problem)
        if self._pods.add_node(node.metadata.name, offer, self._clock()):
            self._recount(node.metadata.name)

    def _in_order(self, own: _OwnNode, node: V1Node) -> bool:
        healthy = node_objects.is_healthy(node) and node_objects.untainted_patch(node) is None
        healthy = healthy and node_objects.following_patch(node, own.seen) is None
        return healthy and own.leased and own.applied is own.spec

    def _vanished(self, name: str) -> None:
        own = self._nodes.get(name)
        if own is None:
            return
        self._pods.remove_node(name)
        own.node, own.leased, own.applied, own.published, own.seen = None, False, None, (), None
        if own.spec is None or own.retiring:
            del self._nodes[name]
        else:
            log.warning("node %s was deleted by another client; no new registration until its entry changes", name)
            own.gone = True

    def _abandon(self, name: str) -> None:
        self._pods.remove_node(name)
        del self._nodes[name]

    # Writes to the API

    async def _reconcile(self, name: str) -> float | None:
        own = self._nodes.get(name)
        if own is None or own.gone:
            self._finish_node(name)
            return None
        try:
            delay = await (self._retire(name, own) if own.retiring else self._uphold(name, own))
        except (ApiError, ConnectionLost) as error:
            if isinstance(error, ApiError) and error.reason == "Conflict":
                # Another client wrote first: read its version before the next try.
                error = await self._refresh(name, own) or error
            pause = own.backoff.next(error.retry_after if isinstance(error, ApiError) else None)
            log.warning("node %s: %s; next try in %.1f s", name, error, pause)
            return pause
        own.backoff.reset()
        self._finish_node(name)
        return delay

    def _finish_node(self, name: str) -> None:
        self._missing.discard(name)
        if not self._missing:
            self._progress.set()

    async def _uphold(self, name: str, own: _OwnNode) -> float | None:
        spec, now = own.spec, self._clock()
        if own.node is None:
            if spec is None:
                return None
            await self._register(own, spec, now)
        if spec is not None and own.applied is not spec:
            await self._apply(own, spec)
        if spec is not None and own.published != spec.devices:
            uid = _known(own).metadata.uid
            await resource_slices.publish(self._call, name, uid, own.published, spec.devices)
            own.published = spec.devices
        await self._heartbeat(name, own, now)
        await self._follow(name, own)
        await self._untaint(own)
        return None

    async def _register(self, own: _OwnNode, spec: NodeFileEntry, now: float) -> None:
        body = node_objects.node_object(spec, self._machine, self._address(spec.name, own), now)
        try:
            answer = await self._call("POST", NODES.path(), body)
            self._note(own, answer)
            # A server can drop the status of a created node; then `_apply` writes it.
            if _known(own).status.allocatable:
                own.applied = spec
                own.status_due = now + _spread(spec.name, STATUS_PERIOD)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._note(own, await self._client.request("GET", NODES.path(None, spec.name)))

    async def _apply(self, own: _OwnNode, spec: NodeFileEntry) -> None:
        """Update an existing node in the API to its entry in the nodes file."""
        node, old = _known(own), own.applied
        path = NODES.path(None, spec.name)
        patch: dict[str, Any] = {"metadata": node_objects.metadata_patch(old, spec, self._machine)}
        # A cordon of another client is not undone.
        if spec.unschedulable or own.cordoned or (old is not None and old.unschedulable):
            patch["spec"] = {"unschedulable": spec.unschedulable}
        answer = await self._call("PATCH", path, patch, PatchType.MERGE)
        self._note(own, answer)
        taints = node_objects.taints_patch(_known(own), old, spec)
        if taints is not None:
            self._note(own, await self._call("PATCH", path, taints, PatchType.MERGE))
        status = {"status": node_objects.resources_patch(spec, node)}
        self._note(
            own, await self._call("PATCH", NODES.path(None, spec.name, "status"), status, PatchType.STRATEGIC)
        )
        own.applied = spec
        own.cordoned = False

    async def _heartbeat(self, name: str, own: _OwnNode, now: float) -> None:
        node = _known(own)
        if own.status_due <= now or not node_objects.is_healthy(node):
            status = {"status": node_objects.node_status(node, self._machine, self._address(name, own), now)}
            path = NODES.path(None, name, "status")
            self._note(own, await self._call("PATCH", path, status, PatchType.STRATEGIC))
            # The first pause after a heartbeat differs from node to node.
            own.status_due = now + (STATUS_PERIOD if own.status_due else _spread(name, STATUS_PERIOD))
        if own.lease_due <= now:
            await self._renew(name, node, leased=own.leased, now=now)
            pause = LEASE_PERIOD if own.leased else _spread(name, LEASE_PERIOD)
            own.leased = True
            own.lease_due = now + pause

    def _address(self, name: str, own: _OwnNode) -> str:
        """Return the address in the node's status, unless it is the former address of all nodes; else an address of
        the pool."""
        shown = own.node.address if own.node is not None else ""
        if shown not in ("", HOST_ADDRESS):
            return shown
        own.address = own.address or self._addresses.allocate(name)
        return own.address

    async def _follow(self, name: str, own: _OwnNode) -> None:
        patch = node_objects.following_patch(_known(own), own.seen)
        if patch is not None:
            path = NODES.path(None, name, "status")
            self._note(own, await self._call("PATCH", path, {"status": patch}, PatchType.STRATEGIC))
        own.seen = _known(own).status

    async def _renew(self, name: str, node: V1Node, *, leased: bool, now: float) -> None:
        if leased:
            try:
                await self._call(
                    "PATCH", LEASES.path(LEASE_NAMESPACE, name), node_objects.renewal(now), PatchType.MERGE
                )
                return
            except ApiError as error:
                if error.status != 404:
                    raise
        lease = node_objects.lease_object(name, node.metadata.uid, now)
        try:
            await self._call("POST", LEASES.path(LEASE_NAMESPACE), lease)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                del lease["metadata"]["namespace"]
                await self._call("PATCH", LEASES.path(LEASE_NAMESPACE, name), lease, PatchType.MERGE)
            elif error.status == 404:  # the namespace is missing on a server without controllers
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
                with contextlib.suppress(ApiError):
                    await self._call("POST", "/api/v1/namespaces", body)
                await self._call("POST", LEASES.path(LEASE_NAMESPACE), lease)
            else:
                raise

    async def _untaint(self, own: _OwnNode) -> None:
        node = _known(own)
        patch = node_objects.untainted_patch(node)
        if patch is not None:
            path = NODES.path(None, node.metadata.name)
            self._note(own, await self._call("PATCH", path, patch, PatchType.MERGE))

    async def _retire(self, name: str, own: _OwnNode) -> float | None:
        """Cordon a node that was removed from the file and end its pods; after the last pod has ended, delete the
        node and its Lease."""
        if own.node is None:
            self._nodes.pop(name, None)
            return None
        if not own.cordoned:
            patch = {"spec": {"unschedulable": True}}
            self._note(own, await self._call("PATCH", NODES.path(None, name), patch, PatchType.MERGE))
            own.cordoned = True
            self._pods.drain(name, self._clock())
        if not self._pods.drained(name):
            await self._heartbeat(name, own, self._clock())
            return _DRAIN_POLL
        for path in (NODES.path(None, name), LEASES.path(LEASE_NAMESPACE, name)):
            try:
                await self._client.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise
        if own.retiring and self._nodes.get(name) is own:
            self._pods.remove_node(name)
            del self._nodes[name]
        return None

    async def _refresh(self, name: str, own: _OwnNode) -> ApiError | ConnectionLost | None:
        try:
            self._note(own, await self._client.request("GET", NODES.path(None, name)))
        except (ApiError, ConnectionLost) as error:
            return error
        return None

    def _note(self, own: _OwnNode, answer: bytes) -> None:
        """Store the node that the API returned, unless the watch has delivered a newer version."""
        node = decode_json(answer, V1Node)
        if own.node is None or _version(node) >= _version(own.node):
            own.node = node
            self._update_pods(node)

    async def _call(self, method: str, path: str, body: Any, patch: PatchType | None = None) -> bytes:
        content_type = patch.value if patch else "application/json"
        content = None if body is None else msgspec.json.encode(body)
        return await self._client.request(method, path, body=content, content_type=content_type)


def _known(own: _OwnNode) -> V1Node:
    if own.node is None:  # deleted while the agent waited for an answer: start again
        raise ConnectionLost("the node was deleted during the request")
    return own.node


def _version(node: V1Node) -> int:
    version = node.metadata.resource_version
    return parse_whole(version, 0) or 0


def _spread(name: str, period: float) -> float:
    """Return a part of the heartbeat period that differs between nodes, so that heartbeats are not sent in
    bursts."""
    return period * (zlib.crc32(name.encode()) % 1000) / 1000
