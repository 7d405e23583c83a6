"""Command of Volcano for one of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.reports.jobs.entries import JobEntry

ABORT, RESUME, RESTART = "AbortJob", "ResumeJob", "RestartJob"


def command_to(job: JobEntry, action: str) -> dict[str, Any]:
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{job.name}-{action.lower()}-",
            "namespace": job.namespace,
            "ownerReferences": [target],
        },
        "target": target,
        "action": action,
    }
