"""`kubectl get` columns of workload controllers, PodDisruptionBudgets and PodGroups."""

from __future__ import annotations

from typing import Any

from phalanx_local.clock import parse_timestamp
from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.printers.base import (
    AGE,
    NAME,
    NONE,
    Printer,
    age,
    column,
    human_duration,
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
    containers = [mapping(item) for item in sequence(template.get("containers"))]
    return [
        ",".join(text(item.get("name")) for item in containers),
        ",".join(text(item.get("image")) for item in containers),
        selector_text(dig(obj, "spec", "selector")),
    ]


def selector_text(selector: Any) -> str:
    """Format a label selector, or a plain map of labels, in the syntax of `kubectl get -l`."""
    selector_fields = mapping(selector)
    if "matchLabels" not in selector_fields and "matchExpressions" not in selector_fields:
        return labels_text(selector_fields)
    parts = [f"{key}={value}" for key, value in sorted(mapping(selector_fields.get("matchLabels")).items())]
    for item in map(mapping, sequence(selector_fields.get("matchExpressions"))):
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


def _cron_job(obj: Json, now: float) -> list[Any]:
    last = dig(obj, "status", "lastScheduleTime")
    template = mapping(dig(obj, "spec", "jobTemplate"))
    return [
        _name(obj),
        text(dig(obj, "spec", "schedule")),
        text(dig(obj, "spec", "timeZone")) or NONE,
        "True" if dig(obj, "spec", "suspend") is True else "False",
        len(sequence(dig(obj, "status", "active"))),
        since(last, now) if last else NONE,
        age(obj, now),
        *_wide(template),
    ]


CRON_JOB_PRINTER = Printer(
    (
        NAME,
        column("Schedule"),
        column("Timezone"),
        column("Suspend", "boolean"),
        column("Active", "integer"),
        column("Last Schedule"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    _cron_job,
)


def _daemon_set(obj: Json, now: float) -> list[Any]:
    status = mapping(obj.get("status"))
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        _name(obj),
        *(status.get(field, 0) for field in counts),
        labels_text(mapping(dig(obj, "spec", "template", "spec", "nodeSelector"))),
        age(obj, now),
        *_wide(obj),
    ]


DAEMON_SET_PRINTER = Printer(
    (
        NAME,
        *(column(name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
        column("Node Selector"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    _daemon_set,
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


_SCHEDULED = ("PodGroupScheduled", "PodGroupInitiallyScheduled", "CompositePodGroupInitiallyScheduled")


def _pod_group(obj: Json, now: float) -> list[Any]:
    policy = mapping(dig(obj, "spec", "schedulingPolicy"))
    workload = dig(obj, "spec", "podGroupTemplateRef", "workload", "workloadName") or dig(
        obj, "spec", "workloadRef", "workloadName"
    )
    status = "Pending"
    for condition in map(mapping, sequence(dig(obj, "status", "conditions"))):
        if condition.get("type") in _SCHEDULED:
            status = "Scheduled" if condition.get("status") == "True" else "Unschedulable"
    return [
        _name(obj),
        "Gang" if policy.get("gang") is not None else "Basic",
        text(workload) or NONE,
        status,
        age(obj, now),
    ]


POD_GROUP_PRINTER = Printer((NAME, column("Policy"), column("Workload"), column("Status"), AGE), _pod_group)
