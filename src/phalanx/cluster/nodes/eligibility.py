"""Which nodes a pod's node selector, its node affinity and its tolerations accept, over many rows at a time."""

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
    """bool[rows]: all of the node selector hold, and one term of the affinity where it has any (None: no rule)."""
    mask = np.ones(nodes.alive[rows].shape, dtype=np.bool_)
    for key, value in selector:
        mask &= nodes.labels.satisfies(Requirement(key, "In", (value,)), rows)
    if affinity is not None:
        some = np.zeros_like(mask)
        for term in affinity:
            some |= term_matches(term, nodes.labels, nodes.name_column, rows)
        mask &= some
    return mask


def tolerated(tolerations: tuple[Toleration, ...], nodes: NodeRows, rows: Rows) -> BoolArray:
    """bool[rows]: every taint that keeps pods away is tolerated."""
    by_set = np.array([not objections(tolerations, taints) for taints in nodes.taints.sets], dtype=np.bool_)
    result: BoolArray = by_set[nodes.taints.ids[rows]]
    return result


def objections(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> list[Taint]:
    """The taints that keep pods away and are not tolerated."""
    return [
        taint
        for taint in taints
        if taint.effect in _HARD_EFFECTS and not any(tolerates(each, taint) for each in tolerations)
    ]
