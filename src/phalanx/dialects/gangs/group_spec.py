"""`GroupSpec`, the common form of a PodGroup of any dialect, and the base reader of all dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.gangs.extras import NO_EXTRAS, Extras, read_extras
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.pods.evictability import preemptable_of
from phalanx.dialects.pods.requests import limit_list, resource_list
from phalanx.dialects.reader import MAX_WHOLE, Document, ObjectReader, describe, is_whole
from phalanx.dialects.run_times.stated import stated_run_time
from phalanx.dialects.workloads.rule import PAYING_AHEAD, SUSPENDED_OWNERS, KindKey, controller_of
from phalanx.model.disruption import Portion
from phalanx.model.gang import GangOwner, GroupClaim, GroupRef, Problem
from phalanx.model.resources import Requests
from phalanx.model.run_time import NOTHING_STATED, StatedRunTime
from phalanx.model.tasks import TaskTopology
from phalanx.model.topology import SubgroupRule, TopologyRule

MAX_MEMBERS = MAX_WHOLE


class GroupSpec(msgspec.Struct, frozen=True, gc=False):
    """Declaration of one group object. `gang` is the name of the gang, `problem` the fault that makes it unusable.

    `priority` is the number of the native API; `priority_class` is the name of a class to resolve. `queue` is "" if
    unspecified. `composite` names the parent composite, `workload` the Workload of the group. Members of a
    `uniform` group must have its priority and preemption policy, if stated. `made` objects are generated from pods
    and declare nothing themselves. Only pods of its own API are members of a `template`. `owner` is the uid of an
    owner, of the kind `owner_kind`, that can create members in stages or be suspended; an `owned` group has an
    owner of any kind but Pod. With `pays_ahead`, minResources include the requests of a pod that is created once
    the members run and that the minimum does not count. `job` is the job of the object; None if a user wrote the
    object. A `basic` group has a controller and states no minimum: that of its pods, or of their owner, counts.
    """

    ref: GroupRef
    gang: str
    created: int = 0
    min_member: int = 1
    roles: tuple[tuple[str, int], ...] = ()
    min_resources: Requests | None = None
    min_limits: Requests = ()
    timeout: int | None = None
    queue: str = ""
    priority_class: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    uniform: bool = True
    extras: Extras = NO_EXTRAS
    once_satisfied: bool = False
    admission: bool = False
    admitted: bool = True
    admitted_at: int = 0
    completed: bool = False
    owned: bool = False
    unit: bool = False
    preemptable: bool = True
    revocable: bool = False
    tasks: TaskTopology | None = None
    min_available: Portion | None = None
    max_unavailable: Portion | None = None
    topology: TopologyRule | None = None
    subgroups: tuple[SubgroupRule, ...] = ()
    claims: tuple[GroupClaim, ...] = ()
    run_time: StatedRunTime = NOTHING_STATED
    composite: str = ""
    workload: str = ""
    made: bool = False
    template: bool = False
    owner: str = ""
    owner_kind: KindKey | None = None
    pays_ahead: bool = False
    job: GangOwner | None = None
    basic: bool = False
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()


def independent_of_status(spec: GroupSpec, status: Mapping[str, Any]) -> GroupSpec:
    """Return the declaration of an object with another status, for kinds whose declaration reads none."""
    return spec


class GroupReader(ObjectReader):
    """Reads the fields that PodGroups of all dialects share."""

    code = "InvalidPodGroup"

    def __init__(self, resource: ServedKind, document: Document) -> None:
        super().__init__(resource, document)
        self.extras = read_extras(self.labels, self.annotations)
        group, kind, uid = controller_of(self.metadata)
        self.owner = uid if (group, kind) in SUSPENDED_OWNERS else ""
        # All these kinds have a regular plural.
        self.owner_kind = (group, f"{kind.lower()}s") if self.owner else None
        owners = self.metadata.get("ownerReferences")
        kinds = (
            [each.get("kind") for each in owners if isinstance(each, Mapping)] if isinstance(owners, list) else []
        )
        # A pod that owns its group is a member of it, so the group has ended when the pod has.
        self.owned = any(owner_kind != "Pod" for owner_kind in kinds)
        self.pays_ahead = (group, kind) in PAYING_AHEAD
        faults: list[DecodingFault] = []
        self.preemptable = preemptable_of(self.labels, self.annotations, faults)
        self.run_time = stated_run_time(self.annotations, faults, f"PodGroup {self.ref.name}")
        self.warnings += [Problem("InvalidAnnotation", f"{describe(self.ref)}: {fault}") for fault in faults]

    def min_member(self, *names: str) -> int:
        """Return the minMember of a PodGroup, the first of `names` in its spec; 0 and absent both mean 1
        (docs/rules/coscheduling.md, 1.4)."""
        for name in names:
            value = self.spec.get(name)
            if value is None:
                continue
            if is_whole(value) and 0 <= value <= MAX_MEMBERS:
                return max(1, value)
            self.refuse(f"spec.{name}", value, "write a whole number of at least 1, such as 3")
            return 1
        return 1

    def timeout(self, name: str) -> int | None:
        """Return a timeout in a PodGroup's spec in seconds; zero means the default, which is none."""
        value = self.number(name)
        if value is not None and value < 0:
            self.warn("InvalidTimeout", f"spec.{name}", value, "write a number of seconds above 0; none is used")
        return value if value is not None and value > 0 else None

    def resources(self, name: str) -> Requests | None:
        value = self.spec.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(f"spec.{name}", value, "write a map such as {cpu: 4, memory: 8Gi}")
            return None
        return self._amounts(resource_list(value, f"spec.{name}"))

    def limits(self, name: str) -> Requests:
        """Return the limits in a PodGroup's map of amounts; only quotas count them."""
        value = self.spec.get(name)
        return self._amounts(limit_list(value, f"spec.{name}")) if isinstance(value, dict) else ()

    def _amounts(self, parsed: tuple[Requests, tuple[DecodingFault, ...]]) -> Requests:
        requests, faults = parsed
        for fault in faults:
            remedy = "write a quantity such as 4, 500m or 8Gi"
            self.problems.append(Problem.of(self.code, f"{describe(self.ref)}: {fault}", remedy))
        return requests
