"""ResourceBindings of Karmada: selection of those scheduled here, and the patches that are written. No I/O.

Karmada's contract for external schedulers: a binding is processed only by the scheduler in its
`spec.schedulerName`, the result is written to `spec.clusters`, and the outcome to the status.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.jobs.kinds import at
from phalanx.hub.karmada.placement import group_of
from phalanx.hub.objects import StoredObject, printable
from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_time, parse_time

Json = dict[str, Any]

BINDINGS = Resource("work.karmada.io", "v1alpha2", "resourcebindings", "ResourceBinding")
CLUSTERS = Resource("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", namespaced=False)
#: Value of `spec.schedulerName` in a policy.
SCHEDULER = "phalanx"
#: Karmada's annotation with the placement of the result; Karmada reads tolerations from it for evictions.
APPLIED_PLACEMENT = "policy.karmada.io/applied-placement"
#: Our annotations of the binding: the answers of all clusters, and the promised start of the chosen one.
ANSWERS = "phalanx.dev/answers"
PROMISED = "phalanx.dev/promised-start"
SCHEDULED = "Scheduled"
#: Reasons of that condition, in Karmada's words.
SUCCESS = "Success"
NO_CLUSTER_FIT = "NoClusterFit"
UNSCHEDULABLE = "Unschedulable"
QUOTA_EXCEEDED = "QuotaExceeded"
SCHEDULER_ERROR = "SchedulerError"
_SUCCEEDED = "Binding has been scheduled successfully."
_MOST_TEXT = 1000


class Step(enum.Enum):
    """Action that a ResourceBinding needs from its scheduler."""

    LEAVE = "leave"
    CHOOSE = "choose"
    CONFIRM = "confirm"


def is_ours(binding: Json) -> bool:
    return bool(at(binding, ("spec", "schedulerName")) == SCHEDULER)


def next_step(binding: Json, clusters: Mapping[str, StoredObject]) -> Step:
    """Return the next action for a ResourceBinding; `clusters` are all of Karmada's clusters by name.

    A scheduled binding keeps its cluster unless the cluster has left Karmada, or a changed policy no longer allows
    it. An eviction removes the cluster from `spec.clusters`: then another is chosen.
    """
    if not is_ours(binding) or at(binding, ("metadata", "deletionTimestamp")) is not None:
        return Step.LEAVE
    if at(binding, ("spec", "suspension", "scheduling")) is True:
        return Step.LEAVE
    present = [clusters[name] for name in targets(binding) if name in clusters]
    present = [cluster for cluster in present if at(cluster.document, ("metadata", "deletionTimestamp")) is None]
    if not present:
        return Step.CHOOSE
    placement = at(binding, ("spec", "placement"))
    if placement_changed(binding) and not any(group_of(placement, cluster.document) for cluster in present):
        return Step.CHOOSE
    return Step.CONFIRM


def targets(binding: Json) -> list[str]:
    """Return the clusters in a binding's scheduling result."""
    return [str(target.get("name")) for target in _objects(at(binding, ("spec", "clusters")))]


def placement_changed(binding: Json) -> bool:
    """Return whether the binding's policy differs from the one at its last scheduling; False if that is unknown."""
    stated = at(binding, ("metadata", "annotations", APPLIED_PLACEMENT))
    if not isinstance(stated, str):
        return False
    try:
        return bool(msgspec.json.decode(stated) != at(binding, ("spec", "placement")))
    except msgspec.DecodeError:
        return True


def asks_to_move(binding: Json) -> str:
    """Return the time of a user's request to reschedule a scheduled binding; "" without one."""
    requested = at(binding, ("spec", "rescheduleTriggeredAt"))
    return requested if isinstance(requested, str) and _moment(requested) > _moment(_last(binding)) > 0 else ""


def promised_later(binding: Json, now: float) -> bool:
    """Return whether the binding was sent to a cluster where it waits for a future start."""
    return bool(targets(binding)) and _moment(at(binding, ("metadata", "annotations", PROMISED))) > now


def applied(binding: Json, cluster: str) -> bool:
    """Return whether Karmada reports the binding as applied in the cluster, with a status."""
    for item in _objects(at(binding, ("status", "aggregatedStatus"))):
        if item.get("clusterName") == cluster:
            return item.get("applied") is True and bool(item.get("status"))
    return False


# -- patches -----------------------------------------------------------------------------------------------


def result(binding: Json, cluster: str, answers: Iterable[Candidate], promised: str) -> Json:
    """Return the merge patch that schedules the binding to a cluster, based on the read version."""
    notes = {APPLIED_PLACEMENT: _placement(binding), ANSWERS: answers_text(answers), PROMISED: promised or None}
    return {
        "metadata": {**precise(binding), "annotations": notes},
        "spec": {"clusters": [_target(binding, cluster)]},
    }


