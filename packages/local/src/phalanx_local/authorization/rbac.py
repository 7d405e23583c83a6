"""RBAC authorizer: bindings by subject and roles by name, updated from the store.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from phalanx_local.authentication.authenticator import User, account_user
from phalanx_local.authorization.attributes import SUPERUSERS, Attributes, Decision
from phalanx_local.authorization.rules import ALL, EVERYTHING, PolicyRule, parse_rules
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection, Store

GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = f"{GROUP}/roles"
CLUSTER_ROLES: Final = f"{GROUP}/clusterroles"
ROLE_BINDINGS: Final = f"{GROUP}/rolebindings"
CLUSTER_ROLE_BINDINGS: Final = f"{GROUP}/clusterrolebindings"

_Subject = tuple[str, str]
#: Name and groups of a user, and the attributes of the request.
_Query = tuple[str, tuple[str, ...], Attributes]
_CACHE_SIZE: Final = 4096


ALLOWED: Final = Decision(True)
DENIED: Final = Decision(False)


class _Grant(NamedTuple):
    """One subject of an RBAC binding: the bound role, and the decision for a request that the role allows."""

    role_kind: str
    role: str
    decision: Decision


class _Role:
    """Rules of a Role or ClusterRole, also indexed by verb."""

    def __init__(self, rules: tuple[PolicyRule, ...]) -> None:
        self.rules = rules
        self._others = tuple(rule for rule in rules if ALL in rule.verbs)
        verbs = {verb for rule in rules for verb in rule.verbs}
        self._by_verb = {verb: tuple(r for r in rules if verb in r.verbs or ALL in r.verbs) for verb in verbs}

    def about(self, verb: str) -> tuple[PolicyRule, ...]:
        return self._by_verb.get(verb, self._others)


class Rbac:
    """RBAC authorizer of users. A decision needs a few lookups; the store reports every change of a role or
    binding."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._roles: dict[Key, _Role] = {}
        self._allowed: dict[_Query, Decision] = {}
        self._grants: dict[str, dict[_Subject, dict[Key, _Grant]]] = {}
        store.listen(self._changed)

    def load(self) -> None:
        """Load the roles and bindings that the server restored from its data file."""
        for storage in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            collection = self._store.collections.get(storage)
            for record in collection.records.values() if collection is not None else ():
                self._add(storage, record)

    def authorize(self, user: User, asked: Attributes) -> Decision:
        """Return whether RBAC allows the user to make the request."""
        if SUPERUSERS in user.groups:
            return ALLOWED
        # A rule without resource names allows the request for all names, so the cache ignores the name.
        query = (user.name, user.groups, asked._replace(name=""))
        known = self._allowed.get(query)
        if known is not None:
            return known
        problems: list[str] = []
        for grant, role in self._granted(user, asked.namespace, problems):
            for rule in role.about(asked.verb):
                if rule.allows(asked):
                    if not rule.names:
                        self._cache(query, grant.decision)
                    return grant.decision
        return Decision(False, _summary(problems)) if problems else DENIED

    def _cache(self, question: _Query, decision: Decision) -> None:
        if len(self._allowed) >= _CACHE_SIZE:
            self._allowed.clear()
        self._allowed[question] = decision

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """Return every policy rule that a user has in a namespace, and the bindings whose roles do not exist."""
        problems: list[str] = []
        rules = list(EVERYTHING) if SUPERUSERS in user.groups else []
        for _, role in self._granted(user, namespace, problems):
            rules.extend(role.rules)
        return rules, problems

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the policy rules of a Role of the namespace or of a ClusterRole; None if the role does not
        exist."""
        role = self._roles.get((namespace if kind == "Role" else "", name))
        return role.rules if role is not None else None

    def _granted(self, user: User, namespace: str, problems: list[str]) -> Iterator[tuple[_Grant, _Role]]:
        subjects = [("User", user.name), *[("Group", group) for group in user.groups]]
        for scope in ("", namespace) if namespace else ("",):
            by_subject = self._grants.get(scope)
            if not by_subject:
                continue
            for subject in subjects:
                grants = by_subject.get(subject)
                for grant in grants.values() if grants is not None else ():
                    role = self._roles.get((scope if grant.role_kind == "Role" else "", grant.role))
                    if role is not None:
                        yield grant, role
                    else:
                        problems.append(f'{grant.role_kind.lower()}.{GROUP} "{grant.role}" not found')

    # --- updates from the store

    def _changed(self, collection: Collection, change: Change) -> None:
        storage = collection.storage
        if not storage.startswith(GROUP):
            return
        self._allowed.clear()
        if change.old is not None:
            self._drop(storage, change.old)
        if change.new is not None:
            self._add(storage, change.new)

    def _add(self, storage: str, record: Record) -> None:
        if storage in (ROLES, CLUSTER_ROLES):
            self._roles[record.key] = _Role(parse_rules(record.load().get("rules")))
        elif storage in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            by_subject = self._grants.setdefault(record.namespace, {})
            for subject, grant in _grants_of(record):
                by_subject.setdefault(subject, {}).setdefault(record.key, grant)

    def _drop(self, storage: str, record: Record) -> None:
        if storage in (ROLES, CLUSTER_ROLES):
            self._roles.pop(record.key, None)
        elif storage in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            by_subject = self._grants.get(record.namespace, {})
            for subject, _ in _grants_of(record):
                grants = by_subject.get(subject, {})
                grants.pop(record.key, None)
                if not grants:
                    by_subject.pop(subject, None)
            if not by_subject:
                self._grants.pop(record.namespace, None)


def _grants_of(record: Record) -> Iterator[tuple[_Subject, _Grant]]:
    binding = record.load()
    reference = mapping(binding.get("roleRef"))
    kind, role = text(reference.get("kind")), text(reference.get("name"))
    for item in sequence(binding.get("subjects")):
        subject = _subject(mapping(item), record.namespace)
        if subject is not None:
            source = f'{_named(record)} of {kind} "{role}" to {_describe(mapping(item), record.namespace)}'
            yield subject, _Grant(kind, role, Decision(True, f"RBAC: allowed by {source}"))


def _subject(item: Json, namespace: str) -> _Subject | None:
    """Return the index key of a binding's subject; for a service account, the user name of its tokens."""
    kind, name = item.get("kind"), text(item.get("name"))
    if kind in ("User", "Group"):
        return (text(kind), name)
    home = text(item.get("namespace")) or namespace
    if kind == "ServiceAccount" and home:
        return ("User", account_user(home, name))
    return None


def _describe(item: Json, namespace: str) -> str:
    name = text(item.get("name"))
    if item.get("kind") == "ServiceAccount":
        name = f"{name}/{text(item.get('namespace')) or namespace}"
    return f'{item.get("kind")} "{name}"'


def _named(record: Record) -> str:
    if record.namespace:
        return f'RoleBinding "{record.name}/{record.namespace}"'
    return f'ClusterRoleBinding "{record.name}"'


def _summary(problems: list[str]) -> str:
    if not problems:
        return ""
    unique = list(dict.fromkeys(problems))
    return f"RBAC: {unique[0]}" if len(unique) == 1 else f"RBAC: [{', '.join(unique)}]"
