"""Groups of gangs: trees in which so many groups start together or none."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey, GroupRef, Problem
from phalanx.model.topology import TopologyRule


class Composite(msgspec.Struct, frozen=True):
    """A CompositePodGroup of scheduling.k8s.io.

    `min_groups` of the groups that name it as their parent start together or none does; 0 where each starts for
    itself (the basic policy). `parent` is the composite above, in the same namespace. `workload` is the Workload
    that it was made from; all that is in one tree comes from the same. `topology`, `priority` and `unit` (all that
    is below may only be disrupted together) hold for everything below. `preempts` is False where nobody may go for
    it. `initiated` says that its first quorum has been placed. `problem` holds everything below.
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
