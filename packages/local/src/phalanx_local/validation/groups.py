"""Validation of the native gang API, scheduling.k8s.io: Workload, PodGroup and CompositePodGroup.

v1alpha1 (1.35) has only Workloads, v1alpha2 belongs to 1.36, v1beta1 and v1alpha3 to 1.37. Three relevant changes
from v1alpha2 to v1beta1: ``gang.minCount`` is mutable, disruptionMode is a union instead of an enumeration, and a
PodGroup references its Workload by ``workloadRef``.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from phalanx_local.validation.metadata import IMMUTABLE, path_segment, validate_conditions
from phalanx_local.validation.names import dns_label, dns_subdomain, label_key
from phalanx_local.validation.pod_updates import equal

MAX_TEMPLATES: Final = 8
MAX_CLAIMS: Final = 4
MAX_DEPTH: Final = 4
_HIGHEST_PRIORITY: Final = 1_000_000_000


def _mutable_count(obj: dict[str, Any]) -> bool:
    return _version(obj) != "v1alpha2"


def _version(obj: dict[str, Any]) -> str:
    return str(obj.get("apiVersion") or "").rpartition("/")[2]


def check_pod_group(
    errors: list[FieldError], group: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a native PodGroup; only ``gang.minCount`` is mutable, from v1beta1 on."""
    if subresource == "status":
        _status(errors, group)
        return
    spec = group.get("spec") or {}
    if old is not None:
        _fixed_group(errors, group, spec, old.get("spec") or {})
    reference = spec.get("podGroupTemplateRef")
    if reference is not None:
        link = reference.get("workload")
        here = "spec.podGroupTemplateRef"
        if link is None:
            errors.append(invalid(here, "", "must specify one of: `workload`"))
        else:
            _long_name(errors, link, "workloadName", f"{here}.workload")
            _short_name(errors, link, "podGroupTemplateName", f"{here}.workload")
    reference = spec.get("workloadRef")
    if reference is not None:
        _long_name(errors, reference, "workloadName", "spec.workloadRef")
        _short_name(errors, reference, "templateName", "spec.workloadRef")
    parent = spec.get("parentCompositePodGroupName")
    if parent is not None:
        where = "spec.parentCompositePodGroupName"
        errors.extend(invalid(where, parent, text) for text in dns_subdomain(parent))
        if reference is None:
            errors.append(required("spec.workloadRef", "must be specified with parentCompositePodGroupName"))
    _common(errors, spec, "spec")


def _fixed_group(
    errors: list[FieldError], group: dict[str, Any], spec: dict[str, Any], former: dict[str, Any]
) -> None:
    for name in sorted(spec.keys() | former.keys()):
        new, was = spec.get(name), former.get(name)
        if equal(new, was) and (new is None) == (was is None):
            continue
        if name == "schedulingPolicy" and _mutable_count(group):
            _fixed_policy(errors, new or {}, was or {}, "spec.schedulingPolicy")
        else:
            errors.append(invalid(f"spec.{name}", new, IMMUTABLE))


def _fixed_policy(errors: list[FieldError], new: dict[str, Any], was: dict[str, Any], path: str) -> None:
    """Check that an update does not change a group's policy between basic and gang; the minCount of a gang can
    change."""
    for name in ("basic", "gang"):
        if (new.get(name) is None) != (was.get(name) is None):
            verb = "set" if was.get(name) is None else "cleared"
            where = f"{path}.{name}"
            errors.append(invalid(where, new.get(name), f"field cannot be {verb} once created"))
    new_gang, old_gang = new.get("gang") or {}, was.get("gang") or {}
    others = (new_gang.keys() | old_gang.keys()) - {"minCount"}
    if new.get("gang") is not None and any(new_gang.get(name) != old_gang.get(name) for name in others):
        errors.append(invalid(f"{path}.gang", new_gang, IMMUTABLE))


