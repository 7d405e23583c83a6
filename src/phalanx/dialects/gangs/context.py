"""What decides about a gang although neither its members nor its objects say it."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.workloads.rule import KindKey, WorkloadSize
from phalanx.model.gang import GangKey


class GangContext(msgspec.Struct, frozen=True):
    """Facts from outside the gang: how pods name the objects of each API group, in order of preference, the values
    of priority classes, the queue that the namespace prefers, and whether Kubernetes' own PodGroups are served.
    `size` is what the members' owner says; of the kinds `unreadable` there are no owners to ask. `sizes` has what
    owners say about the PodGroups that are theirs, too.
    """

    naming_of: Mapping[str, GangNaming]
    priority_classes: Mapping[str, int] = {}
    queue: str = ""
    native: bool = True
    size: WorkloadSize | None = None
    unreadable: Container[KindKey] = frozenset()
    sizes: Mapping[GangKey, WorkloadSize] = {}