def upkeep(binding: Json) -> Json | None:
    """Return the merge patch that adapts a binding's scheduling result to its policy and template; None if nothing
    differs.

    Karmada copies the replicas of the result into the cluster, so a scaled template needs a new result.
    """
    patch: Json = {"metadata": precise(binding)}
    annotated = at(binding, ("metadata", "annotations", APPLIED_PLACEMENT))
    if annotated is None or placement_changed(binding):
        patch["metadata"]["annotations"] = {APPLIED_PLACEMENT: _placement(binding)}
    present = _objects(at(binding, ("spec", "clusters")))
    if len(present) == 1:
        target = _target(binding, str(present[0].get("name")))
        if target.get("replicas", 0) != present[0].get("replicas", 0):
            patch["spec"] = {"clusters": [target]}
    return patch if "spec" in patch or "annotations" in patch["metadata"] else None


def _target(binding: Json, cluster: str) -> Json:
    """Return the scheduling result with all replicas in one cluster. Karmada revises no template with several
    components."""
    replicas, components = at(binding, ("spec", "replicas")), _objects(at(binding, ("spec", "components")))
    if isinstance(replicas, int) and replicas > 0 and len(components) <= 1:
        return {"name": cluster, "replicas": replicas}
    return {"name": cluster}


def confirmation(binding: Json, clusters: Mapping[str, StoredObject], now: float) -> Json | None:
    """Return the merge patch of the status for a scheduled binding; None if it is up to date."""
    status = binding.get("status") or {}
    condition = _condition("True", SUCCESS, _SUCCEEDED, now)
    generation = at(binding, ("metadata", "generation"))
    known = _scheduled(status)
    if status.get("schedulerObservedGeneration") == generation and _same(known, condition):
        return None
    new_status: Json = {"schedulerObservedGeneration": generation}
    if not _same(known, condition):
        new_status |= {"conditions": _with(status, condition), "lastScheduledTime": format_time(now)}
    elif not _last(binding):
        new_status["lastScheduledTime"] = format_time(now)
    placement = at(binding, ("spec", "placement"))
    chosen = next((clusters[name] for name in targets(binding) if name in clusters), None)
    group = group_of(placement, chosen.document) if chosen is not None else None
    if group is not None and group.name and status.get("schedulerObservingAffinityName") != group.name:
        new_status["schedulerObservingAffinityName"] = group.name
    return {"metadata": precise(binding), "status": new_status}


def failure(binding: Json, reason: str, message: str, now: float) -> Json | None:
    """Return the merge patch of the binding's status with the reason of a failure; None if it is up to date."""
    status = binding.get("status") or {}
    condition = _condition("False", reason, printable(message, _MOST_TEXT), now)
    if _same(_scheduled(status), condition):
        return None
    return {"metadata": precise(binding), "status": {"conditions": _with(status, condition)}}


def precise(binding: Json) -> Json:
    """Return the uid and resourceVersion that bind a patch to the read version of a binding."""
    metadata = binding["metadata"]
    return {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}


def answers_text(answers: Iterable[Candidate]) -> str:
    """Format the forecasts of all clusters as one line."""
    return printable("; ".join(map(_answer_text, answers)), _MOST_TEXT)


def _answer_text(answer: Candidate) -> str:
    if answer.start is not None:
        return f"{answer.name}: starts {format_time(answer.start)}"
    return f"{answer.name}: {'never' if answer.never else 'start unknown'} ({answer.message or 'no reason given'})"


def _placement(binding: Json) -> str:
    return msgspec.json.encode(at(binding, ("spec", "placement")) or {}).decode()


def _condition(status: str, reason: str, message: str, now: float) -> Json:
    condition = {"type": SCHEDULED, "status": status, "reason": reason, "message": message}
    return {**condition, "lastTransitionTime": format_time(now)}


def _scheduled(status: Json) -> Json | None:
    return next(
        (condition for condition in _objects(status.get("conditions")) if condition.get("type") == SCHEDULED), None
    )


def _same(known: Json | None, wanted: Json) -> bool:
    if known is None or known.get("status") != wanted["status"] or known.get("reason") != wanted["reason"]:
        return False
    # The message of a success is ignored: another scheduler could have written it.
    return bool(wanted["reason"] == SUCCESS or known.get("message") == wanted["message"])


def _with(status: Json, condition: Json) -> list[Json]:
    known = _scheduled(status)
    if known is not None and known.get("status") == condition["status"]:
        condition = {**condition, "lastTransitionTime": known.get("lastTransitionTime")}
    other_conditions = [entry for entry in _objects(status.get("conditions")) if entry.get("type") != SCHEDULED]
    return [*other_conditions, condition]


def _last(binding: Json) -> str:
    return str(at(binding, ("status", "lastScheduledTime")) or "")


def _moment(text: object) -> float:
    try:
        return parse_time(str(text or ""))
    except ValueError:
        return 0.0


def _objects(listed: object) -> list[Json]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
