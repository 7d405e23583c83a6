"""`predicates`: the rules by which kube-scheduler keeps a pod from a node (research/kubernetes_native.md, B8)."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from phalanx.cluster.attachments import ATTACHMENTS
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.device_claims import CLAIMS
from phalanx.cluster.disks import DISKS
from phalanx.cluster.labels import Rows, term_matches
from phalanx.cluster.nodes import NodeTable
from phalanx.cluster.ports import PORTS
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.volume_selection import OTHER_ZONE, OUT_OF_REACH, in_zone, reachable
from phalanx.cluster.volume_supply import VOLUMES
from phalanx.model.node import Node
from phalanx.model.selectors import Requirement, Taint, tolerates
from phalanx.scheduling.arguments import Arguments
from phalanx.scheduling.plugin import Plugin

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_CLAIMS_ENABLED = "predicate.DynamicResourceAllocationEnable"
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


class Predicates(Plugin):
    """NodeUnschedulable, TaintToleration, NodeAffinity (with nodeSelector), NodePorts, and of InterPodAffinity what
    the pods that are there already demand.

    What a pod asks of volumes, topology spread, other pods or devices has no filter yet: `refuse` names the
    field, and the pod goes nowhere. NodeResourcesFit is not a filter here: amounts change with every placement,
    so the placement itself compares them.
    """

    name = "predicates"
    without_effect = (
        "predicate.CacheEnable",
        "predicate.GPUNumberEnable",
        "predicate.GPUSharingEnable",
        "predicate.PodAffinityEnable",
        "predicate.PodTopologySpreadEnable",
        "predicate.ProportionalEnable",
        "predicate.resources",
        "predicate.resources.*",
    )
    arguments = (
        _CLAIMS_ENABLED,
        "predicate.NodeAffinityEnable",
        "predicate.NodePortsEnable",
        "predicate.NodeVolumeLimitsEnable",
        "predicate.TaintTolerationEnable",
        "predicate.VolumeBindingEnable",
        "predicate.VolumeZoneEnable",
        *without_effect,
    )

    def __init__(self, arguments: Arguments) -> None:
        self._affinity = arguments.boolean("predicate.NodeAffinityEnable", True)
        chosen = {
            PORTS: arguments.boolean("predicate.NodePortsEnable", True),
            ATTACHMENTS: arguments.boolean("predicate.NodeVolumeLimitsEnable", True),
            VOLUMES: arguments.boolean("predicate.VolumeBindingEnable", True),
            DISKS: True,
            CLAIMS: True,
        }
        self.stocks = frozenset(name for name, enabled in chosen.items() if enabled)
        self._volumes = chosen[VOLUMES]
        self._claims = arguments.boolean(_CLAIMS_ENABLED, True)
        self._zones = arguments.boolean("predicate.VolumeZoneEnable", True)
        self._taints = arguments.boolean("predicate.TaintTolerationEnable", True)
        for key in self.without_effect:
            if key.endswith("Enable"):
                arguments.boolean(key, True)

    def refuse(self, cls: ClassRecord) -> str | None:
        if cls.pod_class.claims and not self._claims:
            return f"spec.resourceClaims: the policy sets {_CLAIMS_ENABLED} to false"
        fields = cls.pod_class.unsupported
        if not fields:
            return None
        return f"{', '.join(fields)}: not supported by this version of Phalanx"

    def filter(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if cls.pod_class.unsupported or (cls.pod_class.claims and not self._claims):
            return np.zeros(nodes.alive[rows].shape, dtype=np.bool_)
        mask: BoolArray = self._schedulable(cls, nodes, rows)
        if cls.pod_class.features:
            mask &= self._declared(cls, nodes, rows)
        if self._taints:
            mask &= self._tolerated(cls, nodes, rows)
        if self._affinity:
            mask &= self._selected(cls, nodes, rows)
        if self._volumes and cls.pod_class.volumes:
            mask &= reachable(cls.pod_class, nodes, rows)
        if self._zones and cls.pod_class.volumes:
            mask &= in_zone(cls.pod_class, nodes, rows)
        if cls.pod_class.repelled:
            mask &= self._tolerated_by_others(cls, nodes, rows)
        return mask

    def explain(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        reasons: list[tuple[str, BoolArray]] = [
            ("node(s) were unschedulable", ~self._schedulable(cls, nodes, rows))
        ]
        if self._taints:
            reasons.extend(self._by_taint(cls, nodes, rows))
        if self._affinity:
            reasons.append(("node(s) didn't match Pod's node affinity/selector", ~self._selected(cls, nodes, rows)))
        if cls.pod_class.features:
            reasons.append(("node(s) didn't match Pod's required features", ~self._declared(cls, nodes, rows)))
        if self._volumes and cls.pod_class.volumes:
            reasons.append((OUT_OF_REACH, ~reachable(cls.pod_class, nodes, rows)))
        if self._zones and cls.pod_class.volumes:
            reasons.append((OTHER_ZONE, ~in_zone(cls.pod_class, nodes, rows)))
        if cls.pod_class.repelled:
            closed = ~self._tolerated_by_others(cls, nodes, rows)
            reasons.append(("node(s) didn't satisfy existing pods anti-affinity rules", closed))
        return reasons

    def _declared(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Nodes that declare every feature that the pod needs."""
        needed, places = frozenset(cls.pod_class.features), np.arange(nodes.capacity)[rows]
        found = (_declares(nodes.nodes[row], needed) for row in places.tolist())
        return np.fromiter(found, dtype=np.bool_, count=len(places))

    def _by_taint(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """A reason per taint: for the nodes on which it is the first one, which is the one that is named; then
        for those on which it would still stand if the first were gone.
        """
        ids = nodes.taints.ids[rows]
        first: dict[str, BoolArray] = {}
        further: dict[str, BoolArray] = {}
        for number in np.unique(ids).tolist():
            taints = nodes.taints.sets[number]
            objections = [t for t in taints if t.effect in _HARD_EFFECTS and not _tolerated(cls, t)]
            for place, taint in enumerate(objections):
                reason = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
                parts = further if place else first
                parts[reason] = parts.get(reason, np.zeros(ids.shape, dtype=np.bool_)) | (ids == number)
        return [*first.items(), *further.items()]

    def _schedulable(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if _tolerated(cls, _UNSCHEDULABLE):
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        return ~nodes.unschedulable[rows]

    def _tolerated(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        by_set = np.array(
            [
                all(_tolerated(cls, taint) for taint in taints if taint.effect in _HARD_EFFECTS)
                for taints in nodes.taints.sets
            ],
            dtype=np.bool_,
        )
        result: BoolArray = by_set[nodes.taints.ids[rows]]
        return result

    def _selected(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        pod_class = cls.pod_class
        mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        for key, value in pod_class.node_selector:
            mask &= nodes.labels.satisfies(Requirement(key, "In", (value,)), rows)
        if pod_class.affinity is not None:
            some = np.zeros_like(mask)
            for term in pod_class.affinity:
                some |= term_matches(term, nodes.labels, nodes.name_column, rows)
            mask &= some
        return mask

    def _tolerated_by_others(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        for key, domains in groupby(cls.pod_class.repelled, key=lambda domain: domain[0]):
            mask &= nodes.labels.satisfies(Requirement(key, "NotIn", tuple(value for _, value in domains)), rows)
        return mask


def _tolerated(cls: ClassRecord, taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in cls.pod_class.tolerations)


def _declares(node: Node | None, features: frozenset[str]) -> bool:
    return node is not None and features.issubset(node.features)
