"""Validation of ``metadata``: names, labels, annotations, owners, finalizers, and immutable fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx_local.validation.errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from phalanx_local.validation.names import (
    Complaints,
    dns1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    masked,
)

ANNOTATION_LIMIT: Final = 256 * 1024
IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"

NameRule = Callable[[str], Complaints]


def path_segment(value: str) -> Complaints:
    """Return the errors of a name that only needs to fit into a URL path (RBAC objects)."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{mark}'" for mark in ("/", "%") if mark in value)


#: Kinds with other name rules than DNS subdomains.
NAME_RULES: Final[dict[tuple[str, str], NameRule]] = {
    ("", "Namespace"): dns_label,
    ("", "Service"): dns1035_label,
    ("rbac.authorization.k8s.io", "Role"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment,
}

#: Built-in kinds without a namespace.
CLUSTER_SCOPED: Final = frozenset(
    (
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("", "ComponentStatus"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
    )
)


def validate_metadata(
    errors: list[FieldError],
    group: str,
    kind: str,
    meta: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    builtin: bool,
) -> None:
    """Check an object's metadata on create (``old`` is None) or update.

    With generateName the name can be missing. The scope is checked for built-in kinds only, since the definition
    decides the scope of a custom resource.
    """
    if old is None:
        _names(errors, group, kind, meta, builtin)
    else:
        _update(errors, meta, old)
    labels = meta.get("labels")
    if labels:
        validate_labels(errors, labels, "metadata.labels")
    annotations = meta.get("annotations")
    if annotations:
        _annotations(errors, annotations)
    owners = meta.get("ownerReferences")
    if owners:
        _owners(errors, owners)
    finalizers = meta.get("finalizers")
    if finalizers:
        if builtin and (old is None or finalizers != old.get("finalizers")):
            _qualified(errors, finalizers)
        if old is None:
            _finalizers(errors, finalizers)
        elif old.get("deletionTimestamp"):
            added = sorted(set(finalizers) - set(old.get("finalizers") or ()))
            if added:
                listed = ", ".join(f'"{name}"' for name in added)
                errors.append(
                    forbidden(
                        "metadata.finalizers",
                        "no new finalizers can be added if the object is being deleted, "
                        f"found new finalizers []string{{{listed}}}",
                    )
                )
        elif finalizers != old.get("finalizers"):
            _finalizers(errors, finalizers)


def _names(errors: list[FieldError], group: str, kind: str, meta: dict[str, Any], builtin: bool) -> None:
    rule = NAME_RULES.get((group, kind), dns_subdomain)
    prefix = meta.get("generateName")
    if prefix:
        errors.extend(invalid("metadata.generateName", prefix, text) for text in rule(masked(prefix)))
    name = meta.get("name")
    if name:
        errors.extend(invalid("metadata.name", name, text) for text in rule(name))
    elif not prefix:
        errors.append(required("metadata.name", "name or generateName is required"))
    if builtin:
        namespace = meta.get("namespace")
        if (group, kind) in CLUSTER_SCOPED:
            if namespace:
                errors.append(forbidden("metadata.namespace", "not allowed on this type"))
        elif not namespace:
            errors.append(required("metadata.namespace"))
        else:
            errors.extend(invalid("metadata.namespace", namespace, text) for text in dns_label(namespace))


_FIXED: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _update(errors: list[FieldError], meta: dict[str, Any], old: dict[str, Any]) -> None:
    if (meta.get("generation") or 0) < (old.get("generation") or 0):
        errors.append(invalid("metadata.generation", meta.get("generation") or 0, "must not be decremented"))
    moved = [name for name in _FIXED if meta.get(name) != old.get(name)]
    errors.extend(invalid(f"metadata.{name}", meta.get(name), IMMUTABLE) for name in moved)


def validate_labels(errors: list[FieldError], labels: dict[str, Any], path: str) -> None:
    """Check the keys and values of a map of labels; ``path`` is the field path of the map."""
    for key, value in labels.items():
        errors.extend(invalid(path, key, text) for text in label_key(key))
        if isinstance(value, str):
            errors.extend(invalid(path, value, text) for text in label_value(value))


def _annotations(errors: list[FieldError], annotations: dict[str, Any]) -> None:
    size = 0
    for key, value in annotations.items():
        errors.extend(invalid("metadata.annotations", key, text) for text in label_key(key.lower()))
        size += len(key) + (len(value) if isinstance(value, str) else 0)
    if size * 4 > ANNOTATION_LIMIT:
        # Bytes are counted only near the limit, because counting characters is faster.
        size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
        if size > ANNOTATION_LIMIT:
            errors.append(too_long("metadata.annotations", ANNOTATION_LIMIT))


def _owners(errors: list[FieldError], owners: list[Any]) -> None:
    path = "metadata.ownerReferences"
    first = ""
    for owner in owners:
        if not isinstance(owner, dict):
            continue
        version = str(owner.get("apiVersion") or "")
        if not version.rpartition("/")[2]:
            errors.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        missing = [name for name in ("kind", "name", "uid") if not owner.get(name)]
        errors.extend(invalid(f"{path}.{name}", owner.get(name) or "", "must not be empty") for name in missing)
        if version == "v1" and owner.get("kind") == "Event":
            errors.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller") is True:
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if first:
                errors.append(
                    invalid(
                        path,
                        owners,
                        'Only one reference can have Controller set to true. Found "true" in references for '
                        f"{first} and {this}",
                    )
                )
            else:
                first = this


def _finalizers(errors: list[FieldError], finalizers: list[Any]) -> None:
    path = "metadata.finalizers"
    for name in finalizers:
        errors.extend(invalid(path, name, text) for text in label_key(str(name)))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        errors.append(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))


def _qualified(errors: list[FieldError], finalizers: list[Any]) -> None:
    for index, name in enumerate(finalizers):
        if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"metadata.finalizers[{index}]", name, detail))


