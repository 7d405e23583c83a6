"""Requests of the scheduler compared with the rights that `phalanx install` grants its account.

Every scheduler of the end-to-end tests is restricted to its rights, while the tests themselves are
administrators: a missing right cannot go unnoticed. PHALANX_RIGHTS_REPORT=FILE adds the rights that the session
has used to a file. rights_used.txt is its content after all of tests/e2e, and `test_rights.py` compares it with
the granted rights.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from phalanx.cli.installation.manifests import access
from phalanx_local.authorization.attributes import Attributes, attributes_of
from phalanx_local.authorization.rules import PolicyRule, parse_rules
from phalanx_local.endpoints.routes import parse_path

# It differs from request to request, and no right depends on it.
_VERSION = re.compile(r"(?<=[?&])resourceVersion=\w+&?")

#: These requests lack a right on purpose. `phalanx install` creates the Secret, and a right to create Secrets
#: would be a right to create tokens; tests place their leases in namespaces without an installation.
_WITHOUT = frozenset({("create", "", "secrets")})


def asked_of(method: str, target: str) -> Attributes:
    """Return the right that a request needs, as the API server reads it."""
    return _asked_of(method, _VERSION.sub("", target))


@functools.lru_cache(4096)
def _asked_of(method: str, target: str) -> Attributes:
    path, _, query = target.partition("?")
    return attributes_of(method, path, parse_path(path), dict(parse_qsl(query)))


class Rights:
    """Rights of a scheduler: `everywhere`, and `own` in the namespace of its lease."""

    def __init__(self, lease_namespace: str, scheduler_name: str, lease: str) -> None:
        self.lease_namespace = lease_namespace
        rules = {
            each["kind"]: parse_rules(each["rules"])
            for each in reversed(access("x", "x", scheduler_name, lease))
            if "rules" in each
        }
        self.everywhere, self.own = rules["ClusterRole"], rules["Role"]

    def allow(self, asked: Attributes) -> bool:
        if asked.path:
            # Every user has the right to discovery (the ClusterRole system:discovery).
            return asked.verb == "get"
        if not asked.resource or (asked.verb, asked.group, asked.resource) in _WITHOUT:
            return True
        rules = (*self.everywhere, *(self.own if asked.namespace == self.lease_namespace else ()))
        return any(rule.allows(asked) for rule in rules)

    @property
    def granted(self) -> set[str]:
        """Each as `VERB RESOURCE.GROUP`."""
        return {_told(right) for right in _parts((*self.everywhere, *self.own))}

    def used(self, asked: Iterable[Attributes]) -> set[str]:
        """Return the granted rights that were used."""
        return self.granted & {
            _told((each.verb, each.group, f"{each.resource}/{each.subresource}".removesuffix("/")))
            for each in asked
        }


def _parts(rules: Iterable[PolicyRule]) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule.verbs
        for group in rule.groups
        for resource in rule.resources
    }


def _told(right: tuple[str, str, str]) -> str:
    verb, group, resource = right
    return f"{verb} {resource}.{group}" if group else f"{verb} {resource}"
