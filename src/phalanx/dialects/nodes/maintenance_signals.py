"""Announcements of maintenance by nodes and their provisioners; read only.

- GKE labels a node with the maintenance time of its machine, in seconds since the epoch.
- Karpenter's NodeClaim has a time by which its node is terminated at the latest, or an expiry.
- Conditions of a node (Kubernetes 1.37, KEP on the node life cycle) report maintenance or a drain in progress.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.core import NodeObject
from phalanx.dialects.enricher import Changes, PodEnricher
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.times import parse_duration, parse_time
from phalanx.model.events import NodeSignalled
from phalanx.model.maintenance import MaintenanceSignal
from phalanx.model.text.decoding import parse_whole

SCHEDULED_MAINTENANCE = "cloud.google.com/scheduled-maintenance-time"
TERMINATION = "karpenter.sh/nodeclaim-termination-timestamp"
NODE_CLAIMS = WantedKind("karpenter.sh", "nodeclaims", "NodeClaim", ("v1", "v1beta1"))
UNDER_WAY = frozenset(("MaintenanceInProgress", "DrainInProgress"))
_LATEST = 2**40


class MaintenanceSignals(PodEnricher):
    """Processes maintenance announcements of nodes and of NodeClaims, which are independent sources."""

    kinds = (NODE_CLAIMS,)

    def __init__(self) -> None:
        self._signals: dict[str, tuple[MaintenanceSignal, ...]] = {}
        # Nodes by the name of their NodeClaim.
        self._nodes: dict[str, str] = {}

    def node(self, node: NodeObject) -> Changes:
        name, signals = node.metadata.name, signals_of(node)
        if self._signals.get(name, ()) == signals:
            return [], set()
        self._signals[name] = signals
        return [NodeSignalled(name, "Node", signals)], set()

    def node_gone(self, name: str) -> Changes:
        return ([NodeSignalled(name, "Node")], set()) if self._signals.pop(name, None) else ([], set())

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        name, node, signals = read_claim(document)
        events, touched = self.removed(kind, "", name) if self._nodes.get(name, node) != node else ([], set())
        if node:
            self._nodes[name] = node
            events = [*events, NodeSignalled(node, kind.kind, signals)]
        return events, touched

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        node = self._nodes.pop(name, "")
        return ([NodeSignalled(node, kind.kind)], set()) if node else ([], set())

    def unserved(self, kind: ServedKind) -> Changes:
        nodes, self._nodes = sorted(self._nodes.values()), {}
        return [NodeSignalled(node, kind.kind) for node in nodes], set()


def signals_of(node: NodeObject) -> tuple[MaintenanceSignal, ...]:
    """Return the maintenance that a node announces. Unreadable announcements are ignored without a warning, since
    no user of ours wrote them."""
    name, signals = node.metadata.name, []
    stated = node.metadata.labels.get(SCHEDULED_MAINTENANCE, "")
    seconds = parse_whole(stated, 1, _LATEST) if stated.isascii() and stated.isdecimal() else None
    if seconds is not None:
        signals.append(MaintenanceSignal(f"label {SCHEDULED_MAINTENANCE} of node {name}", seconds))
    signals += [
        MaintenanceSignal(f"condition {condition.type} of node {name}", 0)
        for condition in node.status.conditions
        if condition.type in UNDER_WAY and condition.status == "True"
    ]
    return tuple(signals)


def read_claim(document: Document) -> tuple[str, str, tuple[MaintenanceSignal, ...]]:
    """Decode a NodeClaim: its name, its node or "", and the maintenance that it announces."""
    metadata, spec, status = (_mapping(document.get(part)) for part in ("metadata", "spec", "status"))
    name, node = str(metadata.get("name") or ""), str(status.get("nodeName") or "")
    terminated = parse_time(str(_mapping(metadata.get("annotations")).get(TERMINATION) or ""))
    if terminated:
        return name, node, (MaintenanceSignal(f"annotation {TERMINATION} of NodeClaim {name}", terminated),)
    created = parse_time(str(metadata.get("creationTimestamp") or ""))
    try:
        lifetime = parse_duration(str(spec.get("expireAfter") or ""))
    except ValueError:
        lifetime = 0  # "Never", or an unknown format
    if not (created and lifetime > 0):
        return name, node, ()
    return name, node, (MaintenanceSignal(f"spec.expireAfter of NodeClaim {name}", created + lifetime),)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
