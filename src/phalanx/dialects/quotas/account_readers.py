"""Handling of untrusted and undecodable objects that declare queues or quotas, in all dialects."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountSpec, Place
from phalanx.dialects.reader import describe
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import GroupRef, Problem
from phalanx.model.text.decoding import quoted

# Added to the rank, more than the number of families of any kind.
_AFTER_TRUSTED = 10


def confine_to_namespace(spec: AccountSpec, trusted: Container[str] | None) -> AccountSpec:
    """Restrict a quota object outside the `trusted` namespaces (None: all are trusted) to its own namespace."""
    if trusted is None or spec.ref.namespace in trusted or spec.place.tree not in (Tree.KOORDINATOR, Tree.ACK):
        return spec
    return _confined(spec)


def _confined(spec: AccountSpec) -> AccountSpec:
    """Return the declared quotas without foreign namespaces, and ranked after all objects of administrators."""
    accounts = tuple(_own_only(account, spec.ref) for account in spec.accounts)
    family, *remaining = spec.rank
    return msgspec.structs.replace(spec, accounts=accounts, rank=(family + _AFTER_TRUSTED, *remaining))


def _own_only(account: Account, ref: GroupRef) -> Account:
    foreign_namespaces = sorted(set(account.namespaces) - {ref.namespace})
    if not foreign_namespaces:
        return account
    message = (
        f"{describe(ref)}: it claims namespace {quoted(foreign_namespaces[0])}, "
        "which is not its own; only quotas in the "
        "administrator's namespaces may (phalanx.dialects.quotaNamespaces); the claim is ignored"
    )
    return msgspec.structs.replace(
        account,
        namespaces=tuple(name for name in account.namespaces if name == ref.namespace),
        warnings=(*account.warnings, Problem("NamespaceNotItsOwn", message)),
    )


def unreadable_account(
    resource: ServedKind, namespace: str, name: str, uid: str, error: str, last: AccountSpec | None
) -> AccountSpec:
    """Return a substitute for an undecodable queue or quota object: the queues and quotas that it declared admit no
    further pods.

    For an unknown object, it has the account that is usual for its kind; a tree has no nodes then.
    """
    ref = GroupRef(resource.group, resource.version, resource.kind, resource.plural, namespace, name, uid)
    where = f"{namespace}/{name}" if namespace else name
    message = f"{resource.kind} {where} ({resource.group}) cannot be read: {error}; apply it again"
    problem = Problem(f"Invalid{resource.kind}", message)
    if last is not None:
        broken = tuple(msgspec.structs.replace(account, problem=problem) for account in last.accounts)
        return msgspec.structs.replace(last, accounts=broken)
    rank = (0, 0, name, namespace, resource.group, uid)
    if resource.kind == "ElasticQuotaTree":
        return AccountSpec(ref, Place(Tree.ACK, ""), rank, (), "DuplicateElasticQuotaTree", (problem,))
    if resource.kind == "ElasticQuotaProfile":
        return AccountSpec(ref, Place(Tree.KOORDINATOR, where), rank, (), "", (problem,))
    tree, held = (Tree.QUEUE, name) if resource.kind == "Queue" else (Tree.ELASTIC_QUOTA, namespace)
    account = Account(AccountKey(tree, held), uid, f"{resource.kind} {where}", ref, problem=problem)
    return AccountSpec(ref, Place(tree, held), rank, (account,), problem.code)
