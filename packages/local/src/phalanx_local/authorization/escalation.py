"""Privilege escalation check of RBAC: users can grant only rights that they have.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from phalanx_local.authorization.attributes import Attributes
from phalanx_local.authorization.rbac import GROUP
from phalanx_local.authorization.requester import Requester
from phalanx_local.authorization.rules import EVERYTHING, PolicyRule, compact, missing, parse_rules, quoted
from phalanx_local.errors import StatusError, forbidden
from phalanx_local.objects import Json, encode, mapping, metadata, text

_PLURALS: Final = {"Role": "roles", "ClusterRole": "clusterroles"}


class _Resource(NamedTuple):
    group: str
    plural: str
    kind: str


def check_role(requester: Requester | None, kind: str, role: Json, old: Json | None) -> None:
    """Raise 403 for a Role or ClusterRole with rights that the requester lacks, unless the requester can
    `escalate`.
    """
    if requester is None or requester.unlimited:
        return
    if old is not None and all(old.get(field) == role.get(field) for field in ("rules", "aggregationRule")):
        return
    name, namespace = text(metadata(role).get("name")), text(metadata(role).get("namespace"))
    plural = _PLURALS[kind]
    if requester.may(Attributes("escalate", GROUP, plural, "", namespace, name)):
        return
    resource = _Resource(GROUP, plural, kind)
    refusal = _refusal(requester, parse_rules(role.get("rules")), namespace)
    if refusal:
        raise forbidden(resource, name, refusal)
    if role.get("aggregationRule") and _refusal(requester, EVERYTHING, ""):
        raise forbidden(resource, name, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(requester: Requester | None, kind: str, binding: Json, old: Json | None) -> None:
    """Raise 403 for a binding of a role with rights that the requester lacks, unless the requester can `bind`."""
    if requester is None or requester.unlimited:
        return
    if old is not None and all(old.get(field) == binding.get(field) for field in ("subjects", "roleRef")):
        return
    name, namespace = text(metadata(binding).get("name")), text(metadata(binding).get("namespace"))
    reference = mapping(binding.get("roleRef"))
    role_kind, role = text(reference.get("kind")), text(reference.get("name"))
    plural = _PLURALS.get(role_kind)
    if plural is None:
        return  # validation reports the invalid kind
    if requester.may(Attributes("bind", GROUP, plural, "", namespace, role)):
        return
    rules = requester.rbac.role_rules(role_kind, role, namespace)
    if rules is None:
        details: Json = {"name": role, "group": GROUP, "kind": plural}
        raise StatusError(404, "NotFound", f'{plural}.{GROUP} "{role}" not found', details)
    refusal = _refusal(requester, rules, namespace)
    if refusal:
        raise forbidden(_Resource(GROUP, f"{kind.lower()}s", kind), name, refusal)


def _refusal(requester: Requester, rules: Iterable[PolicyRule], namespace: str) -> str:
    """Return the message about rules that the requester lacks; "" if the requester has all of these rules."""
    held, problems = requester.rbac.rules_for(requester.user, namespace)
    lacking = missing(held, rules)
    if not lacking:
        return ""
    user = requester.user
    shown = "\n".join(sorted({str(rule) for rule in compact(lacking)}))
    message = (
        f"user {encode(user.name).decode()} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions "
        f"not currently held:\n{shown}"
    )
    return f"{message}; resolution errors: [{', '.join(problems)}]" if problems else message
