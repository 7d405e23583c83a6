"""Validation of RBAC roles and bindings."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.validation.errors import FieldError, invalid, not_supported, required

GROUP: Final = "rbac.authorization.k8s.io"


def check_role(
    errors: list[FieldError], role: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check the rules of a Role, which are about resources only."""
    for index, rule in enumerate(role.get("rules") or []):
        _check_rule(errors, f"rules[{index}]", rule or {}, namespaced=True)


def check_cluster_role(
    errors: list[FieldError], role: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check the rules of a ClusterRole, which are about resources or non-resource URLs."""
    for index, rule in enumerate(role.get("rules") or []):
        _check_rule(errors, f"rules[{index}]", rule or {}, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required("aggregationRule.clusterRoleSelectors", detail))


def _check_rule(errors: list[FieldError], here: str, rule: dict[str, Any], *, namespaced: bool) -> None:
    if not rule.get("verbs"):
        errors.append(required(f"{here}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        field = f"{here}.nonResourceURLs"
        if namespaced:
            errors.append(invalid(field, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            errors.append(
                invalid(field, urls, "rules cannot apply to both regular resources and non-resource URLs")
            )
        return
    if not rule.get("apiGroups"):
        errors.append(required(f"{here}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{here}.resources", "resource rules must supply at least one resource"))


def check_role_binding(
    errors: list[FieldError], binding: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check the role and the subjects of a RoleBinding."""
    _check_binding(errors, binding, old, ("Role", "ClusterRole"))


def check_cluster_role_binding(
    errors: list[FieldError], binding: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check the role and the subjects of a ClusterRoleBinding."""
    _check_binding(errors, binding, old, ("ClusterRole",))


def _check_binding(
    errors: list[FieldError], binding: dict[str, Any], old: dict[str, Any] | None, kinds: tuple[str, ...]
) -> None:
    reference = binding.get("roleRef") or {}
    if reference.get("apiGroup") != GROUP:
        errors.append(not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,)))
    if reference.get("kind") not in kinds:
        errors.append(not_supported("roleRef.kind", reference.get("kind") or "", kinds))
    if not reference.get("name"):
        errors.append(required("roleRef.name"))
    for index, subject in enumerate(binding.get("subjects") or []):
        namespaced = bool((binding.get("metadata") or {}).get("namespace"))
        _check_subject(errors, f"subjects[{index}]", subject or {}, namespaced=namespaced)
    if old is not None and old.get("roleRef") != reference:
        errors.append(invalid("roleRef", reference, "cannot change roleRef"))


def _check_subject(errors: list[FieldError], here: str, subject: dict[str, Any], *, namespaced: bool) -> None:
    kind, group = subject.get("kind"), subject.get("apiGroup") or ""
    if not subject.get("name"):
        errors.append(required(f"{here}.name"))
    if kind == "ServiceAccount":
        if group:
            errors.append(not_supported(f"{here}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{here}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{here}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{here}.kind", kind or "", ("ServiceAccount", "User", "Group")))
