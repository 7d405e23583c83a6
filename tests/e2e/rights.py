"""What the scheduler asks of the API, beside what `phalanx install` lets its account do.

Every scheduler of the end-to-end tests is held to its rights: the tests themselves are administrators, so that
nothing is missing by chance. PHALANX_RIGHTS_REPORT=FILE adds to a file which rights the tests of the session have
used; rights_used.txt is what it says after all of tests/e2e, and `test_rights.py` compares it with what is granted.
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

#: Asked for without a right, on purpose. `phalanx install` makes the Secret, and a right to create Secrets would be
#: one to make tokens; tests keep their leases in namespaces where it was not installed.
_WITHOUT = frozenset({("create", "", "secrets")})


def asked_of(method: str, target: str) -> Attributes:
    """What a request asks for, as the API server reads it."""
    return _asked_of(method, _VERSION.sub("", target))


@functools.lru_cache(4096)
def _asked_of(method: str, target: str) -> Attributes:
    path, _, query = target.partition("?")
    return attributes_of(method, path, parse_path(path), dict(parse_qsl(query)))


class Rights:
    """Those of a scheduler with its lease: `everywhere`, and `own` where the lease is."""

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
            # Discovery is everybody's (the ClusterRole system:discovery).
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
        """What of it was asked for."""
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
