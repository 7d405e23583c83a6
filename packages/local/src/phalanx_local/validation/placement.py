"""Validation of placement fields of pods (affinity, tolerations, topology spread) and of node taints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from phalanx.model.text.decoding import parse_whole
from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    shown,
)
from phalanx_local.validation.metadata import validate_selector
from phalanx_local.validation.names import dns_label, dns_subdomain, label_key, label_value

NOT_POSITIVE: Final = "must be greater than zero"
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_BAD_OPERATOR: Final = "not a valid selector operator"


def check_affinity(errors: list[FieldError], affinity: Any, path: str) -> None:
    """Check ``spec.affinity`` of a pod: node affinity, pod affinity and anti-affinity."""
    if not affinity:
        return
    node = affinity.get("nodeAffinity")
    if node:
        here = f"{path}.nodeAffinity"
        hard = node.get("requiredDuringSchedulingIgnoredDuringExecution")
        if hard is not None:
            check_node_selector(errors, hard, f"{here}.requiredDuringSchedulingIgnoredDuringExecution")
        soft_path = f"{here}.preferredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            _weight(errors, term, f"{soft_path}[{index}]")
            preference = term.get("preference") or {}
            _node_term(errors, preference, f"{soft_path}[{index}].preference", lenient=True)
    for name in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(name)
        if not part:
            continue
        here = f"{path}.{name}"
        hard_path = f"{here}.requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            _pod_term(errors, term, f"{hard_path}[{index}]")
        soft_path = f"{here}.preferredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            _weight(errors, term, f"{soft_path}[{index}]")
            _pod_term(errors, term.get("podAffinityTerm") or {}, f"{soft_path}[{index}].podAffinityTerm")


def _weight(errors: list[FieldError], term: dict[str, Any], path: str) -> None:
    weight = term.get("weight") or 0
    if not 0 < weight <= 100:
        errors.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def check_node_selector(errors: list[FieldError], selector: Any, path: str) -> None:
    """Check a node selector (terms are ORed, the requirements of one term are ANDed)."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        errors.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms):
        _node_term(errors, term or {}, f"{path}.nodeSelectorTerms[{index}]", lenient=False)


