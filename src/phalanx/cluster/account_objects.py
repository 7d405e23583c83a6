"""Queues and quotas as the objects that message texts name."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.account import ROOT_QUEUE, AccountKey, Tree
from phalanx.model.gang import Problem
from phalanx.model.verdict import NamedObject, Objects, joined_objects

_KINDS = {Tree.NAMESPACE: "Namespace", Tree.USER: "User", Tree.QUEUE: "Queue"}
# Every tree of queues hangs on it: it is called the same in every cluster.
ROOT = AccountKey(Tree.QUEUE, ROOT_QUEUE)


# Faults of a path whose texts name accounts of the path and nothing else.
_FAULTS_OF_PATH = frozenset({"QueueNotFound", "QueueNotLeaf", "QueueClosed"})


def account_objects(*accounts: AccountRecord) -> tuple[NamedObject, ...]:
    """Return the queues and quotas as named objects, with those above them: what people call a queue may name its
    ancestors."""
    return tuple(dict.fromkeys(found for account in accounts for found in _with_parents(account)))


def path_fault_objects(path: ChargePath, fault: Problem) -> Objects:
    """Return the objects that the message about a charge path's fault names; None where they are not known."""
    if fault.code not in _FAULTS_OF_PATH:
        return None
    return joined_objects(
        (_queue(path.key.queue),), account_objects(*(each for each in path.path if each.key != ROOT))
    )


def _with_parents(account: AccountRecord) -> Iterator[NamedObject]:
    record: AccountRecord | None = account
    while record is not None and (record is account or record.key != ROOT):
        source = record.spec.source if record.spec is not None else None
        if source is not None and source.namespace:
            yield NamedObject(source.kind, source.name, source.namespace)
        else:
            yield NamedObject(_KINDS.get(record.key.tree, "Quota"), record.key.name)
        if record.key.tree in (Tree.NAMESPACE, Tree.USER):
            yield _queue(record.key.forest)
        record = record.parent


def _queue(name: str) -> NamedObject:
    return NamedObject(_KINDS[Tree.QUEUE], name)
