"""Validation of pods (create and update), bindings, and pod templates."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from phalanx.model.text.decoding import parse_whole
from phalanx.model.text.quantity import Quantity, QuantityError, read_quantity
from phalanx_local.validation.containers import (
    MAX_ID,
    PodContext,
    check_containers,
    check_ids,
    check_seccomp,
)
from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from phalanx_local.validation.metadata import validate_labels
from phalanx_local.validation.names import dns_label, dns_subdomain, in_range, label_key
from phalanx_local.validation.placement import check_affinity, check_spread, check_tolerations
from phalanx_local.validation.pod_updates import check_pod_update
from phalanx_local.validation.resources import check_requirements
from phalanx_local.validation.volumes import check_volumes

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
MIRROR: Final = "kubernetes.io/config.mirror"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_DEFAULT_GRACE: Final = 30


def check_pod(errors: list[FieldError], pod: dict[str, Any], old: dict[str, Any] | None, subresource: str) -> None:
    """Check a pod on create, on update, and on its subresources."""
    spec = pod.get("spec") or {}
    if subresource == "status":
        _status(errors, pod, old or {})
        return
    _annotations(errors, pod, spec)
    name = (pod.get("metadata") or {}).get("name") or ""
    if old is not None and (old.get("spec") or {}) == spec:
        return
    check_pod_spec(errors, spec, "spec", pod_name=name, is_pod=True)
    if old is None:
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(forbidden("spec.nodeName", detail))
        return
    check_pod_update(errors, pod, old, subresource)


def _annotations(errors: list[FieldError], pod: dict[str, Any], spec: dict[str, Any]) -> None:
    annotations = (pod.get("metadata") or {}).get("annotations")
    if not annotations:
        return
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"metadata.annotations[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(DELETION_COST)
    if cost is not None and not _int32(cost):
        errors.append(invalid(f"metadata.annotations[{DELETION_COST}]", cost, "must be a 32bit integer"))


def _int32(text: str) -> bool:
    digits = text.removeprefix("-")
    if text != "0" and (not digits.isascii() or not digits.isdigit() or digits.startswith("0")):
        return False
    return parse_whole(text, -(2**31), 2**31 - 1) is not None


def check_template(errors: list[FieldError], template: Any, path: str) -> None:
    """Check a pod template within another object, such as a Deployment."""
    meta = template.get("metadata") or {}
    if meta.get("labels"):
        validate_labels(errors, meta["labels"], f"{path}.labels")
    for key in meta.get("annotations") or ():
        errors.extend(invalid(f"{path}.annotations", key, text) for text in label_key(key.lower()))
    spec = template.get("spec") or {}
    check_pod_spec(errors, spec, f"{path}.spec", pod_name="", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", detail))


def check_pod_spec(
    errors: list[FieldError], spec: dict[str, Any], path: str, *, pod_name: str, is_pod: bool
) -> None:
    """Check a pod spec; fields with defaults can be missing."""
    grace = spec.get("terminationGracePeriodSeconds")
    volumes = check_volumes(errors, spec.get("volumes"), f"{path}.volumes", pod_name)
    claims = _resource_claims(errors, spec.get("resourceClaims"), f"{path}.resourceClaims")
    around = PodContext(
        volumes,
        claims,
        _DEFAULT_GRACE if grace is None else grace,
        spec.get("restartPolicy") or "Always",
        bool(spec.get("hostNetwork")),
        is_pod,
    )
    check_containers(errors, spec, path, around)
    if spec.get("resources"):
        _pod_resources(errors, spec, f"{path}.resources")
    for name, allowed in (
        ("restartPolicy", RESTART_POLICIES),
        ("dnsPolicy", DNS_POLICIES),
        ("preemptionPolicy", PREEMPTION_POLICIES),
    ):
        if spec.get(name) is not None and spec[name] not in allowed:
            errors.append(not_supported(f"{path}.{name}", spec[name], allowed, keep_order=True))
    if spec.get("nodeSelector"):
        validate_labels(errors, spec["nodeSelector"], f"{path}.nodeSelector")
    if spec.get("securityContext"):
        _security(errors, spec, f"{path}.securityContext")
    check_affinity(errors, spec.get("affinity"), f"{path}.affinity")
    if spec.get("dnsConfig") or spec.get("dnsPolicy") == "None":
        _dns(errors, spec, f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        name = gate.get("conditionType") or ""
        where = f"{path}.readinessGates[{index}].conditionType"
        errors.extend(invalid(where, name, text) for text in label_key(name))
    if spec.get("schedulingGates"):
        _gates(errors, spec["schedulingGates"], f"{path}.schedulingGates")
    if spec.get("topologySpreadConstraints"):
        where = f"{path}.topologySpreadConstraints"
        check_spread(errors, spec["topologySpreadConstraints"], where)
    for name in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName", "schedulerName"):
        value = spec.get(name)
        if value:
            errors.extend(invalid(f"{path}.{name}", value, text) for text in dns_subdomain(value))
    for name in ("hostname", "subdomain"):
        value = spec.get(name)
        if value:
            errors.extend(invalid(f"{path}.{name}", value, text) for text in dns_label(value))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        where = f"{path}.activeDeadlineSeconds"
        errors.extend(invalid(where, deadline, text) for text in in_range(deadline, 1, 2**31 - 1))
    check_tolerations(errors, spec.get("tolerations"), f"{path}.tolerations")
    _host_aliases(errors, spec.get("hostAliases"), f"{path}.hostAliases")
    if spec.get("overhead"):
        check_requirements(errors, {"limits": spec["overhead"]}, f"{path}.overhead", frozenset())
    group = spec.get("schedulingGroup")
    if group is not None:
        name = group.get("podGroupName") or ""
        where = f"{path}.schedulingGroup"
        if not name:
            errors.append(invalid(where, "", "must specify one of: `podGroupName`"))
        else:
            errors.extend(invalid(f"{where}.podGroupName", name, text) for text in dns_subdomain(name))
    system = spec.get("os")
    if system is not None:
        if not system.get("name"):
            errors.append(required(f"{path}.os.name", "cannot be empty"))
        elif system["name"] not in ("linux", "windows"):
            errors.append(not_supported(f"{path}.os", system["name"], ("linux", "windows")))


def _resource_claims(errors: list[FieldError], claims: Any, path: str) -> frozenset[str]:
    names: set[str] = set()
    for index, claim in enumerate(claims or ()):
        here = f"{path}[{index}]"
        name = claim.get("name") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        elif name in names:
            errors.append(duplicate(f"{here}.name", name))
        else:
            errors.extend(invalid(f"{here}.name", name, text) for text in dns_label(name))
            names.add(name)
        direct, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        if direct is not None and template is not None:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid(here, claim, detail))
        if direct is None and template is None:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(here, claim, detail))
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            value = claim.get(field)
            if value is not None:
                errors.extend(invalid(f"{here}.{field}", value, text) for text in dns_subdomain(value))
    return frozenset(names)


def _amounts(listed: Any) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for name, value in (listed or {}).items():
        try:
            found[name] = read_quantity(value)
        except QuantityError:
            continue  # the check of the list reports this already
    return found


def _pod_resources(errors: list[FieldError], spec: dict[str, Any], path: str) -> None:
    needs = spec["resources"]
    if needs.get("claims"):
        errors.append(forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level"))
    check_requirements(errors, {**needs, "claims": None}, path, frozenset(), pod_level=True)
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in _amounts((container.get("resources") or {}).get("requests")).items():
            total[name] = total.get(name, 0) + amount.nano
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = _amounts((container.get("resources") or {}).get("requests"))
        if container.get("restartPolicy") == "Always":
            for name, amount in requests.items():
                sidecars[name] = sidecars.get(name, 0) + amount.nano
            continue
        for name, amount in requests.items():
            peak[name] = max(peak.get(name, 0), amount.nano + sidecars.get(name, 0))
    for name, nano in sidecars.items():
        total[name] = total.get(name, 0) + nano
    for name, nano in peak.items():
        total[name] = max(total.get(name, 0), nano)
    pod_requests = _amounts(needs.get("requests"))
    for name, nano in total.items():
        have = pod_requests.get(name, Quantity(0))
        # Missing requests default to the sum of the containers' requests.
        if nano > have.nano and name in pod_requests:
            detail = f"must be greater than or equal to aggregate container requests of {Quantity(nano)}"
            errors.append(invalid(f"{path}.requests[{name}]", str(have), detail))
    limits = _amounts(needs.get("limits"))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in _amounts((container.get("resources") or {}).get("limits")).items():
            if name in limits and amount.nano > limits[name].nano:
                where = f"{path}.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                errors.append(invalid(where, str(amount), detail))


def _security(errors: list[FieldError], spec: dict[str, Any], path: str) -> None:
    context = spec["securityContext"]
    check_ids(errors, context, ("fsGroup", "runAsUser", "runAsGroup"), path)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        where = f"{path}.supplementalGroups[{index}]"
        errors.extend(invalid(where, group, text) for text in in_range(group, 0, MAX_ID))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{path}.shareProcessNamespace", True, detail))
    for name, allowed in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ):
        if context.get(name) is not None and context[name] not in allowed:
            errors.append(not_supported(f"{path}.{name}", context[name], allowed))
    check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")


def _dns(errors: list[FieldError], spec: dict[str, Any], path: str) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errors.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.append(required(f"{path}.nameservers", detail))
            return
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errors.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        check_ip(errors, server, f"{path}.nameservers[{index}]")
    if len(searches) > 32:
        errors.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid(f"{path}.searches", searches, detail))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{index}]", "must not be empty"))


def check_ip(errors: list[FieldError], value: Any, path: str) -> None:
    """Check an IP address (IPv4 or IPv6)."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        errors.append(invalid(path, value, detail))


