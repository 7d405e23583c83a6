"""The priority of a pod or a gang: in the order of turns, and where somebody has to go."""

from __future__ import annotations

from phalanx.cluster.composites import Composites
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.model.gang import Dialect
from phalanx.model.pod import MemberState

_ALIVE = frozenset({MemberState.PENDING, MemberState.PLACED, MemberState.BOUND, MemberState.RUNNING})


class Priorities:
    """For one cycle: what members make of a gang's priority is counted once."""

    def __init__(self, composites: Composites) -> None:
        self._composites = composites
        # By record, not by key: a gang that is gone must not speak for another of its name.
        self._highest: dict[GangRecord, int] = {}

    def of(self, gang: GangRecord | PodRecord) -> int:
        """A pod's priority; of a gang the group's own, else the highest among its members.

        (The highest, so that a gang with one low member does not starve; research/coscheduling.md, 1.4. Of all
        that are alive, so that the gang does not change its place while it is being placed.)
        """
        if isinstance(gang, PodRecord):
            return gang.pod.priority
        stated = self._stated(gang)
        return self._highest_of(gang) if stated is None else stated

    def in_turn(self, gang: GangRecord | PodRecord) -> int:
        """With which priority it takes its turn. As `of`, but Kubernetes' own groups go by their members': a
        group's, often a mere default, tells only who may go for whom."""
        if isinstance(gang, PodRecord):
            return gang.pod.priority
        if gang.noun is None or gang.noun.dialect is not Dialect.NATIVE:
            return self.of(gang)
        above = self._above(gang)
        return self._highest_of(gang) if above is None else above

    def of_victim(self, gang: GangRecord | None, own: int) -> int:
        """What must be exceeded by whoever evicts a pod for its priority: its own, or what its group or a composite
        above states, whichever is higher. (What states nothing keeps no member that is worth less.)"""
        stated = self._stated(gang) if gang is not None else None
        return own if stated is None else max(stated, own)

    def _stated(self, gang: GangRecord) -> int | None:
        """What the group or a composite above it says."""
        if gang.noun is None:
            return None
        above = self._above(gang)
        return gang.noun.priority if above is None else above

    def _above(self, gang: GangRecord) -> int | None:
        if gang.noun is None or gang.noun.composite is None:
            return None
        return self._composites.priority(gang)

    def _highest_of(self, gang: GangRecord) -> int:
        found = self._highest.get(gang)
        if found is None:
            alive = (member for member in gang.members.values() if member.state in _ALIVE)
            found = self._highest[gang] = max((member.pod.priority for member in alive), default=0)
        return found