def _common(errors: list[FieldError], spec: dict[str, Any], path: str, count: str = "minCount") -> None:
    """Check the fields that PodGroups, CompositePodGroups and their templates share."""
    check_policy(errors, spec.get("schedulingPolicy"), f"{path}.schedulingPolicy", "gang", count)
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or []
    where = f"{path}.schedulingConstraints.topology"
    if len(topology) > 1:
        errors.append(too_many(where, len(topology), 1))
    for index, item in enumerate(topology):
        key = item.get("key") or ""
        if not key:
            errors.append(required(f"{where}[{index}].key"))
        else:
            errors.extend(invalid(f"{where}[{index}].key", key, text) for text in label_key(key))
    _claims(errors, spec.get("resourceClaims"), f"{path}.resourceClaims")
    mode = spec.get("disruptionMode")
    if isinstance(mode, str):
        if mode not in ("Pod", "PodGroup"):
            errors.append(not_supported(f"{path}.disruptionMode", mode, ("Pod", "PodGroup")))
    elif mode is not None:
        _union(errors, mode, ("single", "all"), f"{path}.disruptionMode")
        if mode.get("all") is not None and (spec.get("schedulingPolicy") or {}).get("basic") is not None:
            detail = "must not be `all` with the basic scheduling policy"
            errors.append(invalid(f"{path}.disruptionMode", mode, detail))
    name = spec.get("priorityClassName")
    if name:
        errors.extend(invalid(f"{path}.priorityClassName", name, text) for text in dns_subdomain(name))
    priority = spec.get("priority")
    if priority is not None and priority > _HIGHEST_PRIORITY:
        detail = f"must be less than or equal to {_HIGHEST_PRIORITY}"
        errors.append(invalid(f"{path}.priority", priority, detail))
    preemption = spec.get("preemptionPolicy")
    if preemption not in (None, "Never", "PreemptLowerPriority"):
        allowed = ("Never", "PreemptLowerPriority")
        errors.append(not_supported(f"{path}.preemptionPolicy", preemption, allowed))


def check_policy(errors: list[FieldError], policy: Any, path: str, gang: str, count: str) -> None:
    """Check a schedulingPolicy: exactly one of basic and gang; the minCount of a gang is at least one."""
    if not _union(errors, policy or {}, ("basic", gang), path):
        return
    members = (policy or {}).get(gang)
    if members is not None:
        number = members.get(count) or 0
        if number == 0:
            errors.append(required(f"{path}.{gang}.{count}"))
        elif number < 1:
            errors.append(invalid(f"{path}.{gang}.{count}", number, "must be greater than or equal to 1"))


def _union(errors: list[FieldError], value: dict[str, Any], names: tuple[str, ...], path: str) -> bool:
    chosen = [name for name in names if value.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in names)
    if not chosen:
        errors.append(invalid(path, "", f"must specify one of: {listed}"))
    elif len(chosen) > 1:
        found = ", ".join(f"{name}" for name in chosen)
        detail = f"must specify exactly one of: {listed}"
        errors.append(invalid(path, f"{{{found}}}", detail))
    return len(chosen) == 1


def _claims(errors: list[FieldError], claims: Any, path: str) -> None:
    names: set[str] = set()
    if len(claims or ()) > MAX_CLAIMS:
        errors.append(too_many(path, len(claims), MAX_CLAIMS))
    for index, claim in enumerate(claims or ()):
        here = f"{path}[{index}]"
        name = claim.get("name") or ""
        _short_name(errors, claim, "name", here)
        if name in names:
            errors.append(duplicate(here, claim))
        names.add(name)
        _union(errors, claim, ("resourceClaimName", "resourceClaimTemplateName"), here)
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            value = claim.get(field)
            if value is not None:
                errors.extend(invalid(f"{here}.{field}", value, text) for text in dns_subdomain(value))


