"""Which priority counts for what: a gang's right to have others evicted, its turn, what protects its members."""

from __future__ import annotations

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.pod import MemberState

_ALIVE = frozenset({MemberState.PENDING, MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING})


class Priorities:
    """Of one session: members do not change while it plans."""

    def __init__(self, composites: Composites) -> None:
        self._composites = composites
        # By record, not by key: a gang that is gone must not speak for another of its name.
        self._found: dict[GangRecord, int] = {}

    def own(self, gang: GangRecord | PodRecord) -> int:
        """A pod's priority; of a gang the group's own, else the highest among its members.

        (The highest, so that a gang with one low member does not starve; docs/rules/coscheduling.md, 1.4. Of all
        that are alive, so that the gang does not change its place while it is being placed.)
        """
        if isinstance(gang, PodRecord):
            return gang.pod.priority
        stated = self._stated(gang)
        return stated if stated is not None else self._highest(gang)

    def turn(self, gang: GangRecord | PodRecord) -> int:
        """With which priority it takes its turn. As `own`, but Kubernetes' own groups go by their members' as in
        kube-scheduler 1.36: a group's, often a mere default, tells only who may go for whom."""
        if isinstance(gang, PodRecord) or not _is_native(gang) or self._above(gang) is not None:
            return self.own(gang)
        return self._highest(gang)

    def victim(self, gang: GangRecord | None, own: int) -> int:
        """What must be exceeded by whoever evicts a pod for its priority: its own, or what its group or a composite
        above states, whichever is higher. (What states nothing keeps no member that is worth less.) Of one of
        Kubernetes' own groups that goes only as a whole it is the group's, as in kube-scheduler."""
        stated = self._stated(gang) if gang is not None else None
        if gang is None or stated is None:
            return own
        whole = _is_native(gang) and gang.spec is not None and gang.spec.unit
        return stated if whole else max(stated, own)

    def _stated(self, gang: GangRecord) -> int | None:
        above = self._above(gang)
        return above if above is not None else gang.spec.priority if gang.spec is not None else None

    def _above(self, gang: GangRecord) -> int | None:
        if gang.spec is None or gang.spec.composite is None:
            return None
        return self._composites.priority(gang)

    def _highest(self, gang: GangRecord) -> int:
        found = self._found.get(gang)
        if found is None:
            alive = (member for member in gang.members.values() if member.state in _ALIVE)
            found = self._found[gang] = max((member.pod.priority for member in alive), default=0)
        return found


def _is_native(gang: GangRecord) -> bool:
    return gang.spec is not None and gang.spec.rules.native
