"""Validation of objects about the cluster: nodes, namespaces, priority classes, quotas, leases, ConfigMaps and
Secrets."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from phalanx_local.validation.metadata import IMMUTABLE, validate_labels
from phalanx_local.validation.names import (
    config_key,
    dns_label,
    dns_subdomain,
    label_key,
    port_name,
    port_number,
)
from phalanx_local.validation.placement import check_taints
from phalanx_local.validation.pods import PREEMPTION_POLICIES
from phalanx_local.validation.resources import check_list, resource_name

_HIGHEST_PRIORITY: Final = 1_000_000_000
_SYSTEM_PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_DATA_LIMIT: Final = 1024 * 1024


def check_node(
    errors: list[FieldError], node: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Node: taints, resource quantities, addresses, and immutable podCIDR and providerID."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if spec.get("taints"):
        # kube-apiserver reports taint errors under metadata; kubectl users search for that text.
        check_taints(errors, spec["taints"], "metadata.taints")
    for name in ("capacity", "allocatable"):
        for resource in status.get(name) or ():
            check_list(errors, {resource: status[name][resource]}, f"status.{name}")
    for index, block in enumerate(spec.get("podCIDRs") or ()):
        try:
            ipaddress.ip_network(block, strict=False)
        except ValueError:
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"spec.podCIDRs[{index}]", block, detail))
    if old is None:
        return
    seen: list[Any] = []
    for index, address in enumerate(status.get("addresses") or ()):
        if address in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.append(address)
    former = old.get("spec") or {}
    if former.get("podCIDRs") and former["podCIDRs"] != spec.get("podCIDRs"):
        detail = 'node updates may not change podCIDR except from "" to valid'
        errors.append(forbidden("spec.podCIDRs", detail))
    if former.get("providerID") and former["providerID"] != spec.get("providerID"):
        detail = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden("spec.providerID", detail))


def check_namespace(
    errors: list[FieldError], namespace: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Namespace: finalizers, and a phase that agrees with its deletion."""
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        errors.extend(invalid("spec.finalizers", name, text) for text in label_key(name))
        if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid("spec.finalizers", name, detail))
    if subresource != "status":
        return
    phase = (namespace.get("status") or {}).get("phase") or ""
    leaving = bool((namespace.get("metadata") or {}).get("deletionTimestamp"))
    if not leaving and phase != "Active":
        detail = "may only be 'Active' if `deletionTimestamp` is empty"
        errors.append(invalid("status.Phase", phase, detail))
    if leaving and phase != "Terminating":
        detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
        errors.append(invalid("status.Phase", phase, detail))


