"""Validation of a Job's status: consistent fields, and immutability after the Job has finished."""

from __future__ import annotations

from typing import Any

from phalanx_local.validation.errors import FieldError, invalid, required

_FINISHED = ("Complete", "Failed")
_KEPT = ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet")


def check_job_status(errors: list[FieldError], item: dict[str, Any], old: dict[str, Any]) -> None:
    """Check a Job's status by the rules of Kubernetes 1.32 and later.

    The rules apply to statuses of external controllers only; this server's Job controller keeps them itself.
    """
    if (item.get("spec") or {}).get("managedBy") in (None, "kubernetes.io/job-controller"):
        return
    spec, status, before = item.get("spec") or {}, item.get("status") or {}, old.get("status") or {}
    true, were = _true(status), _true(before)
    _check_counts(errors, spec, status, before)
    errors.extend(
        invalid("status.conditions", None, f"cannot disable the terminal {kind}=True condition")
        for kind in _KEPT
        if kind in were and kind not in true
    )
    for one, other in (("Complete", "Failed"), ("Complete", "FailureTarget"), ("SuccessCriteriaMet", "Failed")):
        if {one, other} <= true:
            errors.append(invalid("status.conditions", None, f"cannot set {one}=True and {other}=true conditions"))
    # Older stored statuses can lack these fields; newly finished Jobs must have them.
    newly = true - were
    if "Failed" in newly and "FailureTarget" not in true:
        errors.append(invalid("status.conditions", None, "cannot set Failed=True without FailureTarget=true"))
    if "Complete" in newly and "SuccessCriteriaMet" not in true:
        errors.append(
            invalid("status.conditions", None, "cannot set Complete=True without SuccessCriteriaMet=true")
        )
    _check_times(errors, spec, status, before, true)
    if true.intersection(_FINISHED):
        errors.extend(
            invalid(f"status.{key}", status[key], f"{key}>0 is invalid for finished job")
            for key in ("active", "terminating")
            if status.get(key)
        )
        counted = status.get("uncountedTerminatedPods") or {}
        if counted.get("succeeded") or counted.get("failed"):
            errors.append(invalid("status.uncountedTerminatedPods", counted, "needs to be empty for finished job"))


def _check_counts(
    errors: list[FieldError], spec: dict[str, Any], status: dict[str, Any], before: dict[str, Any]
) -> None:
    errors.extend(
        invalid(f"status.{key}", status[key], "must be greater than or equal to 0")
        for key in ("active", "ready", "terminating", "succeeded", "failed")
        if (status.get(key) or 0) < 0
    )
    indexed = spec.get("completionMode") == "Indexed"
    elastic = indexed and spec.get("completions") == spec.get("parallelism")
    for key, may_fall in (("failed", False), ("succeeded", elastic)):
        if not may_fall and (status.get(key) or 0) < (before.get(key) or 0):
            errors.append(invalid(f"status.{key}", status.get(key), f"cannot decrease the {key} counter"))
    if (status.get("ready") or 0) > (status.get("active") or 0):
        errors.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
    if status.get("completedIndexes") and not indexed:
        errors.append(invalid("status.completedIndexes", status["completedIndexes"], "the Job is not indexed"))
    if status.get("failedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(invalid("status.failedIndexes", status["failedIndexes"], "backoffLimitPerIndex is null"))


def _check_times(
    errors: list[FieldError],
    spec: dict[str, Any],
    status: dict[str, Any],
    before: dict[str, Any],
    true: set[str],
) -> None:
    start, end = status.get("startTime"), status.get("completionTime")
    if true.intersection(_FINISHED) and not start:
        errors.append(required("status.startTime", "startTime is required for finished job"))
    if before.get("startTime") and start != before["startTime"] and not spec.get("suspend"):
        errors.append(required("status.startTime", "startTime cannot be removed for unsuspended job"))
    if start and end and end < start:
        errors.append(invalid("status.completionTime", end, "completionTime cannot be set before startTime"))
    if end and before.get("completionTime") and end != before["completionTime"]:
        errors.append(invalid("status.completionTime", end, "completionTime cannot be mutated"))
    if "Complete" in true and not end:
        errors.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if end and "Complete" not in true:
        errors.append(invalid("status.completionTime", end, "cannot be set without the Complete=True condition"))


def _true(status: dict[str, Any]) -> set[str]:
    return {each.get("type", "") for each in status.get("conditions") or () if each.get("status") == "True"}
