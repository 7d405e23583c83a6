"""Gang groups (Koordinator's): gangs that name each other and start together or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import MOST_GANGS, GangKey


def gang_group_of_gangs(gang: GangRecord, gangs: Mapping[GangKey, GangRecord]) -> dict[GangKey, GangRecord] | None:
    """Return the gang and all gangs of its group: gangs that it names and that name it, and so on.

    A gang that is named only from one side does not belong. None if there are more than `MOST_GANGS`.
    """
    group, named, queue = {gang.key: gang}, {gang.key: _named(gang)}, [gang]
    while queue:
        gang_of_group = queue.pop()
        for key in named[gang_of_group.key]:
            mate = gangs.get(key)
            if key in group or mate is None:
                continue
            if key not in named:
                named[key] = _named(mate)
            if gang_of_group.key in named[key]:
                group[key] = mate
                queue.append(mate)
        if len(group) > MOST_GANGS:
            return None
    return group


def _named(gang: GangRecord) -> frozenset[GangKey]:
    return frozenset(gang.spec.gang_group) if gang.spec is not None else frozenset()
