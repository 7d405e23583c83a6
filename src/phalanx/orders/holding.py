"""Hold and release: by what the API of the object at the top has for it, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.jobs.suspended import HOLD, QUEUE_LABEL, SuspendableKind, is_suspended
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.orders.errors import OrderError
from phalanx.orders.target import Target, name_of
from phalanx.orders.volcano_command import ABORT, RESUME, command_to
from phalanx.reports.jobs.entries import FINISHED, JobEntry
from phalanx.reports.jobs.kinds import COMMANDS
from phalanx.reports.jobs.read_documents import mapping, text

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_ABORTED = frozenset({"Aborted", "Aborting"})


async def hold(client: KubeClient, target: Target) -> str:
    """Keeps a gang that waits from starting; says what happened. Raises OrderError."""
    _refuse_finished(target)
    if target.volcano_job:
        if _volcano_phase(target) in _ABORTED:
            return f"{target.title} is held already"
        _refuse_running(target)
        await _command(client, target, ABORT)
        return _held(target, "its pods are made anew when it is released")
    kind = target.suspendable
    if kind is None:
        raise OrderError(f"{target.title} cannot be held: {_no_way(target)}")
    if not await _keep_suspended(client, target, kind, _refuse_running):
        return f"{target.title} is held already"
    return _held(target, "it stays suspended")


async def suspend(client: KubeClient, target: Target) -> str:
    """Ends the pods of a job of any kind but Volcano's and keeps it, by its own field. Raises OrderError."""
    _refuse_finished(target)
    kind = target.suspendable
    if kind is None:
        raise OrderError(f"{target.title} cannot be suspended: {_no_way(target)}")
    if not await _keep_suspended(client, target, kind):
        return f"{target.title} is suspended already"
    at = f"{target.title} -n {target.namespace}"
    return f"{target.title} will be suspended; its pods end. To go on: phalanx job resume {at}"


async def _keep_suspended(
    client: KubeClient,
    target: Target,
    kind: SuspendableKind,
    check: Callable[[Target], None] = lambda target: None,
) -> bool:
    """False where it is suspended already; `check` is asked before it is changed. Raises OrderError."""
    _refuse_kueue(target)
    assert target.document is not None
    queued, suspended = bool(target.note("labels", QUEUE_LABEL)), is_suspended(kind, target.document)
    if suspended and (not queued or target.note("annotations", HOLD) == "true"):
        return False
    check(target)
    _refuse_unended_ray_job(target)
    patch: dict[str, Any] = {} if suspended else _nested(kind.suspend, True)
    if queued:
        # Else whoever lets suspended jobs go would do so when it is its turn.
        patch["metadata"] = {"annotations": {HOLD: "true"}}
    await client.patch(target.path, patch, PatchType.MERGE)
    return True


async def release(client: KubeClient, target: Target) -> str:
    """Lets a gang that is held take its turn again. Raises OrderError."""
    _refuse_finished(target)
    if target.volcano_job:
        if _volcano_phase(target) not in _ABORTED:
            return f"{target.title} is not held"
        await _command(client, target, RESUME)
        return _released(target)
    kind = target.suspendable
    if kind is None:
        return f"{target.title} is not held, and cannot be: {_no_way(target)}"
    _refuse_kueue(target)
    assert target.document is not None
    queued = bool(target.note("labels", QUEUE_LABEL))
    if queued and target.note("annotations", HOLD) == "true":
        patch: dict[str, Any] = {"metadata": {"annotations": {HOLD: None}}}
    elif queued and is_suspended(kind, target.document):
        return f"{target.title} is not held: it waits in queue {target.note('labels', QUEUE_LABEL)} for its turn"
    elif is_suspended(kind, target.document):
        patch = _nested(kind.suspend, False)
    else:
        return f"{target.title} is not held"
    await client.patch(target.path, patch, PatchType.MERGE)
    return _released(target)


def _held(target: Target, more: str) -> str:
    return f"{target.title} held; {more}. To let it go: phalanx release {target.title} -n {target.namespace}"


def _released(target: Target) -> str:
    return f"{target.title} released: it takes its turn. To see when: phalanx jobs --start -n {target.namespace}"


def _nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    assert isinstance(nested, dict)
    return nested


def _volcano_phase(target: Target) -> str:
    status = mapping((target.document or {}).get("status"))
    return text(mapping(status.get("state")).get("phase"))


def _refuse_finished(target: Target) -> None:
    phase = _volcano_phase(target) if target.volcano_job else ""
    conditions = mapping((target.document or {}).get("status")).get("conditions")
    for each in conditions if isinstance(conditions, list) and target.suspendable is not None else ():
        condition = mapping(each)
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Completed", "Failed"):
            phase = text(condition.get("type"))
    if phase in FINISHED or phase == "Complete":
        raise OrderError(f"{target.title} is over ({phase})")


def _refuse_running(target: Target) -> None:
    if target.running:
        raise OrderError(
            f"{target.title} runs already ({target.running} pods); only what waits can be held. "
            f"To end its pods and keep it: phalanx job suspend {target.title}"
            if target.volcano_job or target.suspendable is not None
            else f"{target.title} runs already ({target.running} pods); only what waits can be held"
        )


def _refuse_kueue(target: Target) -> None:
    if queue := target.note("labels", KUEUE_QUEUE):
        raise OrderError(
            f"{target.title} is in Kueue's queue {queue}, and Kueue alone suspends and resumes it: "
            "stop its Workload (kubectl kueue stop workload)"
        )


def _refuse_unended_ray_job(target: Target) -> None:
    """KubeRay fails, for good, a RayJob that is suspended although its cluster is to outlive it."""
    assert target.document is not None
    ends = mapping(target.document.get("spec")).get("shutdownAfterJobFinishes") is True
    if target.resource is not None and target.resource.kind == "RayJob" and not ends:
        raise OrderError(
            f"{target.title} cannot be suspended: KubeRay fails a RayJob for it unless its "
            "shutdownAfterJobFinishes is true"
        )


def _no_way(target: Target) -> str:
    if target.document is None or (target.resource is not None and target.resource.kind in ("PodGroup", "Pod")):
        return "its pods are there, gates can only be taken from a pod, and nobody would make the pods anew"
    assert target.resource is not None
    return f"{target.resource.kind} of {target.resource.group or 'core'} has no field that keeps it from starting"


async def _command(client: KubeClient, target: Target, action: str) -> None:
    """A Command to a Volcano Job, which the job owns."""
    assert target.document is not None
    entry = JobEntry(kind="vcjob", namespace=target.namespace, name=name_of(target.document), uid=target.uid)
    try:
        await client.create(COMMANDS.path(target.namespace), command_to(entry, action))
    except ApiError as error:
        if error.status != 404:
            raise
        raise OrderError(
            f"{target.title}: this cluster does not have the kind Command of bus.volcano.sh/v1alpha1; "
            "`phalanx install` brings it"
        ) from error
