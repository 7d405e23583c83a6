"""Input from outside a gang's members and objects that determines the gang."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.workloads.rule import KindKey, WorkloadSize
from phalanx.model.gang import GangKey


class GangContext(msgspec.Struct, frozen=True):
    """Facts from outside the gang: the naming rules for the objects of each API group, in order of preference,
    the values of priority classes, the default queue of the namespace, and whether native PodGroups are served.
    `size` is the gang size that the members' owner defines; owners of the kinds `unreadable` cannot be read.
    `sizes` also has the sizes that owners define for their PodGroups.
    """

    naming_of: Mapping[str, GangNaming]
    priority_classes: Mapping[str, int] = {}
    queue: str = ""
    native: bool = True
    size: WorkloadSize | None = None
    unreadable: Container[KindKey] = frozenset()
    sizes: Mapping[GangKey, WorkloadSize] = {}
