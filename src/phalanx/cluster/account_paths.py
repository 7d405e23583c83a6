"""Charge paths: the queues and quotas to which a pod is charged, in all trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.account import (
    ADMINISTRATIVE_NAMESPACES,
    DEFAULT_QUEUE,
    KOORDINATOR_BESIDE,
    KOORDINATOR_DEFAULT,
    KOORDINATOR_ROOT,
    ROOT_QUEUE,
    Account,
    AccountKey,
    AccountState,
    Tree,
)
from phalanx.model.gang import Problem
from phalanx.model.text.decoding import legible

ROOT = AccountKey(Tree.QUEUE, ROOT_QUEUE)
ALL_ELASTIC_QUOTAS = AccountKey(Tree.ELASTIC_QUOTA, "")


_SHUT = (AccountState.CLOSED, AccountState.CLOSING)


class Paths:
    """Declared queues and quotas as trees, with indexes from a charge path to its leaves.

    A broken account (missing parent, cycle of parents, or an unreadable object at it or at an ancestor) is charged
    for its existing pods and admits no further ones; the rest of the tree is unaffected.
    """

    def __init__(self) -> None:
        self.accounts: dict[AccountKey, AccountRecord] = {}
        self._specs: dict[AccountKey, Account] = {}
        self._weights: dict[str, int] = {}
        self._granted: dict[str, tuple[str, ...]] = {}
        self._quota_of: dict[str, list[AccountKey]] = {}
        self._quota_named: dict[str, AccountKey] = {}
        self._leaf_of: dict[str, AccountKey] = {}
        # Number of charge paths through each account without a declaration, which exists only while it has charge
        # paths.
        self._path_counts: dict[AccountKey, int] = {}
        self.keeps_order = False
        self.guarantees = False
        # Whether any pod has a user: then pods without one share an account too, or they would be preferred.
        self.users = False
        self.budgeted = False
        self._link()

    def declare(self, account: Account) -> bool:
        """Store the newest declaration of a queue or quota. Return whether it differs from the last."""
        if self._specs.get(account.key) == account:
            return False
        self._specs[account.key] = account
        return True

    def spec_of(self, key: AccountKey) -> Account | None:
        """Return the newest declaration of a queue or quota."""
        return self._specs.get(key)

    def withdraw(self, key: AccountKey) -> bool:
        return self._specs.pop(key, None) is not None

    def weigh(self, namespace: str, weight: int) -> bool:
        if self._weights.get(namespace, 1) == weight:
            return False
        self._weights[namespace] = weight
        return True

    def grant(self, namespace: str, quotas: tuple[str, ...]) -> bool:
        """Set the quotas that pods of a namespace can name beside its own. Return whether they differ from the
        last."""
        if self._granted.get(namespace, ()) == quotas:
            return False
        self._granted[namespace] = quotas
        if not quotas:
            del self._granted[namespace]
        return True

    def rebuild(self, charge_paths: Iterable[ChargePath], offered: Mapping[str, int]) -> None:
        """Build all trees from the declarations and attach all charge paths; the sums of all accounts are empty
        then.

        `offered` are the resources of the cluster: guarantees are granted, the oldest first, as far as they fit
        into it.
        """
        self._link()
        self._guarantee(offered)
        for charge_path in charge_paths:
            self.attach(charge_path)

    # trees

    def _link(self) -> None:
        self.accounts.clear()
        self._path_counts.clear()
        specs = sorted(self._specs.values(), key=lambda spec: spec.key)
        self.accounts.update((spec.key, AccountRecord(spec.key, spec)) for spec in specs)
        for key in (ROOT, AccountKey(Tree.QUEUE, DEFAULT_QUEUE)):
            self.accounts.setdefault(key, AccountRecord(key))
        if any(spec.key.tree is Tree.ELASTIC_QUOTA for spec in specs):
            self.accounts[ALL_ELASTIC_QUOTAS] = AccountRecord(ALL_ELASTIC_QUOTAS)
        for record in list(self.accounts.values()):
            self._attach_to_parent(record)
        for record in self.accounts.values():
            _cut_cycle(record)
        for record in self.accounts.values():
            record.fault = next((fault for ancestor in record.lineage() if (fault := _own_fault(ancestor))), None)
        for record in self.accounts.values():
            if record.parent is not None:
                record.parent.children[record.key] = record
        self._index(specs)
        self.keeps_order = any(spec.fifo for spec in specs)
        self.budgeted = any(spec.budget is not None for spec in specs)

    def _guarantee(self, offered: Mapping[str, int]) -> None:
        """Grant the guarantees of queues. A guarantee beyond the cluster, or beyond the capability of an ancestor,
        beside those of older queues must not block all other queues."""
        root = self.accounts[ROOT]
        guaranteed = [
            record for record in self.accounts.values() if record.spec is not None and record.spec.guarantee
        ]
        self.guarantees = bool(guaranteed)
        for record in sorted(
            guaranteed, key=lambda record: (record.spec.created if record.spec else 0, record.key)
        ):
            if record.spec is None or record.fault is not None or record.parent is None:
                continue
            stated = dict(record.spec.guarantee)
            record.set_guarantee(stated)
            ancestors = record.lineage()[1:]
            granted = {
                name: amount
                for name, amount in stated.items()
                if _fits(root, name, offered) and all(_allows(ancestor, name) for ancestor in ancestors)
            }
            if granted != stated:
                record.set_guarantee(granted)

    def _attach_to_parent(self, record: AccountRecord) -> None:
        """Attach a queue or quota to its parent; one with a missing parent is broken, and attached to the root
        instead."""
        key, spec = record.key, record.spec
        if key in (ROOT, ALL_ELASTIC_QUOTAS):
            return
        parent = spec.parent if spec is not None else None
        if key.tree is Tree.QUEUE:
            parent = parent or ROOT
        elif key.tree is Tree.ELASTIC_QUOTA:
            parent = ALL_ELASTIC_QUOTAS
        if parent is None:
            return
        record.parent = self.accounts.get(parent)
        if record.parent is None:
            record.fault = parent_not_found(record.label, parent)
            record.parent = self.accounts[ROOT] if key.tree is Tree.QUEUE else None

    def _index(self, specs: list[Account]) -> None:
        self._quota_of.clear()
        self._quota_named.clear()
        self._leaf_of.clear()
        for spec in specs:
            key = spec.key
            if key.tree is Tree.KOORDINATOR:
                self._quota_named.setdefault(key.name, key)
                for namespace in spec.namespaces:
                    self._quota_of.setdefault(namespace, []).append(key)
            elif key.tree is Tree.ACK:
                for namespace in spec.namespaces:
                    self._leaf_of.setdefault(namespace, key)
        for spec in specs:
            # A quota named like its namespace belongs to that namespace, unless an administrator's quota claims it.
            own = spec.source.namespace if spec.source is not None else ""
            if spec.key.tree is Tree.KOORDINATOR and own and own == spec.key.name:
                self._quota_of.setdefault(own, []).append(spec.key)

    # charge paths

    def attach(self, charge_path: ChargePath) -> None:
        """Set the queues and quotas of a charge path, and the fault that blocks new charges."""
        key = charge_path.key
        charge_path.queue = charge_path.namespace = charge_path.user = charge_path.fault = None
        path: list[AccountRecord] = []
        if key.queue:
            path += self._through_queue(charge_path)
        quota = self.accounts.get(AccountKey(Tree.ELASTIC_QUOTA, key.namespace))
        if quota is not None:
            path += self._leaf(charge_path, quota)
        path += self._through_koordinator(charge_path)
        leaf = self._leaf_of.get(key.namespace)
        if leaf is not None:
            path += self._leaf(charge_path, self.accounts[leaf])
        charge_path.path = tuple(path)

    def detach(self, charge_path: ChargePath) -> None:
        """Remove the queues and quotas that existed only for this charge path."""
        for account in charge_path.path:
            if account.key in self._path_counts:
                self._path_counts[account.key] -= 1
                if not self._path_counts[account.key]:
                    del self._path_counts[account.key]
                    del self.accounts[account.key]

    def _through_queue(self, charge_path: ChargePath) -> list[AccountRecord]:
        key = charge_path.key
        queue = self.accounts.get(AccountKey(Tree.QUEUE, key.queue))
        if queue is None:
            remedy = "create the queue, or name one that exists"
            charge_path.fault = Problem("QueueNotFound", f"queue {legible(key.queue)} does not exist", remedy)
            return [self.accounts[ROOT]]  # pods in a deleted queue still use resources
        charge_path.queue = queue
        if queue.children or queue.key == ROOT or (queue.spec is not None and queue.spec.parental):
            charge_path.fault = Problem(
                "QueueNotLeaf",
                f"queue {legible(key.queue)} has child queues and takes no pods of its own",
                "use one of its child queues",
            )
        path = self._leaf(charge_path, queue)
        charge_path.namespace = self._add_undeclared(AccountKey(Tree.NAMESPACE, key.namespace, key.queue), queue)
        charge_path.namespace.weight = self._weights.get(key.namespace, 1)
        path.append(charge_path.namespace)
        if key.user or self.users:
            charge_path.user = self._add_undeclared(AccountKey(Tree.USER, key.user, key.queue), queue)
            path.append(charge_path.user)
        return path

    def _through_koordinator(self, charge_path: ChargePath) -> list[AccountRecord]:
        if not self._quota_named:
            return []
        key = charge_path.key
        own = next(iter(self._quota_of.get(key.namespace, ())), None)
        named = self._quota_named.get(key.quota) if key.quota else None
        if named is not None and not self._may_charge(key.namespace, named, own is not None):
            named = None
        quota_key = named or own or self._quota_named.get(KOORDINATOR_DEFAULT)
        if quota_key is None:
            return []
        quota = self.accounts[quota_key]
        path = self._leaf(charge_path, quota)
        if key.firm:
            path.append(self._add_undeclared(AccountKey(Tree.FIRM, quota_key.name, quota_key.forest), quota))
        return path

    def _may_charge(self, namespace: str, quota: AccountKey, confined: bool) -> bool:
        """Return whether pods of a namespace can name a quota. A quota that claims namespaces, or has such an
        ancestor, is for these only. A namespace with a quota of its own (`confined`) cannot choose another one,
        or one without limits, unless an administrator has granted it."""
        if quota.name in self._granted.get(namespace, ()):
            return True
        if quota.name in (*KOORDINATOR_BESIDE, KOORDINATOR_ROOT):
            return namespace in ADMINISTRATIVE_NAMESPACES or (quota.name == KOORDINATOR_DEFAULT and not confined)
        lineage = self.accounts[quota].lineage()
        claims = [claim for ancestor in lineage if ancestor.spec is not None for claim in _claims(ancestor.spec)]
        return namespace in claims or not (claims or confined)

    def _add_undeclared(self, key: AccountKey, parent: AccountRecord) -> AccountRecord:
        record = self.accounts.get(key)
        if record is None:
            record = self.accounts[key] = AccountRecord(key)
            record.parent = parent
        self._path_counts[key] = self._path_counts.get(key, 0) + 1
        return record

    def _leaf(self, charge_path: ChargePath, leaf: AccountRecord) -> list[AccountRecord]:
        charge_path.fault = charge_path.fault or leaf.fault
        return list(leaf.lineage())


def parent_not_found(label: str, parent: AccountKey) -> Problem:
    """Return the problem of a queue or quota with a missing parent."""
    return Problem("ParentNotFound", f"{label} names the parent {parent.name}: not found")


def _claims(quota: Account) -> tuple[str, ...]:
    """Return the namespaces whose pods a quota is for: the claimed ones, and its own one if they share a name."""
    own = quota.source.namespace if quota.source is not None else ""
    return (*quota.namespaces, own) if own and own == quota.key.name else quota.namespaces


def _fits(root: AccountRecord, resource: str, offered: Mapping[str, int]) -> bool:
    return root.reserved_for_children.get(resource, 0) <= offered.get(resource, 0)


def _allows(queue: AccountRecord, resource: str) -> bool:
    """Return whether a queue's capability for a resource covers all amounts reserved for its children."""
    limits = dict(queue.spec.capability) if queue.spec is not None else {}
    return resource not in limits or queue.reserved_for_children.get(resource, 0) <= limits[resource]


def _own_fault(record: AccountRecord) -> Problem | None:
    """Return the fault in the queue's or quota's own declaration or place, which affects all queues and quotas
    below it."""
    spec = record.spec
    if record.fault is not None or spec is None:
        return record.fault
    if spec.problem is not None:
        return spec.problem
    if spec.state in _SHUT:
        closed = f"{record.label} is {spec.state.value.lower()} and accepts no new pods"
        return Problem("QueueClosed", closed, "open the queue, or use another queue")
    return None


def _cut_cycle(record: AccountRecord) -> None:
    """Cut a cycle of parents among queues or quotas: each in it is broken and becomes a root."""
    seen: list[AccountRecord] = [record]
    while (parent := seen[-1].parent) is not None:
        if parent is record:
            names = " -> ".join(account.key.name for account in (*seen, record))
            for account in seen:
                account.fault = Problem("ParentCycle", f"the parents of {account.label} form a circle: {names}")
            for account in seen:
                account.parent = None
            return
        if parent in seen:
            return
        seen.append(parent)
