"""Own shares of accounts: the deserved share of a queue, the min of a quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.account import KOORDINATOR_BESIDE, Tree
from phalanx.model.resources import PODS
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.framework.view import AccountView
from phalanx.scheduling.quota.limits import UNLIMITED

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

QUOTA_TREES = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)


def quota_of(charge_path: ChargePath, tree: Tree) -> AccountRecord | None:
    """Return the leaf of the charge path in a tree, or None."""
    return next((account for account in charge_path.path if account.key.tree is tree), None)


def has_share(session: Session, plugin: Plugin) -> frozenset[str]:
    """Return the resources of which any queue deserves a share by one plugin; no queue has a claim to other
    resources."""

    def compute() -> frozenset[str]:
        queues = (account for account in session.ledger.accounts.values() if account.key.tree is Tree.QUEUE)
        return frozenset(name for queue in queues for name in plugin.deserved(session, queue) or ())

    return session.memo(("resources with shares", plugin.name), compute)


def has_min(session: Session, tree: Tree) -> frozenset[str]:
    """Return the resources of which any quota of a tree has a min."""

    def compute() -> frozenset[str]:
        quotas = (account for account in session.ledger.accounts.values() if account.key.tree is tree)
        specs = (quota.spec for quota in quotas if quota.spec is not None and quota.fault is None)
        return frozenset(name for spec in specs for name, _ in spec.deserved or ())

    return session.memo(("resources with a min", tree), compute)


def _left_to_parents(session: Session, plugin: Plugin, queue: AccountRecord) -> frozenset[str]:
    """Return the resources of which neither the queue nor a sibling declares a share, but an ancestor does."""
    if not overrides(plugin, "declared_resources") or queue.parent is None:
        return frozenset()
    declared_above = (plugin.declared_resources(session, account) for account in queue.parent.lineage()[:-1])
    declared_beside = (
        plugin.declared_resources(session, account) | account.guarantee.keys()
        for account in queue.parent.children.values()
    )
    return frozenset().union(*declared_above).difference(*declared_beside)


def own_of(session: Session, account: AccountRecord) -> tuple[Mapping[str, int], ...]:
    """Return the own shares of a queue below the root, or of a quota, one for each plugin that computes one.

    An absent resource has no own share: all accounts share it.
    """
    tree, shares = account.key.tree, list[Mapping[str, int]]()
    if tree is Tree.QUEUE and account.parent is not None:
        for plugin in session.plugin_runtime.plugins("deserved"):
            deserved, minimum = plugin.deserved(session, account), account.guarantee
            if deserved is not None:
                names = has_share(session, plugin) - _left_to_parents(session, plugin, account)
                shares.append({name: max(deserved.get(name, 0), minimum.get(name, 0)) for name in names})
    elif tree in QUOTA_TREES and account.key.name not in ("", *KOORDINATOR_BESIDE):
        minimum = dict(account.spec.deserved or ()) if account.spec is not None else {}
        # A root shares the total: without a min of its own, quotas below it can still have one.
        names = frozenset(minimum) if _is_root(account) else has_min(session, tree)
        shares.append({name: minimum.get(name, 0) for name in names})
    return tuple(share for share in shares if share)


def copies_within_share(session: Session, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
    """Return an upper bound on the number of times that the amounts fit into the unused own share of the queue or
    of a quota; 0 if nothing has a share."""
    leaves = [account for tree in QUOTA_TREES if (account := quota_of(charge_path, tree)) is not None]
    if charge_path.queue is not None:
        leaves.append(charge_path.queue)
    session.state.ledger.refresh_sums()
    return max((_copies(session, account, amounts) for account in leaves), default=0)


def _copies(session: Session, account: AccountRecord, amounts: Mapping[str, int]) -> int:
    shares = own_of(session, account)
    if not shares or account.key.tree is Tree.KOORDINATOR:
        return UNLIMITED if shares else 0  # a runtime quota can be larger than the min
    room = UNLIMITED
    for share in shares:
        for name, amount in amounts.items():
            if amount > 0 and name in share and name != PODS:
                holds = account.used.get(name, 0) - account.releasing.get(name, 0)
                room = min(room, max(0, (share[name] - holds) // amount))
    return room


def _is_root(quota: AccountRecord) -> bool:
    """Return whether quotas below this one share the nodes' amounts, or a pool of them."""
    return bool(quota.children) and (
        quota.parent is None or (quota.spec is not None and quota.spec.total is not None)
    )


class ToldShares:
    """Published shares of queues at one moment.

    On a copy of the accounts only plugins with `deserved_from_accounts` can be queried.
    """

    def __init__(self, view: AccountView, plugin_runtime: PluginRuntime) -> None:
        self._view = view
        self._plugin_runtime = plugin_runtime
        self._pods_count = any(
            name == PODS
            for account in view.ledger.accounts.values()
            if account.key.tree is Tree.QUEUE and (spec := account.spec) is not None
            for limits in (spec.guarantee, spec.deserved or (), spec.capability)
            for name, _ in limits
        )

    def of(self, point: str, queue: AccountRecord) -> dict[str, int]:
        """Return the share of a queue by the first plugin that computes one at `point` (`deserved`,
        `nominal_quota`).

        Pod slots are only included if some queue declares them.
        """
        for plugin in self._plugin_runtime.plugins(point):
            share: Mapping[str, int] | None = getattr(plugin, point)(self._view, queue)
            if share is not None:
                published = dict(share)
                if not self._pods_count:
                    published.pop(PODS, None)
                return published
        return {}
