"""Commands of Volcano for its jobs and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.reports.jobs.entries import JobEntry

ABORT, RESUME, RESTART = "AbortJob", "ResumeJob", "RestartJob"
OPEN_QUEUE, CLOSE_QUEUE = "OpenQueue", "CloseQueue"


def command_to(job: JobEntry, action: str) -> dict[str, Any]:
    """Return a Command for a job."""
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return _command(target, job.namespace, action)


def command_to_queue(name: str, uid: str, action: str) -> dict[str, Any]:
    """Return a Command for a queue, in the namespace default: a queue has none."""
    target = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return _command(target, "default", action)


def _command(target: dict[str, Any], namespace: str, action: str) -> dict[str, Any]:
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{target['name']}-{action.lower()}-",
            "namespace": namespace,
            "ownerReferences": [target],
        },
        "target": target,
        "action": action,
    }
