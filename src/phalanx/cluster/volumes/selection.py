"""Reachability of the volumes to which a pod's claims are bound, by node labels, evaluated once per class."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.nodes.labels import Rows, term_matches
from phalanx.cluster.nodes.rows import NodeRows
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.pod import PodClass
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from phalanx.model.volumes import BoundVolume, UnusableVolume

OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
OTHER_ZONE = "node(s) had no available volume zone"

_BETA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_ZONE_LABELS = (*_BETA, *_BETA.values())


def is_refused(pod_class: PodClass) -> bool:
    """Return whether a PersistentVolumeClaim of the class makes all nodes infeasible."""
    return any(isinstance(need, UnusableVolume) for need in pod_class.volumes)


def reachable(pod_class: PodClass, nodes: NodeRows, rows: Rows) -> BoolArray:
    """Return bool[rows]: nodes that meet the node affinity of every bound volume (kube-scheduler 1.36,
    VolumeBinding)."""
    mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
    for need in pod_class.volumes:
        if isinstance(need, BoundVolume) and need.affinity is not None:
            mask &= _meets(need.affinity, nodes, rows)
    return mask


def in_zone(pod_class: PodClass, nodes: NodeRows, rows: Rows) -> BoolArray:
    """Return bool[rows]: nodes in the zones and regions of every bound volume (kube-scheduler 1.36, VolumeZone).

    A node without any zone or region qualifies. A volume's old label is compared with the node's old one or, if
    that is missing, with its new one.
    """
    mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
    zones = {zone for need in pod_class.volumes if isinstance(need, BoundVolume) for zone in need.zones}
    for key, values in sorted(zones):
        in_zones = nodes.labels.satisfies(Requirement(key, "In", values), rows)
        if key in _BETA:
            lacks = nodes.labels.satisfies(Requirement(key, "DoesNotExist"), rows)
            in_zones |= lacks & nodes.labels.satisfies(Requirement(_BETA[key], "In", values), rows)
        mask &= in_zones
    if zones:
        placed = np.zeros_like(mask)
        for key in _ZONE_LABELS:
            placed |= nodes.labels.satisfies(Requirement(key, "Exists"), rows)
        mask |= ~placed
    return mask


def _meets(terms: tuple[NodeSelectorTerm, ...], nodes: NodeRows, rows: Rows) -> BoolArray:
    any_term = np.zeros(nodes.alive[rows].shape, dtype=np.bool_)
    for term in terms:
        any_term |= term_matches(term, nodes.labels, nodes.name_column, rows)
    return any_term