def _short_name(errors: list[FieldError], item: dict[str, Any], field: str, path: str) -> None:
    value = item.get(field) or ""
    if not value:
        errors.append(required(f"{path}.{field}"))
    else:
        errors.extend(invalid(f"{path}.{field}", value, text) for text in dns_label(value))


def _long_name(errors: list[FieldError], item: dict[str, Any], field: str, path: str) -> None:
    value = item.get(field) or ""
    if not value:
        errors.append(required(f"{path}.{field}"))
    else:
        errors.extend(invalid(f"{path}.{field}", value, text) for text in dns_subdomain(value))


def _status(errors: list[FieldError], group: dict[str, Any]) -> None:
    status = group.get("status") or {}
    validate_conditions(errors, status.get("conditions"), "status.conditions")
    types = [item.get("type") for item in status.get("conditions") or ()]
    for index, name in enumerate(types):
        if name in types[:index]:
            errors.append(duplicate(f"status.conditions[{index}]", name))
    claims = status.get("resourceClaimStatuses") or []
    if len(claims) > MAX_CLAIMS:
        errors.append(too_many("status.resourceClaimStatuses", len(claims), MAX_CLAIMS))
    known = {item.get("name") for item in (group.get("spec") or {}).get("resourceClaims") or ()}
    for index, item in enumerate(claims):
        if item.get("name") not in known:
            where = f"status.resourceClaimStatuses[{index}].name"
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(where, item.get("name") or "", detail))