def check_priority_class(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a PriorityClass: user-defined values are at most 10^9; value and preemptionPolicy are immutable."""
    name, value = (item.get("metadata") or {}).get("name") or "", item.get("value") or 0
    policy = item.get("preemptionPolicy")
    if old is not None:
        if value != (old.get("value") or 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        if policy != old.get("preemptionPolicy"):
            errors.append(invalid("preemptionPolicy", policy, IMMUTABLE))
        return
    if name.startswith("system-"):
        if _SYSTEM_PRIORITIES.get(name) != value or item.get("globalDefault"):
            if name not in _SYSTEM_PRIORITIES:
                problem = f"{name} is not a known system priority class"
            elif item.get("globalDefault"):
                problem = f"globalDefault of {name} priority class must be false"
            else:
                problem = f"value of {name} PriorityClass must be {_SYSTEM_PRIORITIES[name]}"
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. error: " + problem
            )
            errors.append(forbidden("metadata.name", detail))
    elif value > _HIGHEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        errors.append(forbidden("value", detail))
    if policy is not None and policy not in PREEMPTION_POLICIES:
        errors.append(not_supported("preemptionPolicy", policy, PREEMPTION_POLICIES, keep_order=True))


def check_quota(
    errors: list[FieldError], quota: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a ResourceQuota: resource names and quantities."""
    spec, status = quota.get("spec") or {}, quota.get("status") or {}
    check_list(errors, spec.get("hard"), "spec.hard", _quota_name)
    check_list(errors, status.get("hard"), "status.hard", _quota_name)
    check_list(errors, status.get("used"), "status.used", _quota_name)
    if old is not None and set(spec.get("scopes") or ()) != set((old.get("spec") or {}).get("scopes") or ()):
        errors.append(invalid("spec.scopes", spec.get("scopes") or [], IMMUTABLE))


def check_runtime_class(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a RuntimeClass: an immutable handler, and the overhead."""
    handler = item.get("handler") or ""
    if not handler:
        errors.append(required("handler"))
    else:
        errors.extend(invalid("handler", handler, text) for text in dns_label(handler))
    if old is not None and handler != old.get("handler"):
        errors.append(invalid("handler", handler, IMMUTABLE))
    overhead = (item.get("overhead") or {}).get("podFixed")
    check_list(errors, overhead, "overhead.podFixed", resource_name)
    selector = (item.get("scheduling") or {}).get("nodeSelector")
    if selector:
        validate_labels(errors, selector, "scheduling.nodeSelector")


def _quota_name(name: str) -> tuple[str, ...]:
    if name.startswith(("requests.", "count/")):
        return label_key(name)
    return resource_name(name)


def check_lease(
    errors: list[FieldError], lease: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Lease: durations are positive, transitions are not negative."""
    spec = lease.get("spec") or {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))


def check_config_map(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a ConfigMap: keys, total size, and immutability."""
    _immutable(errors, item, old, ("data", "binaryData"))
    binary = item.get("binaryData") or {}
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (item.get(field) or {}).items():
            where = f"{field}[{key}]"
            errors.extend(invalid(where, key, text) for text in config_key(key))
            if field == "data" and key in binary:
                errors.append(invalid(where, key, "duplicate of key present in binaryData"))
            size += len(value.encode()) if field == "data" else len(value) * 3 // 4
    if size > _DATA_LIMIT:
        errors.append(too_long("[]", _DATA_LIMIT))


#: Secret types with their required keys.
_SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def check_secret(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Secret: keys, total size, required keys of its type, and immutability."""
    kind = item.get("type") or "Opaque"
    if old is not None and kind != (old.get("type") or "Opaque"):
        errors.append(invalid("type", kind, IMMUTABLE))
    _immutable(errors, item, old, ("data",))
    data = {**(item.get("data") or {}), **(item.get("stringData") or {})}
    for key in data:
        errors.extend(invalid(f"data[{key}]", key, text) for text in config_key(key))
    if sum(len(value) * 3 // 4 for value in (item.get("data") or {}).values()) > _DATA_LIMIT:
        errors.append(too_long("data", _DATA_LIMIT))
    missing = [key for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    errors.extend(required(f"data[{key}]") for key in missing)
    if kind == "kubernetes.io/service-account-token":
        key = "kubernetes.io/service-account.name"
        if not ((item.get("metadata") or {}).get("annotations") or {}).get(key):
            errors.append(required(f"metadata.annotations[{key}]"))


def _immutable(
    errors: list[FieldError], item: dict[str, Any], old: dict[str, Any] | None, fields: tuple[str, ...]
) -> None:
    if old is None or not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not item.get("immutable"):
        errors.append(forbidden("immutable", detail))
    changed = [name for name in fields if (item.get(name) or {}) != (old.get(name) or {})]
    errors.extend(forbidden(name, detail) for name in changed)


def check_service(
    errors: list[FieldError], service: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Service: type, ports and selector."""
    spec = service.get("spec") or {}
    kind = spec.get("type") or "ClusterIP"
    types = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    headless = spec.get("clusterIP") == "None" or spec.get("clusterIPs") == ["None"]
    ports = spec.get("ports") or []
    if kind not in types:
        errors.append(not_supported("spec.type", kind, types))
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").removesuffix(".")
        if name:
            errors.extend(invalid("spec.externalName", name, text) for text in dns_subdomain(name))
        else:
            errors.append(required("spec.externalName"))
    elif not ports and not headless:
        errors.append(required("spec.ports"))
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"spec.ports[{index}]"
        name = port.get("name") or ""
        if len(ports) > 1 and not name:
            errors.append(required(f"{here}.name"))
        if name:
            errors.extend(invalid(f"{here}.name", name, text) for text in dns_label(name))
            if name in names:
                errors.append(duplicate(f"{here}.name", name))
            names.add(name)
        errors.extend(
            invalid(f"{here}.port", port.get("port") or 0, text) for text in port_number(port.get("port"))
        )
        target = port.get("targetPort")
        if isinstance(target, str):
            errors.extend(invalid(f"{here}.targetPort", target, text) for text in port_name(target))
        elif target is not None:
            errors.extend(invalid(f"{here}.targetPort", target, text) for text in port_number(target))
        if port.get("protocol") not in (None, "TCP", "UDP", "SCTP"):
            errors.append(not_supported(f"{here}.protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
    if spec.get("selector"):
        validate_labels(errors, spec["selector"], "spec.selector")
    if spec.get("sessionAffinity") not in (None, "None", "ClientIP"):
        errors.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None")))
    former = (old or {}).get("spec") or {}
    named = "ExternalName" in (kind, former.get("type"))
    if former.get("clusterIP") and not named and spec.get("clusterIP") != former["clusterIP"]:
        ips = spec.get("clusterIPs") or [spec.get("clusterIP") or ""]
        errors.append(invalid("spec.clusterIPs[0]", ips, "may not change once set"))
