"""Controllers of pods, budgets and gangs as `kubectl get` shows them."""

from __future__ import annotations

from typing import Any

from phalanx.local.clock import parse_timestamp
from phalanx.local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx.local.printers.base import (
    AGE,
    NAME,
    NONE,
    Printer,
    age,
    column,
    human_duration,
    joined,
    labels_text,
    since,
)

_CONTAINERS = column("Containers", priority=1)
_IMAGES = column("Images", priority=1)
_SELECTOR = column("Selector", priority=1)


def _name(obj: Json) -> str:
    return text(metadata(obj).get("name"))


def _wide(obj: Json) -> list[str]:
    template = mapping(dig(obj, "spec", "template", "spec"))
    found = [mapping(item) for item in sequence(template.get("containers"))]
    return [
        ",".join(text(item.get("name")) for item in found),
        ",".join(text(item.get("image")) for item in found),
        selector_text(dig(obj, "spec", "selector")),
    ]


def selector_text(selector: Any) -> str:
    """A label selector, or a plain map of labels, in the query syntax."""
    found = mapping(selector)
    if "matchLabels" not in found and "matchExpressions" not in found:
        return labels_text(found)
    parts = [f"{key}={value}" for key, value in sorted(mapping(found.get("matchLabels")).items())]
    for item in map(mapping, sequence(found.get("matchExpressions"))):
        key, operator = text(item.get("key")), text(item.get("operator"))
        values = ",".join(sorted(text(value) for value in sequence(item.get("values"))))
        if operator == "Exists":
            parts.append(key)
        elif operator == "DoesNotExist":
            parts.append(f"!{key}")
        else:
            parts.append(f"{key} {operator.lower()} ({values})")
    return ",".join(parts) or NONE


def _deployment(obj: Json, now: float) -> list[Any]:
    status = mapping(obj.get("status"))
    wanted = dig(obj, "spec", "replicas") or 0
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{wanted}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj, now),
        *_wide(obj),
    ]


DEPLOYMENT_PRINTER = Printer(
    (
        NAME,
        column("Ready"),
        column("Up-to-date", "integer"),
        column("Available", "integer"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    _deployment,
)


def _replica_set(obj: Json, now: float) -> list[Any]:
    status = mapping(obj.get("status"))
    return [
        _name(obj),
        dig(obj, "spec", "replicas") or 0,
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(obj, now),
        *_wide(obj),
    ]


REPLICA_SET_PRINTER = Printer(
    (
        NAME,
        column("Desired", "integer"),
        column("Current", "integer"),
        column("Ready", "integer"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    _replica_set,
)

STATEFUL_SET_PRINTER = Printer(
    (NAME, column("Ready"), AGE, _CONTAINERS, _IMAGES),
    lambda obj, now: [
        _name(obj),
        f"{mapping(obj.get('status')).get('readyReplicas', 0)}/{dig(obj, 'spec', 'replicas') or 0}",
        age(obj, now),
        *_wide(obj)[:2],
    ],
)


def _job(obj: Json, now: float) -> list[Any]:
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = spec.get("parallelism", 1)
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    start, end = parse_timestamp(status.get("startTime")), parse_timestamp(status.get("completionTime"))
    duration = human_duration((end if end is not None else now) - start) if start is not None else ""
    return [_name(obj), _job_status(obj), completions, duration, age(obj, now), *_wide(obj)]


def _job_status(obj: Json) -> str:
    true = {
        mapping(item).get("type")
        for item in sequence(dig(obj, "status", "conditions"))
        if mapping(item).get("status") == "True"
    }
    for condition, word in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition in true:
            return word
    return "Terminating" if "deletionTimestamp" in metadata(obj) else "Running"


JOB_PRINTER = Printer(
    (
        NAME,
        column("Status"),
        column("Completions"),
        column("Duration"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    _job,
)

CRON_JOB_PRINTER = Printer(
    (
        NAME,
        column("Schedule"),
        column("Suspend", "boolean"),
        column("Active", "integer"),
        column("Last Schedule"),
        AGE,
    ),
    lambda obj, now: [
        _name(obj),
        text(dig(obj, "spec", "schedule")),
        dig(obj, "spec", "suspend") is True,
        len(sequence(dig(obj, "status", "active"))),
        since(dig(obj, "status", "lastScheduleTime"), now) if dig(obj, "status", "lastScheduleTime") else NONE,
        age(obj, now),
    ],
)


def _shown(value: Any) -> str:
    return "N/A" if value is None else str(value)


BUDGET_PRINTER = Printer(
    (NAME, column("Min Available"), column("Max Unavailable"), column("Allowed Disruptions", "integer"), AGE),
    lambda obj, now: [
        _name(obj),
        _shown(dig(obj, "spec", "minAvailable")),
        _shown(dig(obj, "spec", "maxUnavailable")),
        dig(obj, "status", "disruptionsAllowed") or 0,
        age(obj, now),
    ],
)


def _policy(policy: Json) -> str:
    gang = mapping(policy.get("gang"))
    return f"Gang({gang.get('minCount', 0)})" if "gang" in policy else "Basic"


def _pod_group(obj: Json, now: float) -> list[Any]:
    conditions = [mapping(item) for item in sequence(dig(obj, "status", "conditions"))]
    scheduled = [
        item for item in conditions if item.get("type") in ("PodGroupScheduled", "PodGroupInitiallyScheduled")
    ]
    workload = dig(obj, "spec", "podGroupTemplateRef", "workload", "workloadName") or dig(
        obj, "spec", "workloadRef", "workloadName"
    )
    return [
        _name(obj),
        text(scheduled[0].get("status")) if scheduled else "",
        text(scheduled[0].get("reason")) if scheduled else "",
        _policy(mapping(dig(obj, "spec", "schedulingPolicy"))),
        age(obj, now),
        text(workload) or NONE,
    ]


POD_GROUP_PRINTER = Printer(
    (
        NAME,
        column("Scheduled"),
        column("Reason"),
        column("Policy"),
        AGE,
        column("Workload", priority=1),
    ),
    _pod_group,
)


def _workload(obj: Json, now: float) -> list[Any]:
    templates = [mapping(item) for item in sequence(dig(obj, "spec", "podGroupTemplates"))]
    listed = [f"{text(item.get('name'))}:{_policy(mapping(item.get('schedulingPolicy')))}" for item in templates]
    return [_name(obj), joined(listed, 3), age(obj, now)]


WORKLOAD_PRINTER = Printer((NAME, column("Templates"), AGE), _workload)
