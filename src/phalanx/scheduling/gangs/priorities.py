"""Priorities of gangs and pods by purpose: preemption, placement order, and protection of members."""

from __future__ import annotations

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.pod import MemberState

_ALIVE = frozenset({MemberState.PENDING, MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING})


class Priorities:
    """Priorities of gangs and pods within one session: members do not change while it plans."""

    def __init__(self, composites: Composites) -> None:
        self._composites = composites
        # Keyed by record, not by key: a deleted gang must not affect a new gang of its name.
        self._highest_by_gang: dict[GangRecord, int] = {}

    def own(self, gang: GangRecord | PodRecord) -> int:
        """Return a pod's priority; of a gang the PodGroup's own, else the highest of its members.

        With the highest, a gang with one low member does not starve (docs/rules/coscheduling.md, 1.4). Members in
        all active states count, so that the gang's position does not change during its placement.
        """
        if isinstance(gang, PodRecord):
            return gang.pod.priority
        stated = self._declared(gang)
        return stated if stated is not None else self.highest(gang)

    def turn(self, gang: GangRecord | PodRecord) -> int:
        """Return the priority by which a gang or pod is ordered among the waiting ones.

        It equals `own`, except for Kubernetes' own groups: they use their members' priority, as in kube-scheduler
        1.36. There the group's priority, often a default, decides only on preemption.
        """
        if isinstance(gang, PodRecord) or not _is_native(gang) or self._above(gang) is not None:
            return self.own(gang)
        return self.highest(gang)

    def victim(self, gang: GangRecord | None, own: int) -> int:
        """Return the priority that a preemptor of a pod must exceed.

        It is the pod's own priority or the declared one of its group or composite, whichever is higher. A group
        without a declared priority does not protect lower members. For an indivisible group of Kubernetes it is the
        group's priority, as in kube-scheduler.
        """
        declared = self._declared(gang) if gang is not None else None
        if gang is None or declared is None:
            return own
        whole = _is_native(gang) and gang.spec is not None and gang.spec.unit
        return declared if whole else max(declared, own)

    def _declared(self, gang: GangRecord) -> int | None:
        above = self._above(gang)
        return above if above is not None else gang.spec.priority if gang.spec is not None else None

    def _above(self, gang: GangRecord) -> int | None:
        if gang.spec is None or gang.spec.composite is None:
            return None
        return self._composites.priority(gang)

    def highest(self, gang: GangRecord) -> int:
        """Return the highest priority of the gang's living members; 0 without any."""
        highest = self._highest_by_gang.get(gang)
        if highest is None:
            if gang.highest_priority is None:
                alive = [member.pod.priority for member in gang.members.values() if member.state in _ALIVE]
                gang.highest_priority = max(alive, default=0)
            highest = self._highest_by_gang[gang] = gang.highest_priority
        return highest


def _is_native(gang: GangRecord) -> bool:
    return gang.spec is not None and gang.spec.rules.native
