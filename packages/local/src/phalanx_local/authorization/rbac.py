"""The authorizer: bindings by subject and roles by name, kept in step with the store.

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
#: Name and groups of a user, and what he asks for.
_Question = tuple[str, tuple[str, ...], Attributes]
_REMEMBERED: Final = 4096


ALLOWED: Final = Decision(True)
DENIED: Final = Decision(False)


class _Grant(NamedTuple):
    """A binding as one of its subjects holds it: the role, and what is told of a request that it allows."""

    role_kind: str
    role: str
    decision: Decision


class _Role:
    """The rules of a role, also by the verbs that they are about."""

    def __init__(self, rules: tuple[PolicyRule, ...]) -> None:
        self.rules = rules
        self._others = tuple(rule for rule in rules if ALL in rule.verbs)
        verbs = {verb for rule in rules for verb in rule.verbs}
        self._by_verb = {verb: tuple(r for r in rules if verb in r.verbs or ALL in r.verbs) for verb in verbs}

    def about(self, verb: str) -> tuple[PolicyRule, ...]:
        return self._by_verb.get(verb, self._others)


class Rbac:
    """Answers what users may do. Reading is a few lookups; the store tells of every change of a role or binding."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._roles: dict[Key, _Role] = {}
        self._allowed: dict[_Question, Decision] = {}
        self._grants: dict[str, dict[_Subject, dict[Key, _Grant]]] = {}
        store.listen(self._changed)

    def load(self) -> None:
        """Takes in what a data file brought."""
        for storage in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            collection = self._store.collections.get(storage)
            for record in collection.records.values() if collection is not None else ():
                self._take(storage, record)

    def authorize(self, user: User, asked: Attributes) -> Decision:
        """Whether the user may do what he asks for."""
        if SUPERUSERS in user.groups:
            return ALLOWED
        # Whose rules name no object may do the same to the next one.
        question = (user.name, user.groups, asked._replace(name=""))
        known = self._allowed.get(question)
        if known is not None:
            return known
        problems: list[str] = []
        for grant, role in self._granted(user, asked.namespace, problems):
            for rule in role.about(asked.verb):
                if rule.allows(asked):
                    if not rule.names:
                        self._remember(question, grant.decision)
                    return grant.decision
        return Decision(False, _told(problems)) if problems else DENIED

    def _remember(self, question: _Question, decision: Decision) -> None:
        if len(self._allowed) >= _REMEMBERED:
            self._allowed.clear()
        self._allowed[question] = decision

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """Every rule that holds for a user in a namespace, and what could not be resolved."""
        problems: list[str] = []
        found = list(EVERYTHING) if SUPERUSERS in user.groups else []
        for _, role in self._granted(user, namespace, problems):
            found.extend(role.rules)
        return found, problems

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of a Role of the namespace or of a ClusterRole; None when there is none."""
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

    # --- following the store

    def _changed(self, collection: Collection, change: Change) -> None:
        storage = collection.storage
        if not storage.startswith(GROUP):
            return
        self._allowed.clear()
        if change.old is not None:
            self._drop(storage, change.old)
        if change.new is not None:
            self._take(storage, change.new)

    def _take(self, storage: str, record: Record) -> None:
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
    """Under what a subject is found; a service account is the user that its tokens name."""
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


def _told(problems: list[str]) -> str:
    if not problems:
        return ""
    unique = list(dict.fromkeys(problems))
    return f"RBAC: {unique[0]}" if len(unique) == 1 else f"RBAC: [{', '.join(unique)}]"
