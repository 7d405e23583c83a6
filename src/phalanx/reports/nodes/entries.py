"""Fields of a node, or of a group of equal nodes, that commands show."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from phalanx.model.pools import POOL_LABEL

#: Pool labels: Volcano's first, then those of clouds and autoscalers.
POOL_LABELS = (
    POOL_LABEL,
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "oke.oraclecloud.com/pool.name",
    "node-pool",
    "nodepool",
)


class NodeState(enum.StrEnum):
    """State of a node in sinfo's terms. Pods of DaemonSets and static pods do not count."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "alloc"  # all its GPUs are allocated, or all CPUs of a node without GPUs
    DRAINING = "drain"  # cordoned, with pods
    DRAINED = "drained"
    DOWN = "down"


#: States in which a node accepts no new pods.
CLOSED = frozenset({NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN})


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPUs (millicores), memory (bytes) and GPUs (hundredths) of nodes."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)


class NodeReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason why a node accepts no or only some new pods.

    `reason` is NotReady, Cordoned, Maintenance, Taint, DeviceTaint, DeviceCordon, a pressure or RejectedPods.
    `since` is RFC 3339.
    """

    reason: str
    message: str = ""
    since: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Node in a list.

    `free` is never below 0, and 0 on a node that accepts no new pods; `pods` counts pods except those of DaemonSets
    and static pods.
    """

    name: str
    pool: str = ""
    state: NodeState
    free: Amounts
    offered: Amounts
    pods: int = 0
    reasons: tuple[NodeReason, ...] = ()
    labels: dict[str, str] = {}


class NodesAnswer(msgspec.Struct, kw_only=True):
    """Nodes with their free room, as the page's server answers. `named` is False for a user who cannot list nodes:
    the entries then have neither names nor labels nor reasons."""

    nodes: list[NodeEntry]
    named: bool


class NodePoolEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes of a pool in one state. `biggest` are the free resources of the node with the most free GPUs, then
    CPUs."""

    pool: str
    state: NodeState
    count: int
    free: Amounts
    biggest: Amounts
    nodes: tuple[str, ...]


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a node pool: allocated, idle, other (draining, drained or down) and all nodes, CPUs (millicores)
    and GPUs (hundredths)."""

    pool: str
    nodes: tuple[int, int, int, int]
    cpus: tuple[int, int, int, int]
    gpus: tuple[int, int, int, int]
    names: tuple[str, ...]


class ReasonGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes that are closed for a common reason; `since` is that of the first node."""

    reason: str
    message: str = ""
    since: str = ""
    state: str = ""
    nodes: tuple[str, ...]


def by_state(nodes: Iterable[NodeEntry]) -> list[NodePoolEntry]:
    """Group nodes by pool and state, in this order."""
    groups: dict[tuple[str, NodeState], list[NodeEntry]] = {}
    for node in nodes:
        groups.setdefault((node.pool, node.state), []).append(node)
    order = list(NodeState)
    return [
        NodePoolEntry(
            pool=pool,
            state=state,
            count=len(members),
            free=sum((node.free for node in members), Amounts()),
            biggest=max((node.free for node in members), key=lambda free: (free.gpu, free.cpu, free.memory)),
            nodes=tuple(node.name for node in members if node.name),
        )
        for (pool, state), members in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    ]


def by_pool(nodes: Iterable[NodeEntry]) -> list[PoolSummary]:
    nodes_by_pool: dict[str, list[NodeEntry]] = {}
    for node in nodes:
        nodes_by_pool.setdefault(node.pool, []).append(node)
    summaries = []
    for pool, members in sorted(nodes_by_pool.items()):
        open_nodes = [node for node in members if node.state not in CLOSED]
        idle = sum(node.state is NodeState.IDLE for node in open_nodes)
        counts = (len(open_nodes) - idle, idle, len(members) - len(open_nodes), len(members))
        amounts = []
        for resource in ("cpu", "gpu"):
            everything = sum(getattr(node.offered, resource) for node in members)
            usable = sum(getattr(node.offered, resource) for node in open_nodes)
            free = sum(getattr(node.free, resource) for node in open_nodes)
            amounts.append((usable - free, free, everything - usable, everything))
        names = tuple(node.name for node in members if node.name)
        summaries.append(PoolSummary(pool=pool, nodes=counts, cpus=amounts[0], gpus=amounts[1], names=names))
    return summaries


def by_reason(nodes: Iterable[NodeEntry]) -> list[ReasonGroup]:
    """Group nodes by the reason for which they are closed, the most nodes first."""
    causes: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for node in nodes:
        for reason in node.reasons:
            state = str(node.state) if node.state in CLOSED else ""
            causes.setdefault((reason.reason, reason.message, state), []).append((reason.since, node.name))
    groups = [
        ReasonGroup(
            reason=reason,
            message=message,
            state=state,
            since=min((since for since, _ in members if since), default=""),
            nodes=tuple(name for _, name in members),
        )
        for (reason, message, state), members in causes.items()
    ]
    return sorted(groups, key=lambda group: (-len(group.nodes), group.reason, group.message))
