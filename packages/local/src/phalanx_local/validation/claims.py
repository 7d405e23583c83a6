"""Validation of resource.k8s.io: ResourceClaims, their templates and statuses, and ResourceSlices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from phalanx_local.validation.metadata import IMMUTABLE
from phalanx_local.validation.names import dns_label, dns_subdomain, label_key

Obj = dict[str, Any]

_REQUESTS, _ALTERNATIVES, _RESULTS, _CONSUMERS, _DEVICES, _SELECTORS = 32, 8, 32, 256, 128, 32
_EXPRESSION: Final = 10 * 1024
_DRIVER, _ATTRIBUTES, _COUNTER_SETS = 63, 32, 8
_MODES: Final = ("All", "ExactCount")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_RULE: Final = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
_ONE_ACCESS: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def check_claim(errors: list[FieldError], claim: Obj, old: Obj | None, subresource: str) -> None:
    """Check a ResourceClaim: an immutable spec, and a status whose devices and consumers agree with it."""
    if subresource == "status":
        _check_status(errors, claim, old or {})
        return
    if old is not None:
        if (claim.get("spec") or {}) != (old.get("spec") or {}):
            errors.append(invalid("spec", claim.get("spec"), IMMUTABLE))
        return
    _check_claim_spec(errors, claim.get("spec") or {}, "spec")


def check_claim_template(errors: list[FieldError], template: Obj, old: Obj | None, subresource: str) -> None:
    """Check a ResourceClaimTemplate, which is immutable."""
    spec = template.get("spec") or {}
    if old is not None:
        if spec != (old.get("spec") or {}):
            errors.append(invalid("spec", spec, IMMUTABLE))
        return
    _check_claim_spec(errors, spec.get("spec") or {}, "spec.spec")


def check_device_class(errors: list[FieldError], item: Obj, old: Obj | None, subresource: str) -> None:
    spec = item.get("spec") or {}
    _check_selectors(errors, spec.get("selectors") or (), "spec.selectors")
    for index, config in enumerate(spec.get("config") or ()):
        _check_config(errors, config, f"spec.config[{index}]")


def check_slice(errors: list[FieldError], item: Obj, old: Obj | None, subresource: str) -> None:
    """Check a ResourceSlice: exactly one node selection, for the slice or per device; driver, pool and node
    immutable.
    """
    spec, path = item.get("spec") or {}, "spec"
    _check_driver(errors, spec.get("driver") or "", "spec.driver")
    pool = spec.get("pool") or {}
    _check_pool(errors, pool.get("name") or "", "spec.pool.name")
    if (pool.get("resourceSliceCount") or 0) <= 0:
        errors.append(
            invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount"), "must be greater than zero")
        )
    if (pool.get("generation") or 0) < 0:
        errors.append(
            invalid("spec.pool.generation", pool.get("generation"), "must be greater than or equal to zero")
        )
    given = [name for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(name)]
    if not given:
        errors.append(required(path, _ONE_ACCESS))
    elif len(given) > 1:
        errors.append(
            invalid(
                path,
                "{" + ", ".join(f"`{name}`" for name in given) + "}",
                _ONE_ACCESS + ", but multiple fields are set",
            )
        )
    if len((spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ("",)) != 1:
        terms = spec["nodeSelector"]["nodeSelectorTerms"]
        errors.append(
            invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
        )
    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and counters:
        errors.append(invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    if len(devices) > _DEVICES:
        errors.append(too_many("spec.devices", len(devices), _DEVICES))
    _check_unique(errors, devices, "spec.devices", lambda device, at: _check_device(errors, device, at, spec))
    if len(counters) > _COUNTER_SETS:
        errors.append(too_many("spec.sharedCounters", len(counters), _COUNTER_SETS))
    _check_unique(errors, counters, "spec.sharedCounters", lambda counter, at: None)
    if old is None:
        return
    former = old.get("spec") or {}
    errors.extend(
        invalid(f"spec.{field}", spec.get(field), IMMUTABLE)
        for field in ("driver", "nodeName")
        if (spec.get(field) or "") != (former.get(field) or "")
    )
    if pool.get("name") != (former.get("pool") or {}).get("name"):
        errors.append(invalid("spec.pool.name", pool.get("name"), IMMUTABLE))


# claims


def _check_claim_spec(errors: list[FieldError], spec: Obj, path: str) -> None:
    devices, path = spec.get("devices") or {}, f"{path}.devices"
    requests = devices.get("requests") or []
    if len(requests) > _REQUESTS:
        errors.append(too_many(f"{path}.requests", len(requests), _REQUESTS))
    _check_unique(errors, requests, f"{path}.requests", lambda request, at: _check_request(errors, request, at))
    names = set(_request_names(devices))
    for index, constraint in enumerate(devices.get("constraints") or ()):
        at = f"{path}.constraints[{index}]"
        _check_references(errors, constraint.get("requests") or (), f"{at}.requests", names)
        stated = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
        if not stated:
            # Messages of kube-apiserver for neither field and for both; 1.36 accepts both.
            errors.append(required(at, _ONE_RULE))
        elif "/" not in constraint[stated[0]]:
            detail = "a fully qualified name must be a domain and a name separated by a slash"
            errors.append(invalid(f"{at}.{stated[0]}", constraint[stated[0]], detail))
    for index, config in enumerate(devices.get("config") or ()):
        _check_references(errors, config.get("requests") or (), f"{path}.config[{index}].requests", names)
        _check_config(errors, config, f"{path}.config[{index}]")


def _check_request(errors: list[FieldError], request: Obj, path: str) -> None:
    alternatives, exactly = request.get("firstAvailable") or [], request.get("exactly")
    if not alternatives and exactly is None:
        errors.append(required(path, "exactly one of `exactly` or `firstAvailable` is required"))
    elif alternatives and exactly is not None:
        detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        errors.append(invalid(path, None, detail))
    elif exactly is not None:
        _check_ask(errors, exactly, f"{path}.exactly")
    if len(alternatives) > _ALTERNATIVES:
        errors.append(too_many(f"{path}.firstAvailable", len(alternatives), _ALTERNATIVES))
    _check_unique(errors, alternatives, f"{path}.firstAvailable", lambda ask, at: _check_ask(errors, ask, at))


def _check_ask(errors: list[FieldError], ask: Obj, path: str) -> None:
    if not ask.get("deviceClassName"):
        errors.append(required(f"{path}.deviceClassName"))
    else:
        errors.extend(
            invalid(f"{path}.deviceClassName", ask["deviceClassName"], text)
            for text in dns_subdomain(ask["deviceClassName"])
        )
    _check_selectors(errors, ask.get("selectors") or (), f"{path}.selectors")
    mode, count = ask.get("allocationMode") or "ExactCount", ask.get("count")
    if mode not in _MODES:
        errors.append(not_supported(f"{path}.allocationMode", mode, _MODES))
    elif mode == "All" and count:
        errors.append(invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count is not None and count <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    for index, toleration in enumerate(ask.get("tolerations") or ()):
        _check_toleration(errors, toleration, f"{path}.tolerations[{index}]")


def _check_toleration(errors: list[FieldError], toleration: Obj, path: str) -> None:
    operator = toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists"):
        errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    elif operator == "Exists" and toleration.get("value"):
        errors.append(invalid(f"{path}.value", toleration["value"], "must be empty for operator `Exists`"))
    if toleration.get("key"):
        errors.extend(invalid(f"{path}.key", toleration["key"], text) for text in label_key(toleration["key"]))
    if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
        errors.append(not_supported(f"{path}.effect", toleration["effect"], _EFFECTS))


def _check_selectors(errors: list[FieldError], selectors: Any, path: str) -> None:
    if len(selectors) > _SELECTORS:
        errors.append(too_many(path, len(selectors), _SELECTORS))
    for index, selector in enumerate(selectors):
        cel = selector.get("cel")
        if cel is None:
            errors.append(required(f"{path}[{index}].cel"))
        elif len((cel.get("expression") or "").encode()) > _EXPRESSION:
            errors.append(too_long(f"{path}[{index}].cel.expression", _EXPRESSION))
        elif not (cel.get("expression") or "").strip():
            errors.append(required(f"{path}[{index}].cel.expression"))


def _check_config(errors: list[FieldError], config: Obj, path: str) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errors.append(required(f"{path}.opaque"))
        return
    _check_driver(errors, opaque.get("driver") or "", f"{path}.opaque.driver")
    if opaque.get("parameters") is None:
        errors.append(required(f"{path}.opaque.parameters"))
    elif not isinstance(opaque["parameters"], dict):
        errors.append(invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object"))


def _check_references(errors: list[FieldError], names: Any, path: str, known: set[str]) -> None:
    for index, name in enumerate(names):
        if name not in known:
            errors.append(invalid(f"{path}[{index}]", name, _NO_REQUEST))


def _request_names(devices: Obj) -> list[str]:
    names = []
    for request in devices.get("requests") or ():
        name = request.get("name") or ""
        names.append(name)
        names.extend(f"{name}/{ask.get('name') or ''}" for ask in request.get("firstAvailable") or ())
    return names


def _check_status(errors: list[FieldError], claim: Obj, old: Obj) -> None:
    status, former = claim.get("status") or {}, old.get("status") or {}
    allocation, consumers = status.get("allocation"), status.get("reservedFor") or []
    if consumers and allocation is None:
        errors.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    if len(consumers) > _CONSUMERS:
        errors.append(too_many("status.reservedFor", len(consumers), _CONSUMERS))
    before = [entry.get("uid") for entry in former.get("reservedFor") or ()]
    for index, consumer in enumerate(consumers):
        path = f"status.reservedFor[{index}]"
        errors.extend(
            required(f"{path}.{field}") for field in ("resource", "name", "uid") if not consumer.get(field)
        )
        if consumer.get("uid") in [entry.get("uid") for entry in consumers[:index]]:
            errors.append(duplicate(f"{path}.uid", consumer.get("uid")))
    if (claim.get("metadata") or {}).get("deletionTimestamp") and any(
        consumer.get("uid") not in before for consumer in consumers
    ):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.append(forbidden("status.reservedFor", detail))
    if allocation is None:
        return
    if former.get("allocation") is not None:
        if allocation != former["allocation"]:
            errors.append(invalid("status.allocation", allocation, IMMUTABLE))
        return
    names = set(_request_names((claim.get("spec") or {}).get("devices") or {}))
    results = (allocation.get("devices") or {}).get("results") or []
    if len(results) > _RESULTS:
        errors.append(too_many("status.allocation.devices.results", len(results), _RESULTS))
    for index, result in enumerate(results):
        path = f"status.allocation.devices.results[{index}]"
        _check_references(errors, [result.get("request") or ""], f"{path}.request", names)
        _check_driver(errors, result.get("driver") or "", f"{path}.driver")
        _check_pool(errors, result.get("pool") or "", f"{path}.pool")
        _check_label(errors, result.get("device") or "", f"{path}.device")
    for index, config in enumerate((allocation.get("devices") or {}).get("config") or ()):
        path = f"status.allocation.devices.config[{index}]"
        if config.get("source") not in ("FromClaim", "FromClass"):
            errors.append(not_supported(f"{path}.source", config.get("source"), ("FromClaim", "FromClass")))
        _check_references(errors, config.get("requests") or (), f"{path}.requests", names)
        _check_config(errors, config, path)


# slices


def _check_device(errors: list[FieldError], device: Obj, path: str, spec: Obj) -> None:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES}"
        errors.append(invalid(path, len(attributes) + len(capacity), detail))
    for name, attribute in attributes.items():
        if len([value for value in attribute.values() if value is not None]) != 1:
            errors.append(invalid(f"{path}.attributes[{name}]", attribute, "exactly one value must be specified"))
    for index, taint in enumerate(device.get("taints") or ()):
        if taint.get("effect") not in _EFFECTS:
            errors.append(not_supported(f"{path}.taints[{index}].effect", taint.get("effect"), _EFFECTS))
    given = [name for name in ("nodeName", "nodeSelector", "allNodes") if device.get(name)]
    if spec.get("perDeviceNodeSelection"):
        detail = (
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is "
            "set to true in the ResourceSlice spec"
        )
        if len(given) != 1:
            errors.append(required(path, detail))
    elif given:
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        errors.append(invalid(path, None, detail))


def _check_unique(errors: list[FieldError], items: list[Obj], path: str, check: Callable[[Obj, str], None]) -> None:
    """Check that each item has a unique name that is a DNS label."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        at, name = f"{path}[{index}]", item.get("name") or ""
        _check_label(errors, name, f"{at}.name")
        if name in seen:
            errors.append(duplicate(at, name))
        seen.add(name)
        check(item, at)


def _check_label(errors: list[FieldError], name: str, path: str) -> None:
    if not name:
        errors.append(required(path))
    else:
        errors.extend(invalid(path, name, text) for text in dns_label(name))


def _check_driver(errors: list[FieldError], name: str, path: str) -> None:
    if not name:
        errors.append(required(path))
    elif len(name) > _DRIVER:
        errors.append(too_long(path, _DRIVER))
    else:
        errors.extend(invalid(path, name, text) for text in dns_subdomain(name))


def _check_pool(errors: list[FieldError], name: str, path: str) -> None:
    if not name:
        errors.append(required(path))
    for part in name.split("/") if name else ():
        errors.extend(invalid(path, part, text) for text in dns_subdomain(part))
