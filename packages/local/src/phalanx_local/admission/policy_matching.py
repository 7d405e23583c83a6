"""Match of requests with ValidatingAdmissionPolicies, their bindings, and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from phalanx.model.matching import all_hold
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.registry.api import Api
from phalanx_local.registry.resources import Version
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.strategies.base import Write

ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Request:
    """Write to admit. Objects are in the client's version, None if absent.

    `namespace_object` is the namespace of the object, None for cluster-scoped objects.
    """

    operation: str
    version: Version
    subresource: str
    namespace: str
    name: str
    obj: Json | None
    old: Json | None
    namespace_object: Json | None
    dry_run: bool

    @property
    def resource(self) -> str:
        plural = self.version.type.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def request_about(
    api: Api,
    operation: str,
    version: Version,
    obj: Json | None,
    old: Json | None,
    write: Write,
    *,
    of: tuple[str, str, str],
) -> Request:
    """Return the request of a write for policies and webhooks.

    Objects are in stored form, or in the form of the request for some subresources; `of` is the namespace, the
    name and the subresource.
    """
    namespace, name, subresource = of
    namespace_object = api.find("", "namespaces", "", namespace) if namespace else None
    return Request(
        operation,
        version,
        subresource,
        namespace,
        name,
        _shown(version, obj),
        _shown(version, old),
        {"kind": "Namespace", "apiVersion": "v1", **namespace_object} if namespace_object is not None else None,
        write.dry_run,
    )


def _shown(version: Version, obj: Json | None) -> Json | None:
    if obj is None or "apiVersion" in obj:
        return obj
    seen = version.to_view(obj) if version.to_view is not None else obj
    return {"kind": version.type.kind, "apiVersion": version.api_version, **seen}


def matches(resources: object, request: Request) -> bool:
    """Return whether the matchConstraints of a policy, or the matchResources of a binding, match a request; True if
    absent."""
    constraints = mapping(resources)
    if not constraints:
        return True
    rules = sequence(constraints.get("resourceRules"))
    exact = constraints.get("matchPolicy") == "Exact"
    if rules and not any(_rule_matches(mapping(rule), request, exact=exact) for rule in rules):
        return False
    excluded = sequence(constraints.get("excludeResourceRules"))
    if any(_rule_matches(mapping(rule), request, exact=exact) for rule in excluded):
        return False
    return _namespace_matches(constraints.get("namespaceSelector"), request) and _object_matches(
        constraints.get("objectSelector"), request
    )


def _rule_matches(rule: Json, request: Request, *, exact: bool) -> bool:
    type_ = request.version.type
    scope = text(rule.get("scope"))
    return (
        _has(rule.get("operations"), request.operation)
        and _has(rule.get("apiGroups"), type_.group)
        and (not exact or _has(rule.get("apiVersions"), request.version.name))
        and scope in ("", ALL, "Namespaced" if type_.namespaced else "Cluster")
        and any(_resource_matches(text(item), request) for item in sequence(rule.get("resources")))
        and (not rule.get("resourceNames") or request.name in sequence(rule["resourceNames"]))
    )


def _has(listed: object, wanted: str) -> bool:
    values = sequence(listed)
    return wanted in values or ALL in values


def _resource_matches(pattern: str, request: Request) -> bool:
    plural, _, subresource = pattern.partition("/")
    if plural not in (ALL, request.version.type.plural):
        return False
    return subresource in (request.subresource, ALL) if subresource else not request.subresource


def _namespace_matches(selector: Any, request: Request) -> bool:
    if not mapping(selector):
        return True
    about = request.namespace_object
    if request.version.type.storage == "/namespaces":
        about = request.obj or request.old
    if about is None:
        return True
    return _labels_match(selector, about)


def _object_matches(selector: Any, request: Request) -> bool:
    if not mapping(selector):
        return True
    return any(item is not None and _labels_match(selector, item) for item in (request.obj, request.old))


def _labels_match(selector: Any, obj: Json) -> bool:
    requirements = selector_from_object(selector)
    return requirements is not None and all_hold(requirements, mapping(mapping(obj.get("metadata")).get("labels")))
