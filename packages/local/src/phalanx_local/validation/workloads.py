"""Validation of workload controllers: Deployments, ReplicaSets, Jobs, CronJobs and PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any, Final

from phalanx.model.text.decoding import parse_whole
from phalanx_local.validation.errors import FieldError, forbidden, invalid, not_supported, required
from phalanx_local.validation.job_status import check_job_status
from phalanx_local.validation.metadata import IMMUTABLE, validate_selector
from phalanx_local.validation.names import percent
from phalanx_local.validation.pod_updates import equal
from phalanx_local.validation.pods import check_template

_NEGATIVE: Final = "must be greater than or equal to 0"
_MISMATCH: Final = "`selector` does not match template `labels`"


def _counts(errors: list[FieldError], spec: dict[str, Any], names: tuple[str, ...], path: str) -> None:
    for name in names:
        value = spec.get(name)
        if value is not None and value < 0:
            errors.append(invalid(f"{path}.{name}", value, _NEGATIVE))


def _selector(errors: list[FieldError], spec: dict[str, Any], path: str, *, needed: bool = True) -> None:
    selector = spec.get("selector")
    template = spec.get("template")
    if selector is None:
        if needed:
            errors.append(required(f"{path}.selector"))
    else:
        validate_selector(errors, selector, f"{path}.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions") and needed:
            detail = "empty selector is invalid for deployment"
            errors.append(invalid(f"{path}.selector", selector, detail))
    if template is None:
        errors.append(required(f"{path}.template"))
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is not None and not matches(selector, labels):
        errors.append(invalid(f"{path}.template.metadata.labels", labels, _MISMATCH))


def matches(selector: dict[str, Any], labels: dict[str, Any]) -> bool:
    """Return whether labels satisfy a label selector; an unknown operator matches nothing."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term.get("key"), term.get("operator"), term.get("values") or ()
        present = key in labels
        if not {
            "In": present and labels.get(key) in values,
            "NotIn": not present or labels[key] not in values,
            "Exists": present,
            "DoesNotExist": not present,
        }.get(operator, False):
            return False
    return True


def check_int_or_percent(errors: list[FieldError], value: Any, path: str) -> None:
    """Check a field that contains a number or a percentage."""
    if isinstance(value, str):
        complaints = percent(value)
        errors.extend(invalid(path, value, text) for text in complaints)
        if not complaints and parse_whole(value[:-1], 0, 100) is None:
            errors.append(invalid(path, value, "must not be greater than 100%"))
    elif value is not None and value < 0:
        errors.append(invalid(path, value, _NEGATIVE))


