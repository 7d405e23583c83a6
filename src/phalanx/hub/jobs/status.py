"""Status of jobs' copies, copied to the job at the hub in a form that its API server accepts.

A member can return any status, and a job can have run in another cluster before. But the API server validates the
status of a batch Job: relations between its fields, and to its previous status. Fields that violate them are
removed or corrected here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub.jobs.kinds import COPY_LOST, JOB, JOB_SET, JobKind, at, wants_suspension
from phalanx.hub.objects import printable

Json = dict[str, Any]

_MOST_CONDITIONS = 32
_MOST_BYTES = 256 * 1024
_MOST_INDEXES = 64 * 1024
_COUNTS = ("active", "ready", "terminating", "succeeded", "failed")
#: Conditions that must not be removed later: each is written together with the end that it announces.
_ANNOUNCED = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}


def mirrored_status(kind: JobKind, copied: Json, origin: Json) -> Json:
    """Return the status to write to the job at the hub for its copy's status; repeated calls give the same
    status."""
    status = copied.get("status") or {}
    if kind is JOB:
        return _job_status(status, origin)
    if len(msgspec.json.encode(status)) <= _MOST_BYTES:
        return dict(status)
    short_fields = {
        key: status[key] for key in ("jobStatus", "jobDeploymentStatus", "state") if _short(status.get(key))
    }
    return {**short_fields, "conditions": list(_conditions(status))}


def has_news(kind: JobKind, copied: Json, origin: Json, last_written: Json | None) -> bool:
    """Return whether the status of the job at the hub has to be written.

    `last_written` is the last written status if the API server stored it in another form: it is not written twice.
    """
    mirrored = mirrored_status(kind, copied, origin)
    if mirrored == last_written:
        return False
    # The API server defaults missing fields of a Job.
    before = mirrored_status(kind, origin, origin) if kind is JOB else origin.get("status") or {}
    return mirrored != before


def lost_status(kind: JobKind, origin: Json, message: str) -> Json:
    """Return the failed status of a job whose copy was deleted with an unknown result."""
    now = format_time(int(time.time()))
    status = dict(origin.get("status") or {})
    other_conditions = [
        condition for condition in _conditions(status) if condition["type"] not in ("Failed", *_ANNOUNCED)
    ]
    failed: Json = {
        "type": "Failed",
        "status": "True",
        "reason": COPY_LOST,
        "message": message,
        "lastTransitionTime": now,
    }
    if kind is JOB:
        conditions = [*other_conditions, {**failed, "type": "FailureTarget"}, failed]
        return _job_status({**status, "conditions": conditions}, origin)
    if kind.endless:
        return {**status, "state": "failed", "reason": COPY_LOST}
    if kind.resource.group == "ray.io":
        return {**status, "jobDeploymentStatus": "Failed", "reason": COPY_LOST, "message": message}
    if kind is JOB_SET:
        status["terminalState"] = "Failed"
    elif kind.resource.group == "kubeflow.org":
        failed["lastUpdateTime"] = now
        other_conditions = [
            {**condition, "status": "False"} if condition["type"] == "Running" else condition
            for condition in other_conditions
        ]
    return {**status, "conditions": [*other_conditions, failed]}


def _job_status(status: Json, origin: Json) -> Json:
    before: Json = origin.get("status") or {}
    mirrored: Json = {key: status[key] for key in _COUNTS if _count(status.get(key))}
    for key in ("succeeded", "failed"):
        # A counter never falls, although a job that starts again in another cluster begins at 0.
        if (highest := max(mirrored.get(key, 0), before.get(key) or 0)) > 0:
            mirrored[key] = highest
    conditions = list(_conditions(status))
    ends = {condition["type"] for condition in conditions if condition["status"] == "True"} & {"Failed", "Complete"}
    end = "Failed" if "Failed" in ends else "Complete" if ends else ""
    mirrored["conditions"] = [condition for condition in conditions if _belongs(condition, end)]
    for cause, announced_end in _ANNOUNCED.items():
        present = any(
            (condition["type"], condition["status"]) == (cause, "True") for condition in mirrored["conditions"]
        )
        if announced_end == end and not present:
            source = next(condition for condition in mirrored["conditions"] if condition["type"] == end)
            mirrored["conditions"].append({**source, "type": cause})
    _put_times(mirrored, status, origin, end)
    if end:
        mirrored.pop("active", None)
        mirrored |= {key: 0 for key in ("ready", "terminating") if key in mirrored}
    elif mirrored.get("ready", 0) > mirrored.get("active", 0):
        mirrored["ready"] = mirrored.get("active", 0)
    _put_indexes(mirrored, status, origin)
    return mirrored


def _belongs(condition: Json, end: str) -> bool:
    kind = condition["type"]
    if kind in _ANNOUNCED:
        return _ANNOUNCED[kind] == end
    return kind not in ("Failed", "Complete") or kind == end


def _put_times(mirrored: Json, status: Json, origin: Json, end: str) -> None:
    """Set start and end in a job's status: the first start while the job is not suspended, an end only for a
    complete job."""
    before: Json = origin.get("status") or {}
    first, reported = _moment(before.get("startTime")), _moment(status.get("startTime"))
    start = (reported if wants_suspension(JOB, origin) else first or reported) or ""
    ended = next(
        (
            _moment(condition.get("lastTransitionTime"))
            for condition in mirrored["conditions"]
            if condition["type"] == end
        ),
        "",
    )
    if end and not start:
        start = first or _moment(status.get("completionTime")) or ended or format_time(int(time.time()))
    if start:
        mirrored["startTime"] = start
    if end == "Complete":
        completed = _moment(before.get("completionTime")) or _moment(status.get("completionTime")) or ended or start
        mirrored["completionTime"] = completed if parse_time(completed) >= parse_time(start) else start


def _put_indexes(mirrored: Json, status: Json, origin: Json) -> None:
    if at(origin, ("spec", "completionMode")) != "Indexed":
        return
    for key in ("completedIndexes", "failedIndexes"):
        text = status.get(key)
        if key == "failedIndexes" and at(origin, ("spec", "backoffLimitPerIndex")) is None:
            continue
        if isinstance(text, str) and len(text) <= _MOST_INDEXES and set(text) <= set("0123456789,-"):
            mirrored[key] = text


def _conditions(status: Json) -> Iterator[Json]:
    """Yield the valid conditions of a job's status, each type once."""
    listed, seen = status.get("conditions"), set()
    for entry in listed[:_MOST_CONDITIONS] if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or not _short(entry.get("type")) or entry["type"] in seen:
            continue
        if entry.get("status") not in ("True", "False", "Unknown"):
            continue
        seen.add(entry["type"])
        condition: Json = {"type": entry["type"], "status": entry["status"]}
        for key in ("lastTransitionTime", "lastProbeTime", "lastUpdateTime"):
            if moment := _moment(entry.get(key)):
                condition[key] = moment
        if _short(entry.get("reason")):
            condition["reason"] = entry["reason"]
        if isinstance(entry.get("message"), str):
            condition["message"] = printable(entry["message"], 1024)
        yield condition


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _short(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 316 and value.isprintable()


def _moment(value: object) -> str:
    """Format a valid time as in the API, "" for any other value."""
    return (
        format_time(moment) if isinstance(value, str) and len(value) < 64 and (moment := parse_time(value)) else ""
    )
