"""The verdict of each refusal, on a gang and on a pod without one."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.verdict import Verdict
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage
from phalanx.scheduling.diagnosis.verdicts import (
    behind,
    gap,
    held_account,
    no_room_for_gang,
    no_room_for_pod,
    over_limit_for_gang,
    over_limit_for_pod,
    victims_terminating,
)
from phalanx.scheduling.quota.limits import Blocked, BlockedByFifo, OverQuota, VictimsTerminating

GangFault = Shortage | OverQuota | Gap | Blocked
"""A refusal for which one gang of the unit is at fault, the `culprit`."""
UnitWait = VictimsTerminating | BlockedByFifo
"""A refusal of a unit as a whole."""


def gang_verdict(refusal: GangFault | UnitWait, gang: GangRecord) -> Verdict:
    """Return the verdict of a refusal on the gang at fault, or on each gang where the unit as a whole is."""
    match refusal:
        case Shortage():
            return no_room_for_gang(refusal, gang)
        case OverQuota():
            return over_limit_for_gang(refusal, gang)
        case Gap():
            assert gang.spec is not None
            return gap(refusal, gang, gang.spec)
        case Blocked():
            return held_account(f"gang {gang.title}", refusal)
        case VictimsTerminating():
            return victims_terminating(f"gang {gang.title}", refusal)
        case BlockedByFifo():
            return behind(f"gang {gang.title}", refusal)


def pod_verdict(refusal: GangFault | UnitWait, pod: PodRecord) -> Verdict:
    """Return the verdict of a refusal on a pod that belongs to no gang."""
    match refusal:
        case Shortage():
            return no_room_for_pod(refusal)
        case OverQuota():
            return over_limit_for_pod(refusal)
        case Blocked():
            return held_account(f"pod {pod.pod.key}", refusal)
        case VictimsTerminating():
            return victims_terminating(f"pod {pod.pod.key}", refusal)
        case BlockedByFifo():
            return behind(f"pod {pod.pod.key}", refusal)
        case Gap():
            raise TypeError("minResources are those of a group: a pod without one has no gap")
