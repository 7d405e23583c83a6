"""RBAC policy rules: the requests that a rule allows, and the check whether rules cover another rule.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phalanx_local.authorization.attributes import Attributes
from phalanx_local.objects import Json, encode, mapping, sequence

ALL = "*"


class PolicyRule(NamedTuple):
    """RBAC PolicyRule about resources or about non-resource URLs; empty `names` mean every name."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Return whether the policy rule allows a request."""
        verbs = self.verbs
        if asked.verb not in verbs and ALL not in verbs:
            return False
        if asked.path:
            return any(_url_matches(url, asked.path) for url in self.urls)
        if asked.group not in self.groups and ALL not in self.groups:
            return False
        if self.names and asked.name not in self.names:
            return False
        return _resource_matches(self.resources, asked.resource, asked.subresource)

    def as_json(self) -> Json:
        """Return the PolicyRule without its empty fields."""
        shown: Json = {"verbs": list(self.verbs)}
        for field, values in (
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
        ):
            if values:
                shown[field] = list(values)
        return shown

    def __str__(self) -> str:
        parts = [
            f"{name}:{quoted(values)}"
            for name, values in (
                ("APIGroups", self.groups),
                ("Resources", self.resources),
                ("NonResourceURLs", self.urls),
                ("ResourceNames", self.names),
                ("Verbs", self.verbs),
            )
            if values
        ]
        return "{" + ", ".join(parts) + "}"


EVERYTHING = (
    PolicyRule(verbs=(ALL,), groups=(ALL,), resources=(ALL,)),
    PolicyRule(verbs=(ALL,), urls=(ALL,)),
)


def parse_rules(listed: object) -> tuple[PolicyRule, ...]:
    """Return the rules of a stored Role or ClusterRole."""
    return tuple(_parse(mapping(item)) for item in sequence(listed))


def _parse(rule: Json) -> PolicyRule:
    def texts(field: str) -> tuple[str, ...]:
        return tuple(item for item in sequence(rule.get(field)) if isinstance(item, str))

    return PolicyRule(
        texts("verbs"), texts("apiGroups"), texts("resources"), texts("resourceNames"), texts("nonResourceURLs")
    )


def _resource_matches(granted: tuple[str, ...], resource: str, subresource: str) -> bool:
    if not subresource:
        return resource in granted or ALL in granted
    return f"{resource}/{subresource}" in granted or ALL in granted or f"*/{subresource}" in granted


def _url_matches(granted: str, path: str) -> bool:
    return granted in (ALL, path) or (granted.endswith("*") and path.startswith(granted.rstrip("*")))


def quoted(values: Iterable[str]) -> str:
    """Format a list of strings as Go's %q does."""
    return "[" + " ".join(encode(value).decode() for value in values) + "]"


def missing(held: Iterable[PolicyRule], asked: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the parts of the rules `asked` that no rule of `held` covers; a part has one verb, group, resource and
    name."""
    owned = list(held)
    return [part for rule in asked for part in _parts(rule) if not any(_covers(own, part) for own in owned)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for verb in rule.verbs:
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names:
                    yield PolicyRule((verb,), (group,), (resource,), (name,))
                if not rule.names:
                    yield PolicyRule((verb,), (group,), (resource,))
        for url in rule.urls:
            yield PolicyRule((verb,), urls=(url,))


def _covers(own: PolicyRule, part: PolicyRule) -> bool:
    """Return whether a policy rule covers one part of another rule; only a `*` covers a `*`."""
    if part.verbs[0] not in own.verbs and ALL not in own.verbs:
        return False
    if part.urls:
        return any(_url_matches(url, part.urls[0]) for url in own.urls)
    if part.groups[0] not in own.groups and ALL not in own.groups:
        return False
    if own.names and (not part.names or part.names[0] not in own.names):
        return False
    resource, _, subresource = part.resources[0].partition("/")
    return part.resources[0] in own.resources or _resource_matches(own.resources, resource, subresource)


def compact(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return policy rules that merge the verbs of parts about the same resource."""
    verbs: dict[PolicyRule, list[str]] = {}
    for part in parts:
        listed = verbs.setdefault(part._replace(verbs=()), [])
        if part.verbs[0] not in listed:
            listed.append(part.verbs[0])
    return [rule._replace(verbs=tuple(listed)) for rule, listed in verbs.items()]
