"""Which accounts a pod is charged to: the trees, and the charge paths through them."""

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
    """The declared accounts as trees, and the indexes that lead a charge path to its leaves.

    A broken account (its parent is missing, its parents form a circle, it or an ancestor cannot be read) is charged
    for what is there and takes nothing new; the rest of the tree does not notice.
    """

    def __init__(self) -> None:
        self.accounts: dict[AccountKey, AccountRecord] = {}
        self._specs: dict[AccountKey, Account] = {}
        self._weights: dict[str, int] = {}
        self._granted: dict[str, tuple[str, ...]] = {}
        self._quota_of: dict[str, list[AccountKey]] = {}
        self._quota_named: dict[str, AccountKey] = {}
        self._leaf_of: dict[str, AccountKey] = {}
        # How many charge paths come through the accounts that nobody declares and that go with their last charge
        # path.
        self._visitors: dict[AccountKey, int] = {}
        self.keeps_order = False
        self.guarantees = False
        # Whether any pod has a user: then those without one are a user as well, or they would go first.
        self.users = False
        self.budgeted = False
        self._link()

    def declare(self, account: Account) -> bool:
        """Takes the newest declaration; True if it differs from the last."""
        if self._specs.get(account.key) == account:
            return False
        self._specs[account.key] = account
        return True

    def withdraw(self, key: AccountKey) -> bool:
        return self._specs.pop(key, None) is not None

    def weigh(self, namespace: str, weight: int) -> bool:
        if self._weights.get(namespace, 1) == weight:
            return False
        self._weights[namespace] = weight
        return True

    def grant(self, namespace: str, quotas: tuple[str, ...]) -> bool:
        """Lets pods of a namespace name these quotas."""
        if self._granted.get(namespace, ()) == quotas:
            return False
        self._granted[namespace] = quotas
        if not quotas:
            del self._granted[namespace]
        return True

    def rebuild(self, charge_paths: Iterable[ChargePath], offered: Mapping[str, int]) -> None:
        """Builds all trees from the declarations and attaches all charge paths; every account's sums are empty
        then.

        `offered` is what the cluster has: guarantees are kept, the oldest first, as far as they fit into it.
        """
        self._link()
        self._guarantee(offered)
        for charge_path in charge_paths:
            self.attach(charge_path)

    # trees

    def _link(self) -> None:
        self.accounts.clear()
        self._visitors.clear()
        specs = sorted(self._specs.values(), key=lambda spec: spec.key)
        self.accounts.update((spec.key, AccountRecord(spec.key, spec)) for spec in specs)
        for key in (ROOT, AccountKey(Tree.QUEUE, DEFAULT_QUEUE)):
            self.accounts.setdefault(key, AccountRecord(key))
        if any(spec.key.tree is Tree.ELASTIC_QUOTA for spec in specs):
            self.accounts[ALL_ELASTIC_QUOTAS] = AccountRecord(ALL_ELASTIC_QUOTAS)
        for record in list(self.accounts.values()):
            self._hang(record)
        for record in self.accounts.values():
            _mend_circle(record)
        for record in self.accounts.values():
            record.fault = next((fault for each in record.lineage() if (fault := _own_fault(each))), None)
        for record in self.accounts.values():
            if record.parent is not None:
                record.parent.children[record.key] = record
        self._index(specs)
        self.keeps_order = any(spec.fifo for spec in specs)
        self.budgeted = any(spec.budget is not None for spec in specs)

    def _guarantee(self, offered: Mapping[str, int]) -> None:
        """A guarantee that the cluster, or the capability of a queue above, cannot keep beside those of older
        queues must not stop everybody else."""
        root = self.accounts[ROOT]
        named = [record for record in self.accounts.values() if record.spec is not None and record.spec.guarantee]
        self.guarantees = bool(named)
        for record in sorted(named, key=lambda record: (record.spec.created if record.spec else 0, record.key)):
            if record.spec is None or record.fault is not None or record.parent is None:
                continue
            wanted = dict(record.spec.guarantee)
            record.set_guarantee(wanted)
            above = record.lineage()[1:]
            kept = {
                name: amount
                for name, amount in wanted.items()
                if _fits(root, name, offered) and all(_allows(each, name) for each in above)
            }
            if kept != wanted:
                record.set_guarantee(kept)

    def _hang(self, record: AccountRecord) -> None:
        """Finds the parent; one that is missing is a fault, and the account hangs below the root instead."""
        key, spec = record.key, record.spec
        if key in (ROOT, ALL_ELASTIC_QUOTAS):
            return
        wanted = spec.parent if spec is not None else None
        if key.tree is Tree.QUEUE:
            wanted = wanted or ROOT
        elif key.tree is Tree.ELASTIC_QUOTA:
            wanted = ALL_ELASTIC_QUOTAS
        if wanted is None:
            return
        record.parent = self.accounts.get(wanted)
        if record.parent is None:
            record.fault = parent_not_found(record.label, wanted)
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
            # A quota with the name of its namespace is that namespace's, unless an administrator's claims it.
            own = spec.source.namespace if spec.source is not None else ""
            if spec.key.tree is Tree.KOORDINATOR and own and own == spec.key.name:
                self._quota_of.setdefault(own, []).append(spec.key)

    # charge paths

    def attach(self, charge_path: ChargePath) -> None:
        """Finds the accounts of a charge path, and what forbids to charge it anything new."""
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
        """Forgets the accounts that existed for this charge path only."""
        for account in charge_path.path:
            if account.key in self._visitors:
                self._visitors[account.key] -= 1
                if not self._visitors[account.key]:
                    del self._visitors[account.key]
                    del self.accounts[account.key]

    def _through_queue(self, charge_path: ChargePath) -> list[AccountRecord]:
        key = charge_path.key
        queue = self.accounts.get(AccountKey(Tree.QUEUE, key.queue))
        if queue is None:
            remedy = "create the queue, or name one that exists"
            charge_path.fault = Problem("QueueNotFound", f"queue {legible(key.queue)} does not exist", remedy)
            return [self.accounts[ROOT]]  # what runs in a queue that was deleted is still in use
        charge_path.queue = queue
        if queue.children or queue.key == ROOT or (queue.spec is not None and queue.spec.parental):
            charge_path.fault = Problem(
                "QueueNotLeaf",
                f"queue {legible(key.queue)} has child queues and takes no pods of its own",
                "name one of its child queues",
            )
        path = self._leaf(charge_path, queue)
        charge_path.namespace = self._visit(AccountKey(Tree.NAMESPACE, key.namespace, key.queue), queue)
        charge_path.namespace.weight = self._weights.get(key.namespace, 1)
        path.append(charge_path.namespace)
        if key.user or self.users:
            charge_path.user = self._visit(AccountKey(Tree.USER, key.user, key.queue), queue)
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
        found = named or own or self._quota_named.get(KOORDINATOR_DEFAULT)
        if found is None:
            return []
        quota = self.accounts[found]
        path = self._leaf(charge_path, quota)
        if key.firm:
            path.append(self._visit(AccountKey(Tree.FIRM, found.name, found.forest), quota))
        return path

    def _may_charge(self, namespace: str, quota: AccountKey, confined: bool) -> bool:
        """Whether pods of a namespace may name a quota. One that claims namespaces, or is below such a one, is for
        those; who has a quota (`confined`) does not get out of it by naming another, or one without limits, unless
        an administrator has granted it to the namespace."""
        if quota.name in self._granted.get(namespace, ()):
            return True
        if quota.name in (*KOORDINATOR_BESIDE, KOORDINATOR_ROOT):
            return namespace in ADMINISTRATIVE_NAMESPACES or (quota.name == KOORDINATOR_DEFAULT and not confined)
        lineage = self.accounts[quota].lineage()
        claims = [claim for each in lineage if each.spec is not None for claim in _claims(each.spec)]
        return namespace in claims or not (claims or confined)

    def _visit(self, key: AccountKey, parent: AccountRecord) -> AccountRecord:
        record = self.accounts.get(key)
        if record is None:
            record = self.accounts[key] = AccountRecord(key)
            record.parent = parent
        self._visitors[key] = self._visitors.get(key, 0) + 1
        return record

    def _leaf(self, charge_path: ChargePath, leaf: AccountRecord) -> list[AccountRecord]:
        charge_path.fault = charge_path.fault or leaf.fault
        return list(leaf.lineage())


