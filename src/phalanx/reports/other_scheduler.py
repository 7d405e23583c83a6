"""Verdict on pods with the schedulerName of another scheduler, which Phalanx does not place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from phalanx.model.pod import Pod
from phalanx.model.verdict import Verdict


def of_other_scheduler(pods: Sequence[Pod], ours: Collection[str], who: str = "the pod") -> Verdict:
    """Return the verdict on `pods` that name no scheduler of `ours`; `who` is the name of the pod or gang in
    messages."""
    names = sorted({pod.scheduler or "default-scheduler" for pod in pods})
    listed = ", ".join(f'"{name}"' for name in names)
    # In most clusters kube-scheduler serves default-scheduler.
    own = min(ours, key=lambda name: (name == "default-scheduler", name))
    subject, verb = (who, "has") if len(pods) == 1 else (f"{len(pods)} pods of {who}", "have")
    return Verdict(
        "OtherScheduler",
        f"{subject} {verb} spec.schedulerName {listed}, so Phalanx does not place "
        f"{'it' if len(pods) == 1 else 'them'}",
        unschedulable=False,
        change=f"check that scheduler, or create the pods with spec.schedulerName: {own}; if Phalanx itself "
        f"serves {listed}, add {' '.join(f'--scheduler-name {name}' for name in names)}",
    )