def _node_term(errors: list[FieldError], term: dict[str, Any], path: str, *, lenient: bool) -> None:
    for index, need in enumerate(term.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = need.get("operator") or "", need.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(required(f"{here}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden(f"{here}.values", detail))
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errors.append(required(f"{here}.values", detail))
        else:
            errors.append(invalid(f"{here}.operator", operator, _BAD_OPERATOR))
        key = need.get("key") or ""
        errors.extend(invalid(f"{here}.key", key, text) for text in label_key(key))
        if not lenient:
            for position, value in enumerate(values):
                complaints = label_value(value)
                errors.extend(invalid(f"{here}.values[{position}]", value, text) for text in complaints)
    for index, need in enumerate(term.get("matchFields") or ()):
        here = f"{path}.matchFields[{index}]"
        operator, values = need.get("operator") or "", need.get("values") or []
        if operator in ("In", "NotIn"):
            if len(values) != 1:
                detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
                errors.append(required(f"{here}.values", detail))
        else:
            errors.append(invalid(f"{here}.operator", operator, _BAD_OPERATOR))
        if need.get("key") != "metadata.name":
            detail = "not a valid field selector key"
            errors.append(invalid(f"{here}.key", need.get("key") or "", detail))
        else:
            for position, value in enumerate(values):
                complaints = dns_subdomain(value)
                errors.extend(invalid(f"{here}.values[{position}]", value, text) for text in complaints)


def _pod_term(errors: list[FieldError], term: dict[str, Any], path: str) -> None:
    validate_selector(errors, term.get("labelSelector"), f"{path}.labelSelector")
    validate_selector(errors, term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        errors.extend(invalid(f"{path}.namespace", name, text) for text in dns_label(name))
    match = term.get("matchLabelKeys") or []
    mismatch = term.get("mismatchLabelKeys") or []
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and term.get("labelSelector") is None:
            detail = "must not be specified when labelSelector is not set"
            errors.append(forbidden(f"{path}.{name}", detail))
            continue
        for index, key in enumerate(keys):
            errors.extend(invalid(f"{path}.{name}[{index}]", key, text) for text in label_key(key))
    for index, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))
    topology = term.get("topologyKey") or ""
    if not topology:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    errors.extend(invalid(f"{path}.topologyKey", topology, text) for text in label_key(topology))


def check_tolerations(errors: list[FieldError], tolerations: Any, path: str) -> None:
    """Check a pod's tolerations; the operators Lt and Gt, which real servers disable by default, are enabled."""
    for index, toleration in enumerate(tolerations or ()):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            errors.extend(invalid(f"{here}.key", key, text) for text in label_key(key))
        elif operator != "Exists":
            errors.append(
                invalid(
                    f"{here}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{here}.effect", effect, detail))
        if operator in ("Equal", ""):
            complaints = label_value(value)
            if complaints:
                errors.append(invalid(f"{here}.operator", value, ";".join(complaints)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid(f"{here}.operator", value, detail))
        elif operator in ("Gt", "Lt"):
            errors.extend(invalid(f"{here}.value", value, text) for text in _decimal_errors(value))
        else:
            errors.append(not_supported(f"{here}.operator", operator, ("Equal", "Exists", "Gt", "Lt")))
        if effect and effect not in EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, EFFECTS, keep_order=True))


def _decimal_errors(value: str) -> Iterator[str]:
    """Return the errors of a text that must be a 64-bit integer in kube-apiserver's notation."""
    if not _DECIMAL.fullmatch(value):
        yield "must be a valid decimal integer in canonical form"
    elif parse_whole(value) is None:
        yield f'strconv.ParseInt: parsing "{value}": value out of range'


def check_taints(errors: list[FieldError], taints: Any, path: str) -> None:
    """Check the taints of a node: valid keys, values and effects, unique by key and effect."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints or ()):
        here = f"{path}[{index}]"
        key, value = taint.get("key") or "", taint.get("value") or ""
        effect = taint.get("effect") or ""
        errors.extend(invalid(f"{here}.key", key, text) for text in label_key(key))
        complaints = label_value(value)
        if complaints:
            errors.append(invalid(f"{here}.value", value, ";".join(complaints)))
        if not effect:
            errors.append(required(f"{here}.effect"))
        elif effect not in EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, EFFECTS, keep_order=True))
        if (key, effect) in seen:
            text = f"Duplicate value: {shown(taint)}: taints must be unique by key and effect pair"
            errors.append(FieldError(here, "FieldValueDuplicate", text))
        seen.add((key, effect))


def check_spread(errors: list[FieldError], constraints: Any, path: str) -> None:
    """Check a pod's topology spread constraints."""
    pairs = [(item.get("topologyKey") or "", item.get("whenUnsatisfiable") or "") for item in constraints or ()]
    for index, item in enumerate(constraints or ()):
        here = f"{path}[{index}]"
        skew, domains = item.get("maxSkew") or 0, item.get("minDomains")
        topology, action = pairs[index]
        if skew <= 0:
            errors.append(invalid(f"{here}.maxSkew", skew, NOT_POSITIVE))
        if not topology:
            errors.append(required(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            allowed = ("DoNotSchedule", "ScheduleAnyway")
            errors.append(not_supported(f"{here}.whenUnsatisfiable", action, allowed))
        if pairs[index] in pairs[index + 1 :]:
            where = f"{here}.{{topologyKey, whenUnsatisfiable}}"
            errors.append(duplicate(where, f"{{{topology}, {action}}}"))
        if domains is not None:
            if domains <= 0:
                errors.append(invalid(f"{here}.minDomains", domains, NOT_POSITIVE))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.append(invalid(f"{here}.minDomains", domains, detail))
        policies = [(name, item.get(name)) for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")]
        errors.extend(
            not_supported(f"{here}.{name}", policy, ("Honor", "Ignore"))
            for name, policy in policies
            if policy not in (None, "Honor", "Ignore")
        )
        selector = item.get("labelSelector")
        keys = item.get("matchLabelKeys") or []
        if keys and selector is None:
            detail = "must not be specified when labelSelector is not set"
            errors.append(forbidden(f"{here}.matchLabelKeys", detail))
        selected = set((selector or {}).get("matchLabels") or {})
        selected |= {term.get("key") for term in (selector or {}).get("matchExpressions") or ()}
        for position, key in enumerate(keys):
            where = f"{here}.matchLabelKeys[{position}]"
            errors.extend(invalid(where, key, text) for text in label_key(key))
            if key in selected:
                errors.append(invalid(where, key, "exists in both matchLabelKeys and labelSelector"))
        validate_selector(errors, selector, f"{here}.labelSelector")
