"""ResourceBindings of Karmada: which are to be scheduled here, and what is written into them. Pure.

As Karmada has it for a scheduler that is not its own: a binding whose `spec.schedulerName` names it is touched by
no other scheduler, the result goes into `spec.clusters`, and what was done into the status.
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
#: What a policy names in `spec.schedulerName`.
SCHEDULER = "phalanx"
#: Karmada's: the placement that the result is for, from which it reads tolerations when it evicts.
APPLIED_PLACEMENT = "policy.karmada.io/applied-placement"
#: Ours, on the binding: what each cluster said, and when the chosen one was to start it.
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
    """What a binding needs of its scheduler."""

    LEAVE = "leave"
    CHOOSE = "choose"
    CONFIRM = "confirm"


def is_ours(binding: Json) -> bool:
    return bool(at(binding, ("spec", "schedulerName")) == SCHEDULER)


def next_step(binding: Json, clusters: Mapping[str, StoredObject]) -> Step:
    """`clusters` are all of Karmada's by name.

    What has a cluster stays there, unless the cluster has left Karmada, or the policy has been changed since and
    does not allow it any more. An eviction takes the cluster out of `spec.clusters`: then one is chosen anew."""
    if not is_ours(binding) or at(binding, ("metadata", "deletionTimestamp")) is not None:
        return Step.LEAVE
    if at(binding, ("spec", "suspension", "scheduling")) is True:
        return Step.LEAVE
    there = [clusters[name] for name in targets(binding) if name in clusters]
    there = [each for each in there if at(each.document, ("metadata", "deletionTimestamp")) is None]
    if not there:
        return Step.CHOOSE
    placement = at(binding, ("spec", "placement"))
    if placement_changed(binding) and not any(group_of(placement, each.document) for each in there):
        return Step.CHOOSE
    return Step.CONFIRM


def targets(binding: Json) -> list[str]:
    """Where it has been sent."""
    return [str(each.get("name")) for each in _objects(at(binding, ("spec", "clusters")))]


def placement_changed(binding: Json) -> bool:
    """Whether the policy is another than the result was made for; unknown counts as not."""
    stated = at(binding, ("metadata", "annotations", APPLIED_PLACEMENT))
    if not isinstance(stated, str):
        return False
    try:
        return bool(msgspec.json.decode(stated) != at(binding, ("spec", "placement")))
    except msgspec.DecodeError:
        return True


def asks_to_move(binding: Json) -> str:
    """The moment at which somebody has asked to schedule it anew, of what has a cluster; "" where nobody has."""
    asked = at(binding, ("spec", "rescheduleTriggeredAt"))
    return asked if isinstance(asked, str) and _moment(asked) > _moment(_last(binding)) > 0 else ""


def promised_later(binding: Json, now: float) -> bool:
    """Whether it was sent to wait for a start that is still to come."""
    return bool(targets(binding)) and _moment(at(binding, ("metadata", "annotations", PROMISED))) > now


def applied(binding: Json, cluster: str) -> bool:
    """Whether Karmada says that the cluster has it and has begun to work on it."""
    for each in _objects(at(binding, ("status", "aggregatedStatus"))):
        if each.get("clusterName") == cluster:
            return each.get("applied") is True and bool(each.get("status"))
    return False


# -- what is written ----------------------------------------------------------------------------------------------


def result(binding: Json, cluster: str, answers: Iterable[Candidate], promised: str) -> Json:
    """The merge patch that sends it there, of the version that was read."""
    notes = {APPLIED_PLACEMENT: _placement(binding), ANSWERS: answers_text(answers), PROMISED: promised or None}
    return {
        "metadata": {**precise(binding), "annotations": notes},
        "spec": {"clusters": [_target(binding, cluster)]},
    }


def upkeep(binding: Json) -> Json | None:
    """The merge patch that follows the policy and the template where it is; None where nothing differs.

    Karmada writes as many replicas into the cluster's copy as the result says, so a template that is scaled needs
    another result."""
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
    """All replicas in one cluster. Of a template of several components Karmada revises none."""
    replicas, components = at(binding, ("spec", "replicas")), _objects(at(binding, ("spec", "components")))
    if isinstance(replicas, int) and replicas > 0 and len(components) <= 1:
        return {"name": cluster, "replicas": replicas}
    return {"name": cluster}


def confirmation(binding: Json, clusters: Mapping[str, StoredObject], now: float) -> Json | None:
    """The merge patch of the status that says what has been done; None where it says so already."""
    status = binding.get("status") or {}
    condition = _condition("True", SUCCESS, _SUCCEEDED, now)
    generation = at(binding, ("metadata", "generation"))
    known = _scheduled(status)
    if status.get("schedulerObservedGeneration") == generation and _same(known, condition):
        return None
    made: Json = {"schedulerObservedGeneration": generation}
    if not _same(known, condition):
        made |= {"conditions": _with(status, condition), "lastScheduledTime": format_time(now)}
    elif not _last(binding):
        made["lastScheduledTime"] = format_time(now)
    placement = at(binding, ("spec", "placement"))
    chosen = next((clusters[name] for name in targets(binding) if name in clusters), None)
    group = group_of(placement, chosen.document) if chosen is not None else None
    if group is not None and group.name and status.get("schedulerObservingAffinityName") != group.name:
        made["schedulerObservingAffinityName"] = group.name
    return {"metadata": precise(binding), "status": made}


def failure(binding: Json, reason: str, message: str, now: float) -> Json | None:
    """The merge patch of the status that says why it goes nowhere; None where it says so already."""
    status = binding.get("status") or {}
    condition = _condition("False", reason, printable(message, _MOST_TEXT), now)
    if _same(_scheduled(status), condition):
        return None
    return {"metadata": precise(binding), "status": {"conditions": _with(status, condition)}}


def precise(binding: Json) -> Json:
    """Of the version that was read: who has written since is looked at first."""
    metadata = binding["metadata"]
    return {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}


def answers_text(answers: Iterable[Candidate]) -> str:
    """What each cluster said, for whoever reads the binding."""
    return printable("; ".join(map(_answer_text, answers)), _MOST_TEXT)


def _answer_text(each: Candidate) -> str:
    if each.start is not None:
        return f"{each.name}: starts {format_time(each.start)}"
    return f"{each.name}: {'not' if each.never else 'cannot say'} ({each.message or 'no reason given'})"


def _placement(binding: Json) -> str:
    return msgspec.json.encode(at(binding, ("spec", "placement")) or {}).decode()


def _condition(status: str, reason: str, message: str, now: float) -> Json:
    told = {"type": SCHEDULED, "status": status, "reason": reason, "message": message}
    return {**told, "lastTransitionTime": format_time(now)}


def _scheduled(status: Json) -> Json | None:
    return next((each for each in _objects(status.get("conditions")) if each.get("type") == SCHEDULED), None)


def _same(known: Json | None, wanted: Json) -> bool:
    if known is None or known.get("status") != wanted["status"] or known.get("reason") != wanted["reason"]:
        return False
    # Of a success the words do not matter: they may be those of another scheduler.
    return bool(wanted["reason"] == SUCCESS or known.get("message") == wanted["message"])


def _with(status: Json, condition: Json) -> list[Json]:
    known = _scheduled(status)
    if known is not None and known.get("status") == condition["status"]:
        condition = {**condition, "lastTransitionTime": known.get("lastTransitionTime")}
    others = [each for each in _objects(status.get("conditions")) if each.get("type") != SCHEDULED]
    return [*others, condition]


def _last(binding: Json) -> str:
    return str(at(binding, ("status", "lastScheduledTime")) or "")


def _moment(text: object) -> float:
    try:
        return parse_time(str(text or ""))
    except ValueError:
        return 0.0


def _objects(listed: object) -> list[Json]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