def check_workload(
    errors: list[FieldError], workload: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Workload: immutable templates (except minCount from v1beta1 on), and an owner that is set once."""
    spec = workload.get("spec") or {}
    reference = spec.get("controllerRef")
    if reference is not None:
        _controller(errors, reference)
    if _version(workload) == "v1alpha1":
        _check_pod_groups(errors, spec)
        _fixed_workload(errors, spec, (old.get("spec") or {}) if old is not None else None, ("podGroups",))
        return
    plain, composite = spec.get("podGroupTemplates") or [], spec.get("compositePodGroupTemplates") or []
    if plain and composite:
        detail = "must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`"
        errors.append(invalid("spec", "{podGroupTemplates, compositePodGroupTemplates}", detail))
    elif not plain and not composite:
        errors.append(required("spec.podGroupTemplates", "must have at least one item"))
    _templates(errors, spec, "spec", set(), 1)
    if old is None:
        return
    former, names = old.get("spec") or {}, ("podGroupTemplates", "compositePodGroupTemplates")
    mutable = _mutable_count(workload)
    _fixed_workload(errors, spec, former, () if mutable else names)
    for name in names if mutable else ():
        _fixed_templates(errors, spec.get(name) or [], former.get(name) or [], f"spec.{name}")


def _check_pod_groups(errors: list[FieldError], spec: dict[str, Any]) -> None:
    """Check the podGroups in the spec of a Workload of Kubernetes 1.35."""
    groups = spec.get("podGroups") or []
    if not groups:
        errors.append(required("spec.podGroups", "must have at least one item"))
    if len(groups) > MAX_TEMPLATES:
        errors.append(too_many("spec.podGroups", len(groups), MAX_TEMPLATES))
    for index, item in enumerate(groups):
        here = f"spec.podGroups[{index}]"
        _short_name(errors, item, "name", here)
        if item.get("name") in [other.get("name") for other in groups[:index]]:
            errors.append(duplicate(here, {"name": item.get("name")}))
        check_policy(errors, item.get("policy"), f"{here}.policy", "gang", "minCount")


def _fixed_workload(
    errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any] | None, fixed: tuple[str, ...]
) -> None:
    if former is None:
        return
    reference, last = spec.get("controllerRef"), former.get("controllerRef")
    if last is not None and not equal(reference, last):
        errors.append(invalid("spec.controllerRef", reference, IMMUTABLE))
    for name in fixed:
        new, was = spec.get(name) or [], former.get(name) or []
        if not equal(new, was):
            errors.append(invalid(f"spec.{name}", new, IMMUTABLE))


def check_composite(
    errors: list[FieldError], group: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a CompositePodGroup with its immutable spec."""
    if subresource == "status":
        validate_conditions(errors, (group.get("status") or {}).get("conditions"), "status.conditions")
        return
    spec = group.get("spec") or {}
    former = (old.get("spec") or {}) if old is not None else spec
    changed = (name for name in sorted(spec.keys() | former.keys()) if not equal(spec.get(name), former.get(name)))
    errors.extend(invalid(f"spec.{name}", spec.get(name), IMMUTABLE) for name in changed)
    parent, reference = spec.get("parentCompositePodGroupName"), spec.get("workloadRef")
    if parent is not None:
        where = "spec.parentCompositePodGroupName"
        errors.extend(invalid(where, parent, text) for text in dns_subdomain(parent))
    if not reference:
        errors.append(required("spec.workloadRef"))
    else:
        _long_name(errors, reference, "workloadName", "spec.workloadRef")
        _short_name(errors, reference, "templateName", "spec.workloadRef")
    _common(errors, spec, "spec", "minGroupCount")


def _controller(errors: list[FieldError], reference: dict[str, Any]) -> None:
    path = "spec.controllerRef"
    group = reference.get("apiGroup") or ""
    if group:
        errors.extend(invalid(f"{path}.apiGroup", group, text) for text in dns_subdomain(group))
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            errors.append(required(f"{path}.{name}"))
        else:
            errors.extend(invalid(f"{path}.{name}", value, text) for text in path_segment(value))


def _templates(errors: list[FieldError], holder: dict[str, Any], path: str, names: set[str], depth: int) -> None:
    """Check that template names are unique in the whole tree of a Workload's templates, which has at most four
    levels."""
    plain, composite = holder.get("podGroupTemplates") or [], holder.get("compositePodGroupTemplates") or []
    for field, items in (("podGroupTemplates", plain), ("compositePodGroupTemplates", composite)):
        if len(items) > MAX_TEMPLATES:
            errors.append(too_many(f"{path}.{field}", len(items), MAX_TEMPLATES))
        for index, item in enumerate(items):
            here = f"{path}.{field}[{index}]"
            name = item.get("name") or ""
            _short_name(errors, item, "name", here)
            if name in names:
                errors.append(duplicate(here, {"name": name}))
            names.add(name)
            if field == "podGroupTemplates":
                _common(errors, item, here)
                continue
            _common(errors, item, here, "minGroupCount")
            if depth >= MAX_DEPTH:
                detail = f"the tree of templates may not be more than {MAX_DEPTH} levels deep"
                errors.append(forbidden(here, detail))
            else:
                _templates(errors, item, here, names, depth + 1)


def _fixed_templates(errors: list[FieldError], new: list[Any], was: list[Any], path: str) -> None:
    before = {item.get("name"): item for item in was}
    names = {item.get("name") for item in new}
    gone = sorted(str(name) for name in before if name not in names)
    errors.extend(forbidden(path, f'items may not be removed (missing "{name}")') for name in gone)
    for index, item in enumerate(new):
        here = f"{path}[{index}]"
        former = before.get(item.get("name"))
        if former is None:
            errors.append(forbidden(here, "items may not be added"))
            continue
        for field in sorted(item.keys() | former.keys()):
            if equal(item.get(field), former.get(field)):
                continue
            if field == "schedulingPolicy":
                _fixed_policy(errors, item.get(field) or {}, former.get(field) or {}, f"{here}.{field}")
            elif field in ("podGroupTemplates", "compositePodGroupTemplates"):
                _fixed_templates(errors, item.get(field) or [], former.get(field) or [], f"{here}.{field}")
            else:
                errors.append(invalid(f"{here}.{field}", item.get(field), IMMUTABLE))