def _gates(errors: list[FieldError], gates: list[dict[str, Any]], path: str) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors.extend(invalid(f"{path}[{index}]", name, text) for text in label_key(name))
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _host_aliases(errors: list[FieldError], aliases: Any, path: str) -> None:
    for index, alias in enumerate(aliases or ()):
        check_ip(errors, alias.get("ip") or "", f"{path}[{index}].ip")
        for position, name in enumerate(alias.get("hostnames") or ()):
            where = f"{path}[{index}].hostnames[{position}]"
            errors.extend(invalid(where, name, text) for text in dns_subdomain(name))


_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")


def _status(errors: list[FieldError], pod: dict[str, Any], old: dict[str, Any]) -> None:
    status, former = pod.get("status") or {}, old.get("status") or {}
    spec, old_spec = pod.get("spec") or {}, old.get("spec") or {}
    for index, condition in enumerate(status.get("conditions") or ()):
        name = condition.get("type") or ""
        if name not in _SYSTEM_CONDITIONS:
            where = f"metadata.conditions[{index}].Type"
            errors.extend(invalid(where, name, text) for text in label_key(name))
    if spec.get("nodeName") != old_spec.get("nodeName"):
        errors.append(forbidden("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != former.get("nominatedNodeName"):
        where = "status.nominatedNodeName"
        errors.extend(invalid(where, nominated, text) for text in dns_subdomain(nominated))
    if former.get("qosClass") and status.get("qosClass") != former["qosClass"]:
        errors.append(invalid("status.qosClass", status.get("qosClass"), "field is immutable"))
    restart = old_spec.get("restartPolicy") or "Always"
    sidecars = {
        item.get("name") for item in old_spec.get("initContainers") or () if item.get("restartPolicy") == "Always"
    }
    _transitions(errors, status, former, "containerStatuses", restart, set())
    _transitions(errors, status, former, "initContainerStatuses", restart, sidecars)
    _transitions(errors, status, former, "ephemeralContainerStatuses", "Never", set())
    for index, item in enumerate(status.get("podIPs") or ()):
        check_ip(errors, item.get("ip") or "", f"status.podIPs[{index}]")


def _transitions(
    errors: list[FieldError],
    status: dict[str, Any],
    former: dict[str, Any],
    name: str,
    restart: str,
    exempt: set[Any],
) -> None:
    """Check that a container that has ended for good does not run again."""
    if restart == "Always":
        return
    current = {item.get("name"): item for item in status.get(name) or ()}
    for index, item in enumerate(former.get(name) or ()):
        ended = (item.get("state") or {}).get("terminated")
        if ended is None or item.get("name") in exempt:
            continue
        if ended.get("exitCode") and restart == "OnFailure":
            continue
        now = current.get(item.get("name"))
        if now is not None and (now.get("state") or {}).get("terminated") is None:
            detail = "may not be transitioned to non-terminated state"
            errors.append(forbidden(f"status.{name}[{index}].state", detail))


def check_binding(
    errors: list[FieldError], binding: dict[str, Any], old: dict[str, Any] | None, subresource: str
) -> None:
    """Check a Binding: it must name a node."""
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        errors.append(not_supported("target.kind", target["kind"], ("Node", "<empty>"), keep_order=True))
    if not target.get("name"):
        errors.append(required("target.name"))
