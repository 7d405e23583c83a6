"""What of a copied job's status becomes that of the job at the hub, in a form that its API server takes.

A member may answer anything, and a job may have run elsewhere before; but the status of a batch Job has rules
between its parts, and between what it was and what it is to be. What breaks one is left out or put right here.
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
#: Conditions that no later status may take back: they are told with the end that they announce.
_ANNOUNCED = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}


def mirrored_status(kind: JobKind, copied: Json, origin: Json) -> Json:
    """The status to write at the hub for a copy as it is; writing it twice changes nothing."""
    status = copied.get("status") or {}
    if kind is JOB:
        return _job_status(status, origin)
    if len(msgspec.json.encode(status)) <= _MOST_BYTES:
        return dict(status)
    kept = {key: status[key] for key in ("jobStatus", "jobDeploymentStatus", "state") if _short(status.get(key))}
    return {**kept, "conditions": list(_conditions(status))}


def has_news(kind: JobKind, copied: Json, origin: Json, told: Json | None) -> bool:
    """Whether the status at the hub is to be written. `told` is what was written last, where the API server has
    kept something else of it: nobody writes that again and again."""
    made = mirrored_status(kind, copied, origin)
    if made == told:
        return False
    # (Of a Job it fills in what is not stated.)
    before = mirrored_status(kind, origin, origin) if kind is JOB else origin.get("status") or {}
    return made != before


def lost_status(kind: JobKind, origin: Json, message: str) -> Json:
    """The status of a job whose copy is gone, and nobody knows how it ended: it has failed."""
    told = format_time(int(time.time()))
    status = dict(origin.get("status") or {})
    others = [each for each in _conditions(status) if each["type"] not in ("Failed", *_ANNOUNCED)]
    failed: Json = {
        "type": "Failed",
        "status": "True",
        "reason": COPY_LOST,
        "message": message,
        "lastTransitionTime": told,
    }
    if kind is JOB:
        conditions = [*others, {**failed, "type": "FailureTarget"}, failed]
        return _job_status({**status, "conditions": conditions}, origin)
    if kind.endless:
        return {**status, "state": "failed", "reason": COPY_LOST}
    if kind.resource.group == "ray.io":
        return {**status, "jobDeploymentStatus": "Failed", "reason": COPY_LOST, "message": message}
    if kind is JOB_SET:
        status["terminalState"] = "Failed"
    elif kind.resource.group == "kubeflow.org":
        failed["lastUpdateTime"] = told
        others = [{**each, "status": "False"} if each["type"] == "Running" else each for each in others]
    return {**status, "conditions": [*others, failed]}


def _job_status(status: Json, origin: Json) -> Json:
    before: Json = origin.get("status") or {}
    made: Json = {key: status[key] for key in _COUNTS if _count(status.get(key))}
    for key in ("succeeded", "failed"):
        # A counter never falls, though a job that starts anew elsewhere begins at none.
        if (most := max(made.get(key, 0), before.get(key) or 0)) > 0:
            made[key] = most
    conditions = list(_conditions(status))
    ends = {each["type"] for each in conditions if each["status"] == "True"} & {"Failed", "Complete"}
    end = "Failed" if "Failed" in ends else "Complete" if ends else ""
    made["conditions"] = [each for each in conditions if _belongs(each, end)]
    for cause, told in _ANNOUNCED.items():
        there = any((each["type"], each["status"]) == (cause, "True") for each in made["conditions"])
        if told == end and not there:
            source = next(each for each in made["conditions"] if each["type"] == end)
            made["conditions"].append({**source, "type": cause})
    _put_times(made, status, origin, end)
    if end:
        made.pop("active", None)
        made |= {key: 0 for key in ("ready", "terminating") if key in made}
    elif made.get("ready", 0) > made.get("active", 0):
        made["ready"] = made.get("active", 0)
    _put_indexes(made, status, origin)
    return made


def _belongs(condition: Json, end: str) -> bool:
    kind = condition["type"]
    if kind in _ANNOUNCED:
        return _ANNOUNCED[kind] == end
    return kind not in ("Failed", "Complete") or kind == end


def _put_times(made: Json, status: Json, origin: Json, end: str) -> None:
    """The start stays the first while the job is not suspended; what is complete has an end, and nothing else."""
    before: Json = origin.get("status") or {}
    first, told = _moment(before.get("startTime")), _moment(status.get("startTime"))
    start = (told if wants_suspension(JOB, origin) else first or told) or ""
    ended = next(
        (_moment(each.get("lastTransitionTime")) for each in made["conditions"] if each["type"] == end), ""
    )
    if end and not start:
        start = first or _moment(status.get("completionTime")) or ended or format_time(int(time.time()))
    if start:
        made["startTime"] = start
    if end == "Complete":
        completed = _moment(before.get("completionTime")) or _moment(status.get("completionTime")) or ended or start
        made["completionTime"] = completed if parse_time(completed) >= parse_time(start) else start


def _put_indexes(made: Json, status: Json, origin: Json) -> None:
    if at(origin, ("spec", "completionMode")) != "Indexed":
        return
    for key in ("completedIndexes", "failedIndexes"):
        text = status.get(key)
        if key == "failedIndexes" and at(origin, ("spec", "backoffLimitPerIndex")) is None:
            continue
        if isinstance(text, str) and len(text) <= _MOST_INDEXES and set(text) <= set("0123456789,-"):
            made[key] = text


def _conditions(status: Json) -> Iterator[Json]:
    """Those that are conditions, each type once."""
    listed, seen = status.get("conditions"), set()
    for each in listed[:_MOST_CONDITIONS] if isinstance(listed, list) else ():
        if not isinstance(each, dict) or not _short(each.get("type")) or each["type"] in seen:
            continue
        if each.get("status") not in ("True", "False", "Unknown"):
            continue
        seen.add(each["type"])
        found: Json = {"type": each["type"], "status": each["status"]}
        for key in ("lastTransitionTime", "lastProbeTime", "lastUpdateTime"):
            if moment := _moment(each.get(key)):
                found[key] = moment
        if _short(each.get("reason")):
            found["reason"] = each["reason"]
        if isinstance(each.get("message"), str):
            found["message"] = printable(each["message"], 1024)
        yield found


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _short(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 316 and value.isprintable()


def _moment(value: object) -> str:
    """The text of a time, "" for what is none."""
    return format_time(found) if isinstance(value, str) and len(value) < 64 and (found := parse_time(value)) else ""