def check_deployment(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Deployment: selector, template, replicas and strategy."""
    spec = item.get("spec") or {}
    if subresource:
        return
    _counts(errors, spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec")
    _selector(errors, spec, "spec")
    if spec.get("template") is not None:
        check_template(errors, spec["template"], "spec.template")
        _always(errors, spec["template"])
    strategy = spec.get("strategy") or {}
    kind = strategy.get("type")
    if kind not in (None, "Recreate", "RollingUpdate"):
        errors.append(not_supported("spec.strategy", kind, ("Recreate", "RollingUpdate")))
    rolling = strategy.get("rollingUpdate")
    if kind == "Recreate" and rolling is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        errors.append(forbidden("spec.strategy.rollingUpdate", detail))
    for name in ("maxUnavailable", "maxSurge"):
        check_int_or_percent(errors, (rolling or {}).get(name), f"spec.strategy.rollingUpdate.{name}")
    _fixed_selector(errors, spec, old)


def check_replica_set(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a ReplicaSet, StatefulSet or DaemonSet: selector, template and replicas."""
    spec = item.get("spec") or {}
    if subresource:
        return
    _counts(errors, spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec")
    _selector(errors, spec, "spec")
    if spec.get("template") is not None:
        check_template(errors, spec["template"], "spec.template")
        _always(errors, spec["template"])
    _fixed_selector(errors, spec, old)


_STATEFUL_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def check_stateful_set(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a StatefulSet: the rules of a ReplicaSet, and its immutable fields."""
    check_replica_set(errors, item, None, subresource)
    if old is None or subresource:
        return
    spec, former = item.get("spec") or {}, old.get("spec") or {}
    fixed = (spec.keys() | former.keys()) - set(_STATEFUL_MUTABLE)
    if any(not equal(spec.get(name), former.get(name)) for name in fixed):
        names = [f"'{name}'" for name in _STATEFUL_MUTABLE]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        detail = f"updates to statefulset spec for fields other than {listed} are forbidden"
        errors.append(forbidden("spec", detail))


def _always(errors: list[FieldError], template: dict[str, Any]) -> None:
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in (None, "Always"):
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))


def _fixed_selector(errors: list[FieldError], spec: dict[str, Any], old: dict[str, Any] | None) -> None:
    if old is not None and not equal(spec.get("selector"), (old.get("spec") or {}).get("selector")):
        errors.append(invalid("spec.selector", spec.get("selector"), IMMUTABLE))


def check_job(errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str) -> None:
    """Check a Job: parallelism and completions, immutable template and completion mode; a suspended Job's placement
    is mutable."""
    if subresource == "status" and old is not None:
        check_job_status(errors, item, old)
    if subresource:
        return
    spec = item.get("spec") or {}
    _job_spec(errors, spec, "spec")
    if old is None:
        return
    former = old.get("spec") or {}
    fixed = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
    changed = [name for name in fixed if not equal(spec.get(name), former.get(name))]
    errors.extend(invalid(f"spec.{name}", spec.get(name), IMMUTABLE) for name in changed)
    completions = spec.get("completions")
    if completions != former.get("completions"):
        elastic = (spec.get("completionMode") or "NonIndexed") == "Indexed" and completions == spec.get(
            "parallelism"
        )
        if not elastic:
            errors.append(invalid("spec.completions", completions, IMMUTABLE))
    template, before = spec.get("template") or {}, former.get("template") or {}
    if not equal(template, before):
        idle = bool(former.get("suspend")) and not (old.get("status") or {}).get("startTime")
        if not idle or not equal(_pinned(template), _pinned(before)):
            errors.append(invalid("spec.template", template, IMMUTABLE))


def _pinned(template: dict[str, Any]) -> dict[str, Any]:
    """Return the immutable part of a suspended Job's template: all except placement and resources of its pods."""
    meta = {
        name: value
        for name, value in (template.get("metadata") or {}).items()
        if name not in ("labels", "annotations")
    }
    spec = {
        name: value
        for name, value in (template.get("spec") or {}).items()
        if name not in ("nodeSelector", "tolerations", "schedulingGates", "affinity")
    }
    affinity = {
        name: value
        for name, value in ((template.get("spec") or {}).get("affinity") or {}).items()
        if name != "nodeAffinity"
    }
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [
                {field: value for field, value in item.items() if field != "resources"} for item in spec[name] or ()
            ]
    return {"metadata": meta, "spec": spec, "affinity": affinity}


def _job_spec(errors: list[FieldError], spec: dict[str, Any], path: str) -> None:
    names = (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    _counts(errors, spec, names, path)
    mode = spec.get("completionMode") or "NonIndexed"
    if mode not in ("Indexed", "NonIndexed"):
        errors.append(not_supported(f"{path}.completionMode", mode, ("Indexed", "NonIndexed")))
    if mode == "Indexed":
        if spec.get("completions") is None:
            detail = "when completion mode is Indexed"
            errors.append(required(f"{path}.completions", detail))
        elif (spec.get("parallelism") or 0) > 100_000:
            detail = "must be less than or equal to 100000 when completion mode is Indexed"
            errors.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
    selector = spec.get("selector")
    if selector is not None:
        validate_selector(errors, selector, f"{path}.selector")
    template = spec.get("template")
    if template is None:
        errors.append(required(f"{path}.template"))
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is not None and not matches(selector, labels):
        errors.append(invalid(f"{path}.template.metadata.labels", labels, _MISMATCH))
    check_template(errors, template, f"{path}.template")
    policy = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always":
        detail = 'valid values: "OnFailure", "Never"'
        errors.append(required(f"{path}.template.spec.restartPolicy", detail))


def check_cron_job(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a CronJob: schedule, concurrency policy and job template."""
    if subresource:
        return
    spec = item.get("spec") or {}
    schedule = spec.get("schedule") or ""
    if not schedule:
        errors.append(required("spec.schedule"))
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        detail = f"expected exactly 5 fields, found {len(schedule.split())}: [{schedule}]"
        errors.append(invalid("spec.schedule", schedule, detail))
    policies = ("Allow", "Forbid", "Replace")
    if spec.get("concurrencyPolicy") not in (None, *policies):
        errors.append(not_supported("spec.concurrencyPolicy", spec["concurrencyPolicy"], policies))
    _counts(
        errors,
        spec,
        ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
        "spec",
    )
    _job_spec(errors, (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")


def check_budget(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a PodDisruptionBudget: exactly one of minAvailable and maxUnavailable."""
    if subresource:
        return
    spec = item.get("spec") or {}
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    check_int_or_percent(errors, low, "spec.minAvailable")
    check_int_or_percent(errors, high, "spec.maxUnavailable")
    policies = ("AlwaysAllow", "IfHealthyBudget")
    if spec.get("unhealthyPodEvictionPolicy") not in (None, *policies):
        where = "spec.unhealthyPodEvictionPolicy"
        errors.append(not_supported(where, spec["unhealthyPodEvictionPolicy"], policies))
    validate_selector(errors, spec.get("selector"), "spec.selector")


def check_scale(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Scale: its replicas are not negative."""
    _counts(errors, item.get("spec") or {}, ("replicas",), "spec")
