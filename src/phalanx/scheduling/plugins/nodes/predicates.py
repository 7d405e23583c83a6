"""Plugin `predicates`: kube-scheduler's filters (docs/rules/kubernetes_native.md, B8)."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.allocators.ports import PORTS
from phalanx.cluster.devices.claims import CLAIMS
from phalanx.cluster.nodes.eligibility import objections, selected, tolerated
from phalanx.cluster.nodes.labels import row_numbers
from phalanx.cluster.volumes.attachments import ATTACHMENTS
from phalanx.cluster.volumes.disks import DISKS
from phalanx.cluster.volumes.selection import OTHER_ZONE, OUT_OF_REACH, in_zone, is_refused, reachable
from phalanx.cluster.volumes.supply import VOLUMES
from phalanx.model.node import CORDONED, Node
from phalanx.model.selectors import Taint, tolerates
from phalanx.plugin import Arguments, BoolArray, ClassRecord, InterPodRules, NodeTable, Plugin, Rows

_CLAIMS_ENABLED = "predicate.DynamicResourceAllocationEnable"


class Predicates(Plugin):
    """Filters NodeUnschedulable, TaintToleration, NodeAffinity (with nodeSelector), and rules that placement itself
    checks.

    The latter change with every placement: NodePorts, volumes and claims are node allocators; PodTopologySpread and
    InterPodAffinity are rules about other pods. NodeResourcesFit is always active.
    """

    name = "predicates"
    without_effect = (
        "predicate.CacheEnable",
        "predicate.GPUNumberEnable",
        "predicate.GPUSharingEnable",
        "predicate.ProportionalEnable",
        "predicate.resources",
        "predicate.resources.*",
    )
    arguments = (
        _CLAIMS_ENABLED,
        "predicate.NodeAffinityEnable",
        "predicate.NodePortsEnable",
        "predicate.NodeVolumeLimitsEnable",
        "predicate.PodAffinityEnable",
        "predicate.PodTopologySpreadEnable",
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
        self.node_allocators = frozenset(name for name, enabled in chosen.items() if enabled)
        self._volumes = chosen[VOLUMES]
        self._claims = arguments.boolean(_CLAIMS_ENABLED, True)
        self._zones = arguments.boolean("predicate.VolumeZoneEnable", True)
        self._taints = arguments.boolean("predicate.TaintTolerationEnable", True)
        self.inter_pod_rules = InterPodRules(
            spread=arguments.boolean("predicate.PodTopologySpreadEnable", True),
            affinity=arguments.boolean("predicate.PodAffinityEnable", True),
        )
        for key in self.without_effect:
            if key.endswith("Enable"):
                arguments.boolean(key, True)

    def pre_filter(self, pod_class: ClassRecord) -> str | None:
        if pod_class.spec.claims and not self._claims:
            return f"spec.resourceClaims: the policy sets {_CLAIMS_ENABLED} to false"
        fields = pod_class.spec.unsupported
        if not fields:
            return None
        return f"{', '.join(fields)}: not supported by this version of Phalanx"

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if pod_class.spec.unsupported or (pod_class.spec.claims and not self._claims):
            return np.zeros(nodes.alive[rows].shape, dtype=np.bool_)
        if self._volumes and is_refused(pod_class.spec):
            return np.zeros(nodes.alive[rows].shape, dtype=np.bool_)
        mask: BoolArray = self._schedulable(pod_class, nodes, rows)
        if pod_class.spec.features:
            mask &= self._declared(pod_class, nodes, rows)
        if self._taints:
            mask &= self._tolerated(pod_class, nodes, rows)
        if self._affinity:
            mask &= self._selected(pod_class, nodes, rows)
        if self._volumes and pod_class.spec.volumes:
            mask &= reachable(pod_class.spec, nodes, rows)
        if self._zones and pod_class.spec.volumes:
            mask &= in_zone(pod_class.spec, nodes, rows)
        return mask

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        reasons: list[tuple[str, BoolArray]] = [
            ("node(s) were unschedulable", ~self._schedulable(pod_class, nodes, rows))
        ]
        if self._taints:
            reasons.extend(self._by_taint(pod_class, nodes, rows))
        if self._affinity and (pod_class.spec.node_selector or pod_class.spec.affinity is not None):
            reasons.append((_mismatch(pod_class), ~self._selected(pod_class, nodes, rows)))
        if pod_class.spec.features:
            reasons.append(
                ("node(s) didn't match Pod's required features", ~self._declared(pod_class, nodes, rows))
            )
        if self._volumes and pod_class.spec.volumes:
            reasons.append((OUT_OF_REACH, ~reachable(pod_class.spec, nodes, rows)))
        if self._zones and pod_class.spec.volumes:
            reasons.append((OTHER_ZONE, ~in_zone(pod_class.spec, nodes, rows)))
        return reasons

    def _declared(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Return the nodes that declare every feature that the pod needs."""
        needed, places = frozenset(pod_class.spec.features), row_numbers(rows, nodes.capacity)
        declaring = (_declares(nodes.nodes[row], needed) for row in places.tolist())
        return np.fromiter(declaring, dtype=np.bool_, count=len(places))

    def _by_taint(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """Return the nodes that an untolerated taint excludes, by taint: first the first untolerated taint of each
        node, which is the reported one.

        Then the further taints, which would still exclude the nodes without the first.
        """
        if not any(nodes.taints.sets):
            return []
        ids = nodes.taints.ids[rows]
        first: dict[str, BoolArray] = {}
        further: dict[str, BoolArray] = {}
        for number in np.unique(ids).tolist():
            taints = nodes.taints.sets[number]
            for place, taint in enumerate(objections(pod_class.spec.tolerations, taints)):
                reason = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
                parts = further if place else first
                parts[reason] = parts.get(reason, np.zeros(ids.shape, dtype=np.bool_)) | (ids == number)
        return [*first.items(), *further.items()]

    def _schedulable(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        if _tolerated(pod_class, CORDONED):
            return np.ones(nodes.alive[rows].shape, dtype=np.bool_)
        return ~nodes.unschedulable[rows]

    def _tolerated(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        return tolerated(pod_class.spec.tolerations, nodes, rows)

    def _selected(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        return selected(pod_class.spec.node_selector, pod_class.spec.affinity, nodes, rows)


def _tolerated(pod_class: ClassRecord, taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod_class.spec.tolerations)


def _declares(node: Node | None, features: frozenset[str]) -> bool:
    return node is not None and features.issubset(node.features)


def _mismatch(pod_class: ClassRecord) -> str:
    """Return the reason of NodeAffinity with the faults of invalid terms.

    An invalid term matches no node; the other terms still count.
    """
    reason = "node(s) didn't match Pod's node affinity/selector"
    faults = [term.invalid for term in pod_class.spec.affinity or () if term.invalid]
    return f"{reason} ({'; '.join(faults)})" if faults else reason
