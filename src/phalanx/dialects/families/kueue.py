"""Kueue's plain pod groups: pods that Kueue admits together, and that this scheduler places together.

Kueue's controller gates the members until its quota admits the whole group; Kueue alone handles its Workloads and
queues. A group with fast admission is admitted at its first member (for StatefulSets, which create one pod after
the other). It cannot wait for all members, so its pods are scheduled one by one here too.
"""

from __future__ import annotations

from phalanx.dialects.dialect import Dialect
from phalanx.dialects.gangs.naming import NOT_FOUND, GangNaming, MinimumKey, Precedence
from phalanx.model.gang import GangKey, GangRules, MatchPolicy, Problem

GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"


def _missing(key: GangKey, place: str, native_served: bool) -> Problem:
    wrong = f"the pods of group {key} do not say how many they are"
    return Problem.of(NOT_FOUND, wrong, f'write the annotation {TOTAL_COUNT}, such as "3"')


POD_GROUP = GangNaming(
    GangRules("kueue.x-k8s.io"),
    # Once a group has been admitted, Kueue lets each replacement start at once.
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.LABEL,
    labels=(GROUP_NAME,),
    unless=((FAST_ADMISSION, "true"),),
    minima=(MinimumKey(TOTAL_COUNT),),
    missing=_missing,
)

KUEUE_DIALECT = Dialect("kueue", (POD_GROUP,))