def validate_selector(errors: list[FieldError], selector: Any, path: str) -> None:
    """Check a label selector (matchLabels, matchExpressions)."""
    if not isinstance(selector, dict):
        return
    if selector.get("matchLabels"):
        validate_labels(errors, selector["matchLabels"], f"{path}.matchLabels")
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = term.get("operator"), term.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                errors.append(required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                errors.append(
                    forbidden(
                        f"{here}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    )
                )
        else:
            errors.append(invalid(f"{here}.operator", operator or "", "not a valid selector operator"))
        key = term.get("key") or ""
        errors.extend(invalid(f"{here}.key", key, text) for text in label_key(key))
        for position, value in enumerate(values):
            errors.extend(invalid(f"{here}.values[{position}]", value, text) for text in label_value(str(value)))


def validate_conditions(errors: list[FieldError], conditions: Any, path: str) -> None:
    """Check a list of metav1.Condition."""
    for index, condition in enumerate(conditions or ()):
        here = f"{path}[{index}]"
        name = condition.get("type") or ""
        errors.extend(invalid(f"{here}.type", name, text) for text in label_key(name))
        if condition.get("status") not in ("True", "False", "Unknown"):
            errors.append(
                not_supported(f"{here}.status", condition.get("status") or "", ("False", "True", "Unknown"))
            )
        if (condition.get("observedGeneration") or 0) < 0:
            errors.append(
                invalid(
                    f"{here}.observedGeneration",
                    condition["observedGeneration"],
                    "must be greater than or equal to zero",
                )
            )
        missing = [name for name in ("lastTransitionTime", "reason") if not condition.get(name)]
        errors.extend(required(f"{here}.{name}") for name in missing)
        if len(str(condition.get("message") or "").encode()) > 32 * 1024:
            errors.append(too_long(f"{here}.message", 32 * 1024))
