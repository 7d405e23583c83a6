"""Plugin `nodeorder`: kube-scheduler's scores with Volcano's weights (docs/rules/kubernetes_native.md, B8).

GPUs are scarce: pods that request GPUs are packed, and all other pods avoid nodes with GPUs (decision 044).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx.cluster.devices.claims import CLAIMS, DeviceClaims
from phalanx.cluster.nodes.labels import term_matches
from phalanx.model.selectors import tolerates
from phalanx.plugin import (
    CPU_COLUMN,
    Arguments,
    BoolArray,
    ClassRecord,
    FloatArray,
    InterPodRules,
    Load,
    NodeTable,
    Plugin,
)

# Scores are updated for changed nodes only, so they depend on no other node: this is the usual number of cards of a
# node, not the largest one of the cluster. A pod gets half of the points where so many cards are left idle.
_USUAL_CARDS = 8.0
_POINTS = 100.0
# Cards that count as idle in addition where all GPUs are idle and no CPU is. At 100 % load of the openb trace,
# 94.3 % of the GPUs are allocated with 0, 94.8 % with 1.6, and 94.7 % with 3.
_STRANDED = 1.6
# Points that a node with GPUs loses for pods without, and further ones up to the usual number of cards. The first
# are about as much as an idle node gains over a full one by LeastAllocated; the sum is less than a preferred node
# affinity gives.
_AVOIDED, _BY_CARDS = 90.0, 100.0


class NodeOrder(Plugin):
    """Weighted sum of scores from 0 to 100.

    Pods that request GPUs get points for packing instead of LeastAllocated and BalancedAllocation, and all other
    pods avoid nodes with GPUs. With `gpupacking.weight: 0` all scores are those of kube-scheduler.
    """

    name = "nodeorder"
    without_effect = ("selectorspread.weight",)
    arguments = (
        "balancedresource.weight",
        "dynamicresources.weight",
        "gpupacking.weight",
        "imagelocality.weight",
        "leastrequested.weight",
        "mostrequested.weight",
        "nodeaffinity.weight",
        "podaffinity.weight",
        "podtopologyspread.weight",
        "tainttoleration.weight",
        *without_effect,
    )

    def __init__(self, arguments: Arguments) -> None:
        self._least_weight = arguments.integer("leastrequested.weight", 1)
        self._most_weight = arguments.integer("mostrequested.weight", 0)
        self._affinity = arguments.integer("nodeaffinity.weight", 2)
        self._balanced = arguments.integer("balancedresource.weight", 1)
        self._taint = arguments.integer("tainttoleration.weight", 3)
        self._images = arguments.integer("imagelocality.weight", 1)
        self._claims = arguments.integer("dynamicresources.weight", 2)
        self._packing = arguments.integer("gpupacking.weight", 1, least=0)
        self.inter_pod_rules = InterPodRules(
            affinity_weight=arguments.integer("podaffinity.weight", 2),
            spread_weight=arguments.integer("podtopologyspread.weight", 2),
        )
        for key in self.without_effect:
            arguments.integer(key, 0)
        self.remarks = tuple(
            f"argument {key} is {weight}: nodes with a high score are ranked last, as in Volcano"
            for key in self.arguments
            if (weight := arguments.integer(key, 0)) < 0
        )

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        total: FloatArray | float = 0.0
        if self._packing and pod_class.gpu_columns:
            total = self._packing_points(pod_class.gpu_columns, load)
        else:
            if self._least_weight or self._most_weight:
                used = load.scored()
                # LeastAllocated is 100 minus the mean of the used parts, MostAllocated is the mean.
                total = (used[0] + used[1]) * (
                    50.0 * (self._most_weight - self._least_weight)
                ) + 100.0 * self._least_weight
            if self._balanced and not pod_class.spec.best_effort:
                # BalancedAllocation 1.36: 75 without change, more if the pod balances CPU and memory. The standard
                # deviation of two fractions is half their difference.
                before, after = load.imbalances()
                total = total + ((before - after) * 25.0 + 75.0) * self._balanced
        if self._claims and pod_class.spec.claims:
            total = total + self._claim_points(pod_class, load)
        return total

    def _packing_points(self, columns: tuple[int, ...], load: Load) -> FloatArray:
        """Return points that fall with the number of cards that the pod leaves idle, and with idle GPUs beside busy
        CPUs.
        """
        busy, parts = load.fraction(CPU_COLUMN), list[FloatArray]()
        for column in columns:
            used = load.fraction(column)
            idle = (1.0 - used) * (load.offered(column) / load.nodes.space.cards[column])
            idle += np.maximum(busy - used, 0.0) * _STRANDED
            parts.append(_POINTS * self._packing / (1.0 + np.maximum(idle, 0.0) / _USUAL_CARDS))
        lowest: FloatArray = np.minimum.reduce(parts)
        return lowest

    def _claim_points(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        """Return DynamicResources: nodes that serve earlier alternatives of the pod's claims are better."""
        claims = load.nodes.allocators[CLAIMS]
        assert isinstance(claims, DeviceClaims)
        merits = claims.merits(pod_class.spec, load.rows, load.depth)
        if merits is None:
            return 0.0
        return (merits[:, 0] if load.copies is None else merits) * float(self._claims)

    @property
    def default_score(self) -> Callable[[ClassRecord, NodeTable], FloatArray | None] | None:
        return self._avoidance_points if self._packing else None

    def static_score(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        parts = (
            self._affinity_points(pod_class, nodes, mask) if self._affinity else None,
            self._taint_points(pod_class, nodes, mask) if self._taint else None,
            self._image_points(pod_class, nodes) if self._images else None,
            self._avoidance_points(pod_class, nodes) if self._packing and nodes.space.cards else None,
        )
        stated: list[FloatArray] = [part for part in parts if part is not None]
        if not stated:
            return None
        total: FloatArray = sum(stated[1:], start=stated[0])
        return total

    def _image_points(self, pod_class: ClassRecord, nodes: NodeTable) -> FloatArray | None:
        """Return ImageLocality: nodes that have the pod's images are better."""
        images, containers = pod_class.spec.images, len(pod_class.spec.images) - pod_class.spec.image_volumes
        points = nodes.images.points(images, containers, nodes.capacity, len(nodes))
        if points is None:
            return None
        result: FloatArray = points.astype(np.float64) * self._images
        return result

    def _avoidance_points(self, pod_class: ClassRecord, nodes: NodeTable) -> FloatArray | None:
        """Return the points, at most 0, that nodes lose by the number of their GPUs for pods without GPUs."""
        if pod_class.gpu_columns or pod_class.spec.claims or pod_class.spec.devices:
            return None
        cards = np.zeros(nodes.capacity)
        for column, card in nodes.space.cards.items():
            np.maximum(cards, nodes.allocatable[column] / card, out=cards)
        if not cards.any():
            return None
        lost: FloatArray = (cards > 0) * _AVOIDED + np.minimum(cards / _USUAL_CARDS, 1.0) * _BY_CARDS
        return lost * -float(self._packing)

    def _affinity_points(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        """Return the sum of the weights of matching preferred terms, normalised to the best node."""
        if not pod_class.spec.preferred:
            return None
        points = np.zeros(nodes.capacity)
        for preferred in pod_class.spec.preferred:
            matches = term_matches(preferred.term, nodes.labels, nodes.name_column, slice(None))
            points += np.where(matches, float(preferred.weight), 0.0)
        best = points[mask].max(initial=0.0)
        return points * (100.0 / best * self._affinity) if best > 0 else None

    def _taint_points(self, pod_class: ClassRecord, nodes: NodeTable, mask: BoolArray) -> FloatArray | None:
        """Return TaintToleration: fewer untolerated PreferNoSchedule taints are better, normalised to the worst
        node.
        """
        by_set = np.array(
            [
                sum(
                    taint.effect == "PreferNoSchedule"
                    and not any(tolerates(toleration, taint) for toleration in pod_class.spec.tolerations)
                    for taint in taints
                )
                for taints in nodes.taints.sets
            ],
            dtype=np.float64,
        )
        if not by_set.any():
            return None
        points = by_set[nodes.taints.ids]
        worst = points[mask].max(initial=0.0)
        return (1.0 - points / worst) * (100.0 * self._taint) if worst > 0 else None
