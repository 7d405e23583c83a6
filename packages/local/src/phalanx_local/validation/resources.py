"""Validation of resource lists: names, quantities, and limits relative to requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from phalanx.model.text.quantity import Quantity, QuantityError, read_quantity
from phalanx_local.validation.errors import FieldError, forbidden, invalid, not_supported, required
from phalanx_local.validation.names import Complaints, dns_label, label_key

HUGE_PAGES: Final = "hugepages-"
NEGATIVE: Final = "must be greater than or equal to 0"
NOT_INTEGER: Final = "must be an integer"

_CONTAINER: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED: Final = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_STANDARD: Final = (
    _CONTAINER
    | _COUNTED
    | frozenset(
        f"{side}.{name}" for side in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")
    )
    | {"storage", "requests.storage"}
)
_POD_LEVEL: Final = frozenset(("cpu", "memory"))

NameRule = Callable[[str], Complaints]


def native(name: str) -> bool:
    """Return whether Kubernetes itself defines the resource (no domain, or a domain under kubernetes.io)."""
    return "/" not in name or "kubernetes.io/" in name


def extended(name: str) -> bool:
    """Return whether the resource is an extended resource, for example of a device plugin: whole numbers, request
    equals limit."""
    return not native(name) and not name.startswith("requests.") and not label_key("requests." + name)


def huge_pages(name: str) -> bool:
    """Return whether the resource is huge pages of one size."""
    return name.startswith(HUGE_PAGES)


@lru_cache(maxsize=2048)
def resource_name(name: str) -> Complaints:
    """Return the errors of a resource name of a node, a quota or a limit range."""
    found = label_key(name)
    if found:
        return found
    if "/" not in name and name not in _STANDARD and not huge_pages(name.removeprefix("requests.")):
        return ("must be a standard resource type or fully qualified",)
    return ()


@lru_cache(maxsize=2048)
def container_resource_name(name: str) -> Complaints:
    """Return the errors of a resource name in a container's requests or limits."""
    found = list(resource_name(name))
    if "/" not in name:
        if name not in _CONTAINER and not huge_pages(name):
            found.append("must be a standard resource for containers")
    elif not native(name) and not extended(name):
        found.append("doesn't follow extended resource name standard")
    return tuple(found)


def parsed(errors: list[FieldError], value: Any, path: str) -> Quantity | None:
    """Parse a resource quantity; return None after adding an error for a malformed one."""
    try:
        return read_quantity(value)
    except QuantityError as error:
        errors.append(invalid(path, value, error.reason))
        return None


def check_quantity(errors: list[FieldError], name: str, quantity: Quantity, path: str) -> None:
    """Check that a resource quantity is not negative, and that countable resources have no fraction."""
    if quantity.nano < 0:
        errors.append(invalid(path, str(quantity), NEGATIVE))
    if not quantity.is_integer and (name in _COUNTED or extended(name)):
        errors.append(invalid(path, str(quantity), NOT_INTEGER))


def check_list(
    errors: list[FieldError], listed: Any, path: str, name_rule: NameRule | None = None
) -> dict[str, Quantity]:
    """Check a resource list and return its valid quantities."""
    amounts: dict[str, Quantity] = {}
    for name, value in (listed or {}).items():
        here = f"{path}[{name}]"
        if name_rule is not None:
            errors.extend(invalid(here, name, text) for text in name_rule(name))
        quantity = parsed(errors, value, here)
        if quantity is not None:
            check_quantity(errors, name, quantity, here)
            amounts[name] = quantity
    return amounts


def check_requirements(
    errors: list[FieldError], needs: Any, path: str, claims: frozenset[str], *, pod_level: bool = False
) -> None:
    """Check the field ``resources`` of a container or of a pod."""
    if not needs:
        return
    name_rule = None if pod_level else container_resource_name
    limits_path, requests_path = f"{path}.limits", f"{path}.requests"
    limits = check_list(errors, needs.get("limits"), limits_path, name_rule)
    requests = check_list(errors, needs.get("requests"), requests_path, name_rule)
    for side, where in ((limits, limits_path), (requests, requests_path)):
        for name, quantity in side.items():
            if pod_level and name not in _POD_LEVEL and not huge_pages(name):
                allowed = ("cpu", "hugepages-", "memory")
                errors.append(not_supported(f"{where}[{name}]", name, allowed))
            if huge_pages(name) and not _whole_pages(name, quantity):
                errors.append(
                    invalid(
                        f"{where}[{name}]",
                        str(quantity),
                        f"{quantity} is not positive integer multiple of {name}",
                    )
                )
    for name, quantity in requests.items():
        limit = limits.get(name)
        shared = native(name) and not huge_pages(name)
        if limit is not None:
            if quantity.nano != limit.nano and not shared:
                detail = f"must be equal to {name} limit of {limit}"
                errors.append(invalid(requests_path, str(quantity), detail))
            elif quantity.nano > limit.nano:
                detail = f"must be less than or equal to {name} limit of {limit}"
                errors.append(invalid(requests_path, str(quantity), detail))
        elif not shared:
            errors.append(required(limits_path, "Limit must be set for non overcommitable resources"))
    named = limits.keys() | requests.keys()
    if not pod_level and any(map(huge_pages, named)) and not named & _POD_LEVEL:
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    _claims(errors, needs.get("claims"), f"{path}.claims", claims)


def _whole_pages(name: str, quantity: Quantity) -> bool:
    try:
        page = read_quantity(name.removeprefix(HUGE_PAGES))
    except QuantityError:
        return False
    return page.nano > 0 and quantity.nano % page.nano == 0


def _claims(errors: list[FieldError], claims: Any, path: str, known: frozenset[str]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims or ()):
        here = f"{path}[{index}]"
        name, request = claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(required(here))
            continue
        if request:
            errors.extend(invalid(f"{here}.request", request, text) for text in dns_label(request))
        overlap = (name, "") in seen or (name, request) in seen
        if overlap or (not request and any(other == name for other, _ in seen)):
            key = f"{name}/{request}" if request and (name, "") not in seen else name
            errors.append(FieldError(here, "FieldValueDuplicate", f'Duplicate value: "{key}"'))
        seen.add((name, request))
        if name not in known:
            text = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims'
            text += ": " + ", ".join(sorted(known)) if known else " which is empty"
            errors.append(FieldError(here, "FieldValueNotFound", text))
