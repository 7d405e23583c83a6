"""Validation of updates of a pod: the mutable fields of each endpoint."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.validation.errors import FieldError, forbidden, invalid
from phalanx_local.validation.names import in_range
from phalanx_local.validation.qos import qos_class

_UPDATABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def check_pod_update(errors: list[FieldError], pod: dict[str, Any], old: dict[str, Any], subresource: str) -> None:
    """Check that an update changes only fields of the pod's spec that the endpoint allows."""
    spec, former = pod.get("spec") or {}, old.get("spec") or {}
    if subresource == "ephemeralcontainers":
        _ephemeral(errors, spec, former)
        return
    if subresource == "resize":
        _resize(errors, spec, former)
        return
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(former.get(name) or ()):
            errors.append(forbidden(f"spec.{name}", "pod updates may not add or remove containers"))
            return
    if not _deadline(errors, spec, former):
        return
    _tolerations(errors, spec, former)
    _gates(errors, spec, former)
    munged = dict(spec)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _restore(munged, former, name)
    for name in ("containers", "initContainers"):
        if munged.get(name):
            munged[name] = [
                {**new, "image": was.get("image")}
                for new, was in zip(munged[name], former.get(name) or (), strict=True)
            ]
    if (former.get("terminationGracePeriodSeconds") or 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        _restore(munged, former, "terminationGracePeriodSeconds")
    if former.get("schedulingGates"):
        _gated(errors, munged, former)
    if not equal(munged, former):
        changed = sorted(
            name for name in munged.keys() | former.keys() if not equal(munged.get(name), former.get(name))
        )
        detail = f"pod updates may not change fields other than {_UPDATABLE}\nchanged: {', '.join(changed)}"
        errors.append(forbidden("spec", detail))


def equal(left: Any, right: Any) -> bool:
    """Return whether values are equal for the API server: an empty value (list, map, string, zero, false) equals an
    absent one."""
    if not left and not right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return all(equal(left.get(name), right.get(name)) for name in left.keys() | right.keys())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def _restore(munged: dict[str, Any], former: dict[str, Any], name: str) -> None:
    if name in former:
        munged[name] = former[name]
    else:
        munged.pop(name, None)


def _deadline(errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any]) -> bool:
    path = "spec.activeDeadlineSeconds"
    value, before = spec.get("activeDeadlineSeconds"), former.get("activeDeadlineSeconds")
    if value is not None:
        complaints = in_range(value, 0, 2**31 - 1)
        if complaints:
            errors.extend(invalid(path, value, text) for text in complaints)
            return False
        if before is not None and before < value:
            errors.append(invalid(path, value, "must be less than or equal to previous value"))
            return False
    elif before is not None:
        detail = "must not update from a positive integer to nil value"
        errors.append(invalid(path, None, detail))
    return True


def _tolerations(errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any]) -> None:
    def bare(toleration: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds" and value}

    present = [bare(item) for item in spec.get("tolerations") or ()]
    if any(bare(item) not in present for item in former.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(forbidden("spec.tolerations", detail))


def _gates(errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any]) -> None:
    known = {gate.get("name") for gate in former.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            errors.append(forbidden(f"spec.schedulingGates[{index}].name", detail))


def _gated(errors: list[FieldError], munged: dict[str, Any], former: dict[str, Any]) -> None:
    """Check that an update only restricts node selector and node affinity of a gated pod; restore the old ones in
    `munged`."""
    selector, before = munged.get("nodeSelector") or {}, former.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid("spec.nodeSelector", selector, detail))
    _restore(munged, former, "nodeSelector")
    affinity = dict(munged.get("affinity") or {})
    old_affinity = former.get("affinity") or {}
    new_node, old_node = affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity")
    if equal(new_node, old_node):
        return
    _node_affinity(errors, new_node or {}, old_node or {})
    _restore(affinity, old_affinity, "nodeAffinity")
    munged["affinity"] = affinity
    if not affinity and not former.get("affinity"):
        munged.pop("affinity")


_HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _node_affinity(errors: list[FieldError], new: dict[str, Any], old: dict[str, Any]) -> None:
    if old.get(_HARD) is None:
        return
    path = f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms"
    terms = (new.get(_HARD) or {}).get("nodeSelectorTerms") or []
    before = old[_HARD].get("nodeSelectorTerms") or []
    if before and len(before) != len(terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.append(invalid(path, terms, detail))
        return
    for index, (term, was) in enumerate(zip(terms, before, strict=False)):
        if not _only_additions(term, was):
            detail = "only additions are allowed (no mutations or deletions)"
            errors.append(invalid(f"{path}[{index}]", term, detail))


def _only_additions(term: dict[str, Any], was: dict[str, Any]) -> bool:
    names = ("matchExpressions", "matchFields")
    if not any(was.get(name) for name in names):
        return not any(term.get(name) for name in names)
    return all(equal((term.get(name) or [])[: len(was[name])], was[name]) for name in names if was.get(name))


def _ephemeral(errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any]) -> None:
    path = "spec.ephemeralContainers"
    present = {item.get("name"): item for item in spec.get("ephemeralContainers") or ()}
    for item in former.get("ephemeralContainers") or ():
        name = item.get("name")
        if name not in present:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not equal(present[name], item):
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed\n'))


_RESIZABLE: Final = ("cpu", "memory")


def _resize(errors: list[FieldError], spec: dict[str, Any], former: dict[str, Any]) -> None:
    """Check an in-place resize: only cpu and memory of containers and sidecars change; no request or limit is
    removed."""
    munged = dict(spec)
    for name in ("containers", "initContainers"):
        items, before = spec.get(name) or [], former.get(name) or []
        if len(items) != len(before):
            errors.append(forbidden(f"spec.{name}", "pod updates may not add or remove containers"))
            return
        rest = []
        for index, (item, was) in enumerate(zip(items, before, strict=True)):
            if name == "initContainers" and item.get("restartPolicy") != "Always":
                if not equal(item, was):
                    detail = "resources for non-sidecar init containers are immutable"
                    errors.append(forbidden("spec", detail))
                rest.append(was)
                continue
            _resize_one(errors, item, was, f"spec.{name}[{index}].resources")
            back = _without_change(item, was)
            if not equal(back, was):
                words = "resources for sidecar containers" if name == "initContainers" else "resources"
                errors.append(forbidden("spec", f"only cpu and memory {words} are mutable"))
            rest.append(was)
        if name in munged:
            munged[name] = rest
    if not errors and not equal(munged, former):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    before_class, now = qos_class(former), qos_class(spec)
    if before_class != now:
        errors.append(invalid("spec", before_class, "Pod QOS Class may not change as a result of resizing"))


def _resize_one(errors: list[FieldError], item: dict[str, Any], was: dict[str, Any], path: str) -> None:
    needs, before = item.get("resources") or {}, was.get("resources") or {}
    removed = [side for side in ("requests", "limits") if set(before.get(side) or ()) - set(needs.get(side) or ())]
    errors.extend(forbidden(f"{path}.{side}", f"resource {side} cannot be removed") for side in removed)


def _without_change(item: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    """Return a container of the resized pod with its old cpu and memory."""
    needs, before = dict(item.get("resources") or {}), was.get("resources") or {}
    for side in ("requests", "limits"):
        listed = {name: value for name, value in (needs.get(side) or {}).items() if name not in _RESIZABLE}
        listed.update({name: value for name, value in (before.get(side) or {}).items() if name in _RESIZABLE})
        needs[side] = listed
    return {**item, "resources": needs}