def parent_not_found(label: str, parent: AccountKey) -> Problem:
    """What is said of an account whose parent is missing."""
    return Problem("ParentNotFound", f"{label} names the parent {parent.name}: not found")


def _claims(quota: Account) -> tuple[str, ...]:
    """The namespaces that a quota is for: those that it names, and its own if it has its name."""
    own = quota.source.namespace if quota.source is not None else ""
    return (*quota.namespaces, own) if own and own == quota.key.name else quota.namespaces


def _fits(root: AccountRecord, resource: str, offered: Mapping[str, int]) -> bool:
    return root.reserved_for_children.get(resource, 0) <= offered.get(resource, 0)


def _allows(queue: AccountRecord, resource: str) -> bool:
    """Whether a queue may hold all that is kept for those below it."""
    limits = dict(queue.spec.capability) if queue.spec is not None else {}
    return resource not in limits or queue.reserved_for_children.get(resource, 0) <= limits[resource]


def _own_fault(record: AccountRecord) -> Problem | None:
    """What an account's own declaration or place forbids, for itself and everything below."""
    spec = record.spec
    if record.fault is not None or spec is None:
        return record.fault
    if spec.problem is not None:
        return spec.problem
    if spec.state in _SHUT:
        closed = f"{record.label} is {spec.state.value.lower()} and takes nothing new"
        return Problem("QueueClosed", closed, "open it, or name another")
    return None


def _mend_circle(record: AccountRecord) -> None:
    """Cuts a circle of parents at its members: each of them is broken and becomes a root of its own."""
    seen: list[AccountRecord] = [record]
    while (parent := seen[-1].parent) is not None:
        if parent is record:
            names = " -> ".join(each.key.name for each in (*seen, record))
            for each in seen:
                each.fault = Problem("ParentCycle", f"the parents of {each.label} form a circle: {names}")
            for each in seen:
                each.parent = None
            return
        if parent in seen:
            return
        seen.append(parent)
