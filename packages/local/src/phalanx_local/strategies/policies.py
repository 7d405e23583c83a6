"""Strategies of ValidatingAdmissionPolicies and their bindings: defaults, and compilation checks of expressions."""

from __future__ import annotations

from typing import Final

from phalanx_local.admission.expressions import check_expressions
from phalanx_local.errors import FieldCause, required, unsupported_value, wrong_value
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.strategies.base import RestStrategy, SpecStrategy, Write

_ACTIONS: Final = ("Audit", "Deny", "Warn")
_REASONS: Final = ("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge")


class PolicyStrategy(SpecStrategy):
    """Strategy of ValidatingAdmissionPolicies."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = mapping(obj.get("spec"))
        spec.setdefault("failurePolicy", "Fail")
        _default_matching(spec.get("matchConstraints"))

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        spec = mapping(obj.get("spec"))
        causes: list[FieldCause] = []
        if not sequence(mapping(spec.get("matchConstraints")).get("resourceRules")):
            causes.append(required("spec.matchConstraints.resourceRules"))
        if not spec.get("validations") and not spec.get("auditAnnotations"):
            message = "validations or auditAnnotations must contain at least one item"
            causes.append(required("spec.validations", message))
        if spec.get("failurePolicy") not in ("Fail", "Ignore"):
            causes.append(unsupported_value("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore")))
        for index, item in enumerate(sequence(spec.get("validations"))):
            validation = mapping(item)
            if not text(validation.get("expression")).strip():
                causes.append(required(f"spec.validations[{index}].expression", "expression is not specified"))
            if validation.get("reason") and validation["reason"] not in _REASONS:
                causes.append(
                    unsupported_value(f"spec.validations[{index}].reason", validation["reason"], _REASONS)
                )
        return causes + check_expressions(obj)


class PolicyBindingStrategy(RestStrategy):
    """Strategy of ValidatingAdmissionPolicyBindings."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = mapping(obj.get("spec"))
        if spec.get("matchResources"):
            _default_matching(spec["matchResources"])

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        spec = mapping(obj.get("spec"))
        causes: list[FieldCause] = []
        if not spec.get("policyName"):
            causes.append(required("spec.policyName"))
        actions = sequence(spec.get("validationActions"))
        if not actions:
            causes.append(required("spec.validationActions", "at least one validation action is required"))
        for index, action in enumerate(actions):
            if action not in _ACTIONS:
                causes.append(unsupported_value(f"spec.validationActions[{index}]", action, _ACTIONS))
        if "Deny" in actions and "Warn" in actions:
            why = (
                "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            )
            causes.append(wrong_value("spec.validationActions", actions, f"{why}response is not allowed)"))
        return causes


def _default_matching(resources: object) -> None:
    constraints = mapping(resources)
    constraints.setdefault("matchPolicy", "Equivalent")
    constraints.setdefault("namespaceSelector", {})
    constraints.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in sequence(constraints.get(field)):
            mapping(rule).setdefault("scope", "*")
