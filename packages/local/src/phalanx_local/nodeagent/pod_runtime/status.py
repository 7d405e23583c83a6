"""Status of a pod as its node reports it: a strategic merge patch for the status subresource."""

from __future__ import annotations

from typing import Any

from phalanx.kube.timestamps import format_time
from phalanx_local.nodeagent.pod_runtime.containers import ContainerKind, ContainerRun, Ended
from phalanx_local.nodeagent.pod_runtime.lifecycle import PodLifecycle, PodStage, StopCause

_DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
_DRAIN_MESSAGE = "Pod was terminated in response to imminent node shutdown."


def status_patch(life: PodLifecycle, now: float, host_ip: str) -> dict[str, Any]:
    """Return the complete status from the node, with the pod's uid as a precondition.

    Conditions merge by type, so conditions of other writers (PodScheduled, readiness gates) are preserved; lists
    of container statuses are replaced. The transition time of each condition is stored in `life.conditions`.
    """
    return {"metadata": {"uid": life.uid}, "status": _status(life, now, host_ip)}


def _status(life: PodLifecycle, now: float, host_ip: str) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": life.phase, "startTime": format_time(life.start_time)}
    generation = life.pod.metadata.generation
    if generation is not None:
        status["observedGeneration"] = generation
    scheduled = _scheduled(life, now)
    if life.rejection is not None:
        if scheduled:
            status["conditions"] = scheduled
        status |= {"reason": life.rejection.reason, "message": life.rejection.message}
        return status
    if life.finished and life.cause is StopCause.DEADLINE:
        status |= {"reason": "DeadlineExceeded", "message": _DEADLINE_MESSAGE}
    elif life.finished and life.cause is StopCause.DRAINED:
        status |= {"reason": "Terminated", "message": _DRAIN_MESSAGE}
    if host_ip:
        status |= {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if life.pod_ip:
        status |= {"podIP": life.pod_ip, "podIPs": [{"ip": life.pod_ip}]}
    status["conditions"] = scheduled + _conditions(life, now)
    if life.inits:
        status["initContainerStatuses"] = [_container_status(life, run) for run in life.inits]
    status["containerStatuses"] = [_container_status(life, run) for run in life.mains]
    return status


def _scheduled(life: PodLifecycle, now: float) -> list[dict[str, Any]]:
    """Return the condition PodScheduled for a pod created with nodeName: such a pod has no binding that sets the
    condition."""
    if any(c.type == "PodScheduled" and c.status == "True" for c in life.pod.status.conditions or ()):
        return []
    return [_condition(life, now, "PodScheduled", True, "", "")]


def _conditions(life: PodLifecycle, now: float) -> list[dict[str, Any]]:
    serving = [run for run in life.runs if run.kind is not ContainerKind.INIT]
    unready = [run.name for run in serving if not run.running]
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(life.phase, "")
    waiting_inits = [run.name for run in life.inits if run.kind is ContainerKind.INIT and run.ended is None]
    not_ready = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    gates = _closed_gates(life)
    facts: list[tuple[str, bool, str, str]] = [
        ("PodReadyToStartContainers", life.stage is not PodStage.DONE, "", ""),
        (
            "Initialized",
            life.initialized,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(waiting_inits)}]",
        ),
        ("ContainersReady", not unready, *((done, "") if done else not_ready)),
    ]
    if done or unready:
        facts.append(("Ready", False, *((done, "") if done else not_ready)))
    else:
        facts.append(("Ready", not gates, "ReadinessGatesNotReady", "; ".join(gates)))
    if life.cause is StopCause.DRAINED:
        facts.append(("DisruptionTarget", True, "TerminationByKubelet", _DRAIN_MESSAGE))
    pending = life.resize_pending
    if pending is not None and not done:
        facts.append(("PodResizePending", True, pending.reason, pending.message))
    conditions = [_condition(life, now, *fact) for fact in facts]
    if pending is None and "PodResizePending" in life.conditions:
        del life.conditions["PodResizePending"]
        conditions.append({"type": "PodResizePending", "$patch": "delete"})
    return conditions


def _condition(life: PodLifecycle, now: float, kind: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    status = "True" if holds else "False"
    before = life.conditions.get(kind)
    since = before[1] if before is not None and before[0] == status else now
    life.conditions[kind] = (status, since)
    # Under strategic merge, an empty text erases the text of an earlier status, like null.
    explained = not holds or kind in ("DisruptionTarget", "PodResizePending")
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        "lastTransitionTime": format_time(since),
        "reason": reason if explained and reason else None,
        "message": message if explained and message else None,
    }
    if life.pod.metadata.generation is not None:
        condition["observedGeneration"] = life.pod.metadata.generation
    return condition


def _closed_gates(life: PodLifecycle) -> list[str]:
    statuses = {condition.type: condition.status for condition in life.pod.status.conditions or ()}
    return [
        f"readiness gate {gate.condition_type} is {statuses.get(gate.condition_type, 'missing')}, not True"
        for gate in life.pod.spec.readiness_gates or ()
        if statuses.get(gate.condition_type) != "True"
    ]


def _container_status(life: PodLifecycle, run: ContainerRun) -> dict[str, Any]:
    ready = (
        run.running if run.kind is not ContainerKind.INIT else run.ended is not None and run.ended.exit_code == 0
    )
    identity = f"phalanx://{life.uid}/{run.name}/{run.restarts}"
    status: dict[str, Any] = {
        "name": run.name,
        "image": run.spec.image,
        "imageID": "",
        "ready": ready,
        "started": run.running,
        "restartCount": run.restarts,
        "state": _state(life, run, identity),
    }
    if run.last is not None:
        earlier = f"phalanx://{life.uid}/{run.name}/{max(0, run.restarts - (not run.waiting))}"
        status["lastState"] = {"terminated": _terminated(run.last, earlier)}
    if run.ever_started:
        status["containerID"] = identity
        given = (life.granted or life.stated_resources)[run.name]
        amounts = {"requests": given.requests, "limits": given.limits}
        status["resources"] = {kind: stated for kind, stated in amounts.items() if stated}
        if given.requests:
            status["allocatedResources"] = given.requests
    return status


def _state(life: PodLifecycle, run: ContainerRun, identity: str) -> dict[str, Any]:
    if run.started is not None:
        return {"running": {"startedAt": format_time(run.started)}}
    if run.ended is not None:
        return {"terminated": _terminated(run.ended, identity)}
    if run.refusal is not None:
        return {"waiting": {"reason": run.refusal[0], "message": run.refusal[1]}}
    if run.last is not None:
        return {"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off restarting container {run.name}"}}
    starting = run.kind is ContainerKind.MAIN and life.initialized
    return {"waiting": {"reason": "ContainerCreating" if starting or not life.inits else "PodInitializing"}}


def _terminated(ended: Ended, identity: str) -> dict[str, Any]:
    state: dict[str, Any] = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "finishedAt": format_time(ended.finished),
        "containerID": identity,
    }
    if ended.started is not None:
        state["startedAt"] = format_time(ended.started)
    if ended.message:
        state["message"] = ended.message
    return state
