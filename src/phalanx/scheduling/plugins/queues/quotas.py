"""Plugin `quotas`: limits that objects in the cluster declare. The plugin is active in every policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from phalanx.model.account import KOORDINATOR_BESIDE, KOORDINATOR_ROOT
from phalanx.plugin import AccountKey, AccountRecord, Arguments, Limit, Plugin, Tree, View
from phalanx.scheduling.quota.queue_tree import requested
from phalanx.scheduling.quota.runtime_quota import QuotaNode, runtime_tree


class Quotas(Plugin):
    """Limits of queues and quotas by kind.

    - queue: its capability, on every level;
    - ElasticQuota: its max. For all ElasticQuotas together: the sum of their mins, for resources that at least one
      min names (scheduler-plugins, capacity_scheduling.go);
    - Koordinator quota: its current runtime quota for the resources in its max, on every level (in Koordinator only
      with enableCheckParentQuota). While a child uses more than its part from earlier, its siblings cannot use the
      quota reserved for other children. Non-preemptible pods are limited to the min;
    - node of an ElasticQuotaTree (ACK): its max.

    A broken account has no limit: new pods are refused there anyway. It is not counted for its siblings.
    """

    name = "quotas"
    limits_by_declaration = True

    def __init__(self, arguments: Arguments) -> None:
        pass

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        if account.fault is not None:
            return None
        tree = account.key.tree
        if tree is Tree.QUEUE:
            return _own(account, "capability")
        if tree is Tree.ACK or (tree is Tree.ELASTIC_QUOTA and account.spec is not None):
            return _own(account, "max")
        if tree is Tree.ELASTIC_QUOTA:
            return session.memo("sum of all min", lambda: _sum_of_min(account.children.values()))
        if tree is Tree.KOORDINATOR:
            return session.memo("runtime quotas", lambda: _runtime_limits(session)).get(account.key)
        if tree is Tree.FIRM:
            return _firm(account)
        return None

    def runtime_quota(self, session: View, account: AccountRecord) -> Mapping[str, int]:
        limit = self.limit(session, account)
        return limit.limits if limit is not None and limit.computed else {}


def _own(account: AccountRecord, word: str) -> Limit | None:
    spec = account.spec
    if spec is None or not spec.capability:
        return None
    return Limit(word, dict(spec.capability), f"raise its {word}")


def _sum_of_min(quotas: Iterable[AccountRecord]) -> Limit | None:
    sums: dict[str, int] = {}
    broken: list[AccountRecord] = []
    for quota in quotas:
        if quota.fault is not None or quota.spec is None:
            broken.append(quota)
            continue
        for name, amount in quota.spec.deserved or ():
            sums[name] = sums.get(name, 0) + amount
    # Usage of a broken quota is charged to the sum too; it must not reduce the room of the other quotas.
    for quota in broken:
        for name in quota.used.keys() & sums.keys():
            sums[name] += quota.used[name]
    return Limit("sum of all min", sums, "raise a min so that their sum comes") if sums else None


def _firm(account: AccountRecord) -> Limit | None:
    quota = account.parent
    if quota is None or quota.spec is None or not quota.spec.deserved:
        return None
    return Limit("min", dict(quota.spec.deserved), "raise the min of its quota")


# Koordinator


def _runtime_limits(session: View) -> dict[AccountKey, Limit]:
    accounts = [account for account in session.ledger.accounts.values() if account.key.tree is Tree.KOORDINATOR]
    nodes = _nodes(accounts)
    levels: dict[str, list[QuotaNode]] = {}
    for account in sorted(accounts, key=_key):
        if account.key in nodes and account.parent is None and account.key.name not in KOORDINATOR_BESIDE:
            node = nodes[account.key]
            # The children of the built-in root share the total directly: the root has no parent.
            level = node.children if account.key.name == KOORDINATOR_ROOT and node.total is None else [node]
            levels.setdefault(account.key.forest, []).extend(level)
    total = _shareable_total(session, accounts)
    runtimes = {
        forest: runtime_tree(total if forest else _total_of_default_tree(total, levels), level)
        for forest, level in levels.items()
    }
    limits: dict[AccountKey, Limit] = {}
    for account in accounts:
        amounts = runtimes.get(account.key.forest, {}).get(account.key.name)
        if amounts:
            stated = dict(account.spec.capability) if account.spec is not None else {}
            limits[account.key] = Limit("runtime quota", amounts, computed=True, max=stated)
        elif (own := _own(account, "max")) is not None:
            limits[account.key] = own
    return limits


def _shareable_total(session: View, accounts: Iterable[AccountRecord]) -> dict[str, int]:
    """Return the resources that the quota trees share: the capacity of all nodes minus the usage of quotas outside
    the trees."""
    total = dict(session.offered())
    for account in accounts:
        if account.key.name in KOORDINATOR_BESIDE:
            for name, amount in account.used.items():
                total[name] = max(0, total.get(name, 0) - amount)
    return total


def _total_of_default_tree(total: dict[str, int], levels: dict[str, list[QuotaNode]]) -> dict[str, int]:
    """Subtract the totals of trees with their own total; the default tree gets the remainder (quota_handler.go)."""
    remainder = dict(total)
    for node in (node for forest, level in levels.items() if forest for node in level):
        for name, amount in (node.total or {}).items():
            remainder[name] = max(0, remainder.get(name, 0) - amount)
    return remainder


def _nodes(accounts: Collection[AccountRecord]) -> dict[AccountKey, QuotaNode]:
    """Return the valid quotas as a tree of plain nodes, children sorted by name."""
    nodes = {account.key: _node(account) for account in sorted(accounts, key=_key) if account.fault is None}
    for account in sorted(accounts, key=_key):
        if account.key in nodes and account.parent is not None:
            nodes[account.parent.key].children.append(nodes[account.key])
    return nodes


def _node(account: AccountRecord) -> QuotaNode:
    request = requested(account, less=account.children.values())
    spec = account.spec
    if spec is None:
        return QuotaNode(account.key.name, request=request)
    return QuotaNode(
        account.key.name,
        minimum=dict(spec.deserved or ()),
        maximum=dict(spec.capability),
        request=request,
        used=account.used,
        weights=dict(spec.weights),
        lends=spec.lends,
        scales=spec.scales,
        total=dict(spec.total) if spec.total is not None else None,
    )


def _key(account: AccountRecord) -> AccountKey:
    return account.key
