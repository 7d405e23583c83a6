"""Composites: trees of gangs in which a minimum of groups starts together."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey, GroupRef, Problem
from phalanx.model.topology import TopologyRule


class Composite(msgspec.Struct, frozen=True):
    """Group of gangs (CompositePodGroup of scheduling.k8s.io), of which a minimum starts together.

    At least `min_groups` child groups start together or none does; 0: each starts independently (the basic
    policy). `parent` is the parent composite, in the same namespace. `workload` is the Workload of its template;
    all groups of one tree have the same Workload. `topology`, `priority` and `unit` (all pods below are disrupted
    together) apply to all groups below. `preempts` is False if no pod is evicted for it. `initiated`: its first
    quorum has been placed. `problem` blocks all groups below.
    """

    key: GangKey
    ref: GroupRef
    min_groups: int = 0
    parent: GangKey | None = None
    workload: str = ""
    topology: TopologyRule | None = None
    priority: int | None = None
    preempts: bool = True
    unit: bool = False
    initiated: bool = False
    created: int = 0
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()
