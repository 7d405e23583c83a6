"""Nodes that match a pod's node selector, node affinity and tolerations, for many rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.nodes.labels import Rows, term_matches
from phalanx.cluster.resource_space import BoolArray
from phalanx.model.selectors import NodeSelectorTerm, Requirement, Taint, Toleration, tolerates

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def selected(
    selector: tuple[tuple[str, str], ...],
    affinity: tuple[NodeSelectorTerm, ...] | None,
    nodes: NodeRows,
    rows: Rows,
) -> BoolArray:
    """Return bool[rows]: rows that match the node selector and a term of the affinity (None: no rule)."""
    mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
    for key, value in selector:
        mask &= nodes.labels.satisfies(Requirement(key, "In", (value,)), rows)
    if affinity is not None:
        any_term = np.zeros_like(mask)
        for term in affinity:
            any_term |= term_matches(term, nodes.labels, nodes.name_column, rows)
        mask &= any_term
    return mask


def tolerated(tolerations: tuple[Toleration, ...], nodes: NodeRows, rows: Rows) -> BoolArray:
    """Return bool[rows]: rows without an untolerated taint."""
    by_set = np.array([not objections(tolerations, taints) for taints in nodes.taints.sets], dtype=np.bool_)
    result: BoolArray = by_set[nodes.taints.ids[rows]]
    return result


def objections(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> list[Taint]:
    """Return those of a node's hard taints that a pod with these tolerations does not tolerate."""
    return [
        taint
        for taint in taints
        if taint.effect in _HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]
