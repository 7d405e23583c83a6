"""Change of the number of a job's pods."""

from __future__ import annotations

from typing import Any

from phalanx.kube.client import KubeClient, PatchType
from phalanx.orders.errors import InvalidRequestError, OrderError
from phalanx.orders.target import Target
from phalanx.reports.jobs.kinds import JOB, RESOURCES
from phalanx.reports.jobs.read_documents import mapping


async def scale(client: KubeClient, target: Target, replicas: int, task: str = "") -> str:
    """Set the number of pods of a job; of one task of a Volcano Job ("": its only task). Return a message.

    Raises OrderError, also for a number below the minimum of the job.
    """
    spec: dict[str, Any] = mapping((target.document or {}).get("spec"))
    if replicas < 1:
        raise InvalidRequestError("replicas", replicas, ": must be at least 1")
    if target.volcano_job:
        tasks = [dict(entry) for entry in spec.get("tasks") or ()]
        chosen = [entry for entry in tasks if task in ("", entry.get("name"))]
        if len(chosen) != 1:
            names = ", ".join(str(entry.get("name")) for entry in tasks)
            raise InvalidRequestError("task", repr(task), f": expected one of {names}")
        others = sum(int(entry.get("replicas") or 0) for entry in tasks if entry is not chosen[0])
        minimum = max(int(chosen[0].get("minAvailable") or 0), int(spec.get("minAvailable") or 0) - others)
        if replicas < minimum:
            raise InvalidRequestError("replicas", replicas, f": the minimum of {target.title} is {minimum}")
        path = f"/spec/tasks/{tasks.index(chosen[0])}"
        operations = [
            # The index is that of the task only as long as nobody has changed the list.
            {"op": "test", "path": f"{path}/name", "value": chosen[0].get("name")},
            {"op": "add", "path": f"{path}/replicas", "value": replicas},
        ]
        await client.patch(target.path, operations, PatchType.JSON)
    elif target.resource == RESOURCES[JOB]:
        patch: dict[str, Any] = {"spec": {"parallelism": replicas}}
        if spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"):
            patch["spec"]["completions"] = replicas
        await client.patch(target.path, patch, PatchType.MERGE)
    else:
        raise OrderError(f"{target.title} cannot be scaled here; change its number of pods in its own API")
    return f"{target.title} is scaled to {replicas} pods"
