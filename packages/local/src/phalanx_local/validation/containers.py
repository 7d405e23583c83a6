"""Validation of containers of a pod: regular, init and ephemeral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from phalanx_local.validation.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from phalanx_local.validation.names import (
    config_key,
    dns_label,
    dns_subdomain,
    env_name,
    in_range,
    port_name,
    port_number,
)
from phalanx_local.validation.resources import check_requirements
from phalanx_local.validation.volumes import check_mounts

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MAX_ID: Final = 2**31 - 1
_FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCE_FIELDS: Final = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_EPHEMERAL_FORBIDDEN: Final = (
    "ports",
    "resources",
    "resizePolicy",
    "lifecycle",
    *_PROBES,
    "restartPolicy",
    "restartPolicyRules",
)


@dataclass(frozen=True, slots=True)
class PodContext:
    """Properties of a pod that the rules of its containers need."""

    volumes: dict[str, dict[str, Any]]
    claims: frozenset[str]
    grace: int
    restart: str
    host_network: bool
    #: True for a pod, False for a template in another object.
    is_pod: bool


def check_containers(errors: list[FieldError], spec: dict[str, Any], path: str, around: PodContext) -> None:
    """Check all containers of a pod spec: regular, init and ephemeral."""
    containers = spec.get("containers") or []
    if not containers:
        errors.append(required(f"{path}.containers"))
    names: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}.containers[{index}]"
        _common(errors, container, here, around)
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{here}.name", name))
        names.add(name)
        _hooks(errors, container, here, around)
        if container.get("restartPolicy") is not None:
            _restart_policy(errors, container, f"{here}.restartPolicy", ("Always", "Never", "OnFailure"))
    _host_ports(errors, containers, f"{path}.containers")
    if around.host_network:
        _host_network_ports(errors, containers, f"{path}.containers", around)
    for index, container in enumerate(spec.get("initContainers") or ()):
        _init(errors, container, f"{path}.initContainers[{index}]", names, around)
    others = set(names)
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        _ephemeral(errors, container, f"{path}.ephemeralContainers[{index}]", names, others, around)


def _init(
    errors: list[FieldError], container: dict[str, Any], path: str, names: set[str], around: PodContext
) -> None:
    _common(errors, container, path, around)
    policy = container.get("restartPolicy")
    if policy is not None:
        _restart_policy(errors, container, f"{path}.restartPolicy", ("Always", "Never", "OnFailure"))
    name = container.get("name") or ""
    if name in names:
        errors.append(duplicate(f"{path}.name", name))
    elif name:
        names.add(name)
    _host_ports(errors, [container], path.rpartition("[")[0])
    if policy == "Always":
        _hooks(errors, container, path, around)
        return
    for field in ("lifecycle", *_PROBES):
        if container.get(field) is not None:
            detail = "may not be set for init containers without restartPolicy=Always"
            errors.append(forbidden(f"{path}.{field}", detail))


def _restart_policy(
    errors: list[FieldError], container: dict[str, Any], path: str, allowed: tuple[str, ...]
) -> None:
    policy = container["restartPolicy"]
    if policy not in allowed:
        errors.append(not_supported(path, policy, allowed))


def _ephemeral(
    errors: list[FieldError],
    container: dict[str, Any],
    path: str,
    names: set[str],
    others: set[str],
    around: PodContext,
) -> None:
    _common(errors, container, path, around)
    name = container.get("name") or ""
    if name in names:
        errors.append(duplicate(f"{path}.name", name))
    names.add(name)
    target = container.get("targetContainerName") or ""
    if target and target not in others:
        errors.append(FieldError(f"{path}.targetContainerName", "FieldValueNotFound", f'Not found: "{target}"'))
    set_anyway = [field for field in _EPHEMERAL_FORBIDDEN if container.get(field)]
    detail = "cannot be set for an Ephemeral Container"
    errors.extend(forbidden(f"{path}.{field}", detail) for field in set_anyway)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                where = f"{path}.volumeMounts[{index}].{field}"
                errors.append(forbidden(where, "cannot be set for an Ephemeral Container"))


def _common(errors: list[FieldError], container: dict[str, Any], path: str, around: PodContext) -> None:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors.extend(invalid(f"{path}.name", name, text) for text in dns_label(name))
    if not image:
        errors.append(required(f"{path}.image"))
    elif around.is_pod and image != image.strip():
        detail = "must not have leading or trailing whitespace"
        errors.append(invalid(f"{path}.image", image, detail))
    policy = container.get("terminationMessagePolicy")
    if policy not in (None, "File", "FallbackToLogsOnError"):
        allowed = ("File", "FallbackToLogsOnError")
        errors.append(not_supported(f"{path}.terminationMessagePolicy", policy, allowed, keep_order=True))
    if container.get("ports"):
        _ports(errors, container["ports"], f"{path}.ports")
    if container.get("env"):
        _env(errors, container["env"], f"{path}.env")
    if container.get("envFrom"):
        _env_from(errors, container["envFrom"], f"{path}.envFrom")
    if container.get("volumeMounts") or container.get("volumeDevices"):
        check_mounts(errors, container, around.volumes, path)
    if container.get("imagePullPolicy") not in (None, *PULL_POLICIES):
        where = f"{path}.imagePullPolicy"
        errors.append(not_supported(where, container["imagePullPolicy"], PULL_POLICIES))
    if container.get("resources"):
        check_requirements(errors, container["resources"], f"{path}.resources", around.claims)
    if container.get("resizePolicy"):
        _resize_policy(errors, container["resizePolicy"], f"{path}.resizePolicy", around.restart)
    if container.get("securityContext"):
        _security(errors, container["securityContext"], f"{path}.securityContext")


def _ports(errors: list[FieldError], ports: list[dict[str, Any]], path: str) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        name, number = port.get("name") or "", port.get("containerPort") or 0
        if name:
            complaints = port_name(name)
            if complaints:
                errors.extend(invalid(f"{here}.name", name, text) for text in complaints)
            elif name in names:
                errors.append(duplicate(f"{here}.name", name))
            names.add(name)
        if not number:
            errors.append(required(f"{here}.containerPort"))
        else:
            errors.extend(invalid(f"{here}.containerPort", number, text) for text in port_number(number))
        host = port.get("hostPort") or 0
        if host:
            errors.extend(invalid(f"{here}.hostPort", host, text) for text in port_number(host))
        if port.get("protocol") not in (None, *PROTOCOLS):
            errors.append(not_supported(f"{here}.protocol", port["protocol"], PROTOCOLS))


def _host_ports(errors: list[FieldError], containers: list[dict[str, Any]], path: str) -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                key = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{port['hostPort']}"
                if key in seen:
                    errors.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", key))
                seen.add(key)


def _host_network_ports(
    errors: list[FieldError], containers: list[dict[str, Any]], path: str, around: PodContext
) -> None:
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            # Defaulting sets a missing host port before a pod is checked.
            if host and host != port.get("containerPort"):
                where = f"{path}[{index}].ports[{position}].hostPort"
                detail = "must match `containerPort` when `hostNetwork` is true"
                errors.append(invalid(where, host, detail))


def _env(errors: list[FieldError], variables: list[dict[str, Any]], path: str) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        else:
            complaints = env_name(name)
            if complaints:
                errors.extend(invalid(f"{path}[{index}].name", name, text) for text in complaints)
        source = variable.get("valueFrom")
        if source is not None:
            _env_source(errors, variable, source, f"{path}[{index}].valueFrom")


def _env_source(errors: list[FieldError], variable: dict[str, Any], source: dict[str, Any], path: str) -> None:
    kinds = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    chosen = [name for name in kinds if source.get(name) is not None]
    if not chosen:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        errors.append(invalid(path, "", detail))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(chosen) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    field = source.get("fieldRef")
    if field is not None:
        name = field.get("fieldPath") or ""
        base = name.partition("[")[0]
        if not name:
            errors.append(required(f"{path}.fieldRef.fieldPath"))
        elif "[" in name and base not in ("metadata.annotations", "metadata.labels"):
            errors.append(invalid(f"{path}.fieldRef", base, "does not support subscript"))
        elif "[" not in name and name not in _FIELD_PATHS:
            errors.append(not_supported(f"{path}.fieldRef.fieldPath", name, _FIELD_PATHS))
    amount = source.get("resourceFieldRef")
    if amount is not None:
        name = amount.get("resource") or ""
        if not name:
            errors.append(required(f"{path}.resourceFieldRef.resource"))
        elif name not in _RESOURCE_FIELDS and not name.startswith(("limits.hugepages-", "requests.hugepages-")):
            errors.append(not_supported(f"{path}.resourceFieldRef.resource", name, _RESOURCE_FIELDS))
    for kind in ("configMapKeyRef", "secretKeyRef"):
        ref = source.get(kind)
        if ref is not None:
            name, key = ref.get("name") or "", ref.get("key") or ""
            errors.extend(invalid(f"{path}.{kind}.name", name, text) for text in dns_subdomain(name))
            if not key:
                errors.append(required(f"{path}.{kind}.key"))
            else:
                errors.extend(invalid(f"{path}.{kind}.key", key, text) for text in config_key(key))


def _env_from(errors: list[FieldError], sources: list[dict[str, Any]], path: str) -> None:
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        prefix = source.get("prefix") or ""
        if prefix:
            errors.extend(invalid(f"{here}.prefix", prefix, text) for text in env_name(prefix))
        chosen = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for kind in chosen:
            name = source[kind].get("name") or ""
            if not name:
                errors.append(required(f"{here}.{kind}.name"))
            else:
                errors.extend(invalid(f"{here}.{kind}.name", name, text) for text in dns_subdomain(name))
        if not chosen:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(chosen) > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))


def _resize_policy(errors: list[FieldError], policies: list[dict[str, Any]], path: str, restart: str) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        if not name:
            errors.append(required(path))
        elif name not in ("cpu", "memory"):
            errors.append(not_supported(path, name, ("cpu", "memory")))
        if not action:
            errors.append(required(path))
        elif action not in ("NotRequired", "RestartContainer"):
            errors.append(not_supported(path, action, ("NotRequired", "RestartContainer")))
        if restart == "Never" and action != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            errors.append(invalid(path, action, detail))


def check_ids(errors: list[FieldError], context: dict[str, Any], names: tuple[str, ...], path: str) -> None:
    """Check user and group ids of a security context."""
    for name in names:
        value = context.get(name)
        if value is not None:
            errors.extend(invalid(f"{path}.{name}", value, text) for text in in_range(value, 0, MAX_ID))


def check_seccomp(errors: list[FieldError], profile: Any, path: str) -> None:
    """Check a seccomp profile."""
    if not profile:
        return
    kind = profile.get("type") or ""
    allowed = ("Localhost", "RuntimeDefault", "Unconfined")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in allowed:
        errors.append(not_supported(f"{path}.type", kind, allowed))
    local = profile.get("localhostProfile")
    if kind == "Localhost" and local is None:
        detail = "must be set when seccomp type is Localhost"
        errors.append(required(f"{path}.localhostProfile", detail))
    elif kind != "Localhost" and local is not None:
        detail = "can only be set when seccomp type is Localhost"
        errors.append(invalid(f"{path}.localhostProfile", profile, detail))


def _security(errors: list[FieldError], context: dict[str, Any], path: str) -> None:
    check_ids(errors, context, ("runAsUser", "runAsGroup"), path)
    if context.get("procMount") not in (None, "Default", "Unmasked"):
        errors.append(not_supported(f"{path}.procMount", context["procMount"], ("Default", "Unmasked")))
    check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid(path, context, detail))
        added = (context.get("capabilities") or {}).get("add") or []
        if "CAP_SYS_ADMIN" in added:
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(invalid(path, context, detail))


def _hooks(errors: list[FieldError], container: dict[str, Any], path: str, around: PodContext) -> None:
    lifecycle = container.get("lifecycle")
    if lifecycle:
        for name in ("postStart", "preStop"):
            if lifecycle.get(name) is not None:
                _handler(errors, lifecycle[name], f"{path}.lifecycle.{name}", around.grace)
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            _probe(errors, name, probe, f"{path}.{name}", around.grace)


def _probe(errors: list[FieldError], name: str, probe: dict[str, Any], path: str, grace: int) -> None:
    _handler(errors, probe, path, grace)
    counted = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    negative = [field for field in counted if (probe.get(field) or 0) < 0]
    detail = "must be greater than or equal to 0"
    errors.extend(invalid(f"{path}.{field}", probe[field], detail) for field in negative)
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None:
        where = f"{path}.terminationGracePeriodSeconds"
        if seconds <= 0:
            errors.append(invalid(where, seconds, "must be greater than 0"))
        if name == "readinessProbe":
            errors.append(invalid(where, seconds, "must not be set for readinessProbes"))
    if name != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
        errors.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))


def _handler(errors: list[FieldError], handler: dict[str, Any], path: str, grace: int) -> None:
    kinds = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
    chosen = [kind for kind in kinds if handler.get(kind) is not None]
    if not chosen:
        errors.append(required(path, "must specify a handler type"))
        return
    detail = "may not specify more than 1 handler type"
    errors.extend(forbidden(f"{path}.{kind}", detail) for kind in chosen[1:])
    kind = chosen[0]
    action, here = handler[kind], f"{path}.{kind}"
    if kind == "exec":
        if not action.get("command"):
            errors.append(required(f"{here}.command"))
        return
    if kind == "sleep":
        seconds = action.get("seconds") or 0
        if not 0 <= seconds <= grace:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            errors.append(invalid(here, seconds, text))
        return
    port = action.get("port")
    complaints = port_name(port) if isinstance(port, str) else port_number(port if port is not None else 0)
    errors.extend(invalid(f"{here}.port", port, text) for text in complaints)
    if kind == "httpGet" and action.get("scheme") not in (None, "HTTP", "HTTPS"):
        errors.append(not_supported(f"{here}.scheme", action["scheme"], ("HTTP", "HTTPS")))
