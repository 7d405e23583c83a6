"""Pods that ask for another scheduler: whose they are, and that Phalanx leaves them alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from phalanx.model.pod import Pod
from phalanx.model.verdict import Verdict


def of_other_scheduler(pods: Sequence[Pod], ours: Collection[str], who: str = "the pod") -> Verdict:
    """What is said of `pods`, of which none asks for a scheduler of `ours`; `who` is what they are together."""
    names = sorted({pod.scheduler or "default-scheduler" for pod in pods})
    told = ", ".join(map(repr, names))
    one = len(pods) == 1
    subject, verb, them = (who, "belongs", "it") if one else (f"the {len(pods)} pods of {who}", "belong", "them")
    return Verdict(
        "OtherScheduler",
        f"{subject} {verb} to the scheduler {told} (spec.schedulerName), which alone places {them}; "
        "Phalanx does not",
        unschedulable=False,
        change=f"ask that scheduler; or create the pods with spec.schedulerName: {min(ours)}. Where Phalanx itself "
        f"serves {told}, say so: {' '.join(f'--scheduler-name {name}' for name in names)}",
    )
