"""Hold and release of a gang, through the API of its owner; refused if that API has no field for it."""

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
    """Prevent a waiting gang from starting. Return a message for the user. Raises OrderError."""
    _refuse_finished(target)
    if target.volcano_job:
        if _volcano_phase(target) in _ABORTED:
            return f"{target.title} is already held"
        _refuse_running(target)
        await _command(client, target, ABORT)
        return _held_message(target, "its pods are recreated after the release")
    kind = target.suspendable
    if kind is None:
        raise OrderError(f"{target.title} cannot be held: {_why_impossible(target)}")
    if not await _keep_suspended(client, target, kind, _refuse_running):
        return f"{target.title} is already held"
    return _held_message(target, "it remains suspended")


async def suspend(client: KubeClient, target: Target) -> str:
    """Suspend a job, Volcano's by a Command and others by their own field: its pods are deleted, the job remains.
    Raises OrderError."""
    _refuse_finished(target)
    at = f"{target.title} -n {target.namespace}"
    if target.volcano_job:
        if _volcano_phase(target) in _ABORTED:
            return f"{target.title} is already suspended"
        await _command(client, target, ABORT)
        return f"{target.title} will be suspended; its pods end. To resume: phalanx job resume {at}"
    kind = target.suspendable
    if kind is None:
        raise OrderError(f"{target.title} cannot be suspended: {_why_impossible(target)}")
    if not await _keep_suspended(client, target, kind):
        return f"{target.title} is already suspended"
    return f"{target.title} will be suspended; its pods end. To resume: phalanx job resume {at}"


async def _keep_suspended(
    client: KubeClient,
    target: Target,
    kind: SuspendableKind,
    check: Callable[[Target], None] = lambda target: None,
) -> bool:
    """Set a job to suspended unless `check` refuses. Return False if it is suspended already. Raises OrderError for
    a refusal."""
    _refuse_kueue(target)
    assert target.document is not None
    queued, suspended = bool(target.note("labels", QUEUE_LABEL)), is_suspended(kind, target.document)
    if suspended and (not queued or target.note("annotations", HOLD) == "true"):
        return False
    check(target)
    _refuse_unended_ray_job(target)
    patch: dict[str, Any] = {} if suspended else _nested(kind.suspend, True)
    if queued:
        # Without the annotation the queue's controller would resume the job when it is admitted.
        patch["metadata"] = {"annotations": {HOLD: "true"}}
    await client.patch(target.path, patch, PatchType.MERGE)
    return True


async def release(client: KubeClient, target: Target) -> str:
    """Release a held gang, so that it is scheduled again. Raises OrderError."""
    _refuse_finished(target)
    if target.volcano_job:
        if _volcano_phase(target) not in _ABORTED:
            return f"{target.title} is not held"
        await _command(client, target, RESUME)
        return _released_message(target)
    kind = target.suspendable
    if kind is None:
        return f"{target.title} is not held and cannot be held: {_why_impossible(target)}"
    _refuse_kueue(target)
    assert target.document is not None
    queued = bool(target.note("labels", QUEUE_LABEL))
    if queued and target.note("annotations", HOLD) == "true":
        patch: dict[str, Any] = {"metadata": {"annotations": {HOLD: None}}}
    elif queued and is_suspended(kind, target.document):
        return f"{target.title} is not held: it waits in queue {target.note('labels', QUEUE_LABEL)}"
    elif is_suspended(kind, target.document):
        patch = _nested(kind.suspend, False)
    else:
        return f"{target.title} is not held"
    await client.patch(target.path, patch, PatchType.MERGE)
    return _released_message(target)


def _held_message(target: Target, consequence: str) -> str:
    return (
        f"{target.title} held; {consequence}. To release it: phalanx release {target.title} -n {target.namespace}"
    )


def _released_message(target: Target) -> str:
    return f"{target.title} released; expected start: phalanx jobs --start -n {target.namespace}"


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
    for item in conditions if isinstance(conditions, list) and target.suspendable is not None else ():
        condition = mapping(item)
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Completed", "Failed"):
            phase = text(condition.get("type"))
    if phase in FINISHED or phase == "Complete":
        raise OrderError(f"{target.title} has finished ({phase})")


def _refuse_running(target: Target) -> None:
    if target.running:
        can_suspend = target.volcano_job or target.suspendable is not None
        raise OrderError(
            f"{target.title} is running ({target.running} pods); only a waiting gang can be held",
            fix=f"To end its pods, but not the job: phalanx job suspend {target.title}" if can_suspend else "",
            order="suspend" if can_suspend else "",
        )


def _refuse_kueue(target: Target) -> None:
    if queue := target.note("labels", KUEUE_QUEUE):
        raise OrderError(
            f"{target.title} is in Kueue's queue {queue}, and Kueue alone suspends and resumes it: "
            "stop its Workload (kubectl kueue stop workload)"
        )


def _refuse_unended_ray_job(target: Target) -> None:
    """Raise OrderError for a RayJob without shutdownAfterJobFinishes, which KubeRay fails if it is suspended."""
    assert target.document is not None
    ends = mapping(target.document.get("spec")).get("shutdownAfterJobFinishes") is True
    if target.resource is not None and target.resource.kind == "RayJob" and not ends:
        raise OrderError(
            f"{target.title} cannot be suspended: KubeRay fails a suspended RayJob unless its "
            "shutdownAfterJobFinishes is true"
        )


def _why_impossible(target: Target) -> str:
    if target.document is None or (target.resource is not None and target.resource.kind in ("PodGroup", "Pod")):
        return "its pods exist already and cannot get a scheduling gate, and no controller would recreate them"
    assert target.resource is not None
    return f"{target.resource.kind} of {target.resource.group or 'core'} has no field to suspend it"


async def _command(client: KubeClient, target: Target, action: str) -> None:
    """Create a Command of Volcano for a Volcano Job, owned by the job."""
    assert target.document is not None
    entry = JobEntry(kind="vcjob", namespace=target.namespace, name=name_of(target.document), uid=target.uid)
    try:
        await client.create(COMMANDS.path(target.namespace), command_to(entry, action))
    except ApiError as error:
        if error.status != 404:
            raise
        raise OrderError(
            f"{target.title}: this cluster does not have the kind Command of bus.volcano.sh/v1alpha1; "
            "install it with `phalanx install`"
        ) from error
