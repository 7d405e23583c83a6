"""Gang groups (Koordinator's): gangs that name each other and start together or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import MOST_GANGS, GangKey


def gang_group_of_gangs(gang: GangRecord, gangs: Mapping[GangKey, GangRecord]) -> dict[GangKey, GangRecord] | None:
    """The gang and all that are tied to it: those that it names and that name it, those of them, and so on.

    Nobody is tied by what another says alone. None where more than `MOST_GANGS` would be tied.
    """
    found, named, ask = {gang.key: gang}, {gang.key: _named(gang)}, [gang]
    while ask:
        asked = ask.pop()
        for key in named[asked.key]:
            mate = gangs.get(key)
            if key in found or mate is None:
                continue
            if key not in named:
                named[key] = _named(mate)
            if asked.key in named[key]:
                found[key] = mate
                ask.append(mate)
        if len(found) > MOST_GANGS:
            return None
    return found


def _named(gang: GangRecord) -> frozenset[GangKey]:
    return frozenset(gang.spec.gang_group) if gang.spec is not None else frozenset()
