"""All kinds of objects that declare accounts, and the one door through which they become `AccountSpec`s."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec

from phalanx.dialects.families import kube_batch, scheduler_plugins, volcano
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.quotas import quota_profiles
from phalanx.dialects.quotas.account_spec import AccountSpec, Place
from phalanx.dialects.quotas.elastic_quotas import read_elastic_quota
from phalanx.dialects.quotas.koordinator_quotas import is_koordinators, read_quota
from phalanx.dialects.quotas.queues import read_queue
from phalanx.dialects.quotas.quota_trees import read_quota_tree
from phalanx.dialects.reader import Document, describe
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.gang import GroupRef, Problem

ACCOUNT_KINDS = (
    WantedKind(volcano.GROUP, "queues", "Queue", ("v1beta1",)),
    WantedKind(kube_batch.GROUP, "queues", "Queue", ("v1alpha1",)),
    WantedKind(kube_batch.DESIGN_GROUP, "queues", "Queue", ("v1alpha1",)),
    WantedKind(kube_batch.LAST_GROUP, "queues", "Queue", ("v1alpha2",)),
    WantedKind(scheduler_plugins.GROUP, "elasticquotas", "ElasticQuota", ("v1alpha1",)),
    WantedKind(scheduler_plugins.OLD_GROUP, "elasticquotas", "ElasticQuota", ("v1alpha1",)),
    WantedKind(scheduler_plugins.OLD_GROUP, "elasticquotatrees", "ElasticQuotaTree", ("v1beta1",)),
    WantedKind(quota_profiles.GROUP, quota_profiles.PLURAL, "ElasticQuotaProfile", ("v1alpha1",)),
)


def _read_old_quota(resource: ServedKind, document: Document) -> AccountSpec:
    """Koordinator and scheduler-plugins share the older group; they mean different things by it."""
    return (read_quota if is_koordinators(document) else read_elastic_quota)(resource, document)


# More than any family of a kind.
_AFTER_TRUSTED = 10

_READERS: Mapping[tuple[str, str], Callable[[ServedKind, Document], AccountSpec]] = {
    **{(kind.group, kind.plural): read_queue for kind in ACCOUNT_KINDS if kind.plural == "queues"},
    (scheduler_plugins.GROUP, "elasticquotas"): read_elastic_quota,
    (scheduler_plugins.OLD_GROUP, "elasticquotas"): _read_old_quota,
    (scheduler_plugins.OLD_GROUP, "elasticquotatrees"): read_quota_tree,
}


def read_account(resource: ServedKind, document: Document, trusted: Container[str] | None = None) -> AccountSpec:
    """What one object declares by itself (a profile does not: ProfileBook). Never raises for bad fields.

    In namespaces that are not `trusted` (None: all are) an object speaks for its own namespace only.
    """
    spec = _READERS[resource.group, resource.plural](resource, document)
    if trusted is None or spec.ref.namespace in trusted or spec.place.tree not in (Tree.KOORDINATOR, Tree.ACK):
        return spec
    return _confined(spec)


def _confined(spec: AccountSpec) -> AccountSpec:
    """Without the namespaces that are not its own; and it comes after all that administrators have made."""
    accounts = tuple(_own_only(account, spec.ref) for account in spec.accounts)
    family, *rest = spec.rank
    return msgspec.structs.replace(spec, accounts=accounts, rank=(family + _AFTER_TRUSTED, *rest))


def _own_only(account: Account, ref: GroupRef) -> Account:
    foreign = sorted(set(account.namespaces) - {ref.namespace})
    if not foreign:
        return account
    message = (
        f"{describe(ref)}: it claims namespace {foreign[0]!r}, which is not its own; only quotas in the "
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
    """Stands for an object that could not be decoded: nothing new is charged to the accounts that it had.

    One that was never seen before is taken for what its kind mostly is; a tree has no nodes then.
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
