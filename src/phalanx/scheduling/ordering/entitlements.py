"""What is an account's own, of what is shared: what a queue deserves, a quota's min."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.account import KOORDINATOR_BESIDE, Tree
from phalanx.model.resources import PODS
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.framework.view import AccountView

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

QUOTA_TREES = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)


def quota_of(charge_path: ChargePath, tree: Tree) -> AccountRecord | None:
    """The leaf of the charge path in a tree; the sum over all elastic quotas is none."""
    return next((account for account in charge_path.path if account.key.tree is tree), None)


def has_share(session: Session, plugin: Plugin) -> frozenset[str]:
    """The resources of which any queue deserves a share, in the words of a plugin: of the others nobody has a claim
    on anybody."""

    def compute() -> frozenset[str]:
        queues = (account for account in session.ledger.accounts.values() if account.key.tree is Tree.QUEUE)
        return frozenset(name for queue in queues for name in plugin.deserved(session, queue) or ())

    return session.memo(("resources with shares", plugin.name), compute)


def has_min(session: Session, tree: Tree) -> frozenset[str]:
    """The resources of which any quota of a tree has a min."""

    def compute() -> frozenset[str]:
        quotas = (account for account in session.ledger.accounts.values() if account.key.tree is tree)
        specs = (quota.spec for quota in quotas if quota.spec is not None and quota.fault is None)
        return frozenset(name for spec in specs for name, _ in spec.deserved or ())

    return session.memo(("resources with a min", tree), compute)


def _left_to_parents(session: Session, plugin: Plugin, queue: AccountRecord) -> frozenset[str]:
    """The resources of which neither a queue nor a sibling says what it deserves, but one above them does."""
    if not overrides(plugin, "declared_resources") or queue.parent is None:
        return frozenset()
    above = (plugin.declared_resources(session, each) for each in queue.parent.lineage()[:-1])
    beside = (
        plugin.declared_resources(session, each) | each.guarantee.keys() for each in queue.parent.children.values()
    )
    return frozenset().union(*above).difference(*beside)


def own_of(session: Session, account: AccountRecord) -> tuple[Mapping[str, int], ...]:
    """What is meant for a queue below the root, or for a quota, in the words of everybody who says something; a
    resource that is absent is shared by nobody's word."""
    tree, found = account.key.tree, list[Mapping[str, int]]()
    if tree is Tree.QUEUE and account.parent is not None:
        for plugin in session.plugin_runtime.plugins("deserved"):
            deserved, least = plugin.deserved(session, account), account.guarantee
            if deserved is not None:
                names = has_share(session, plugin) - _left_to_parents(session, plugin, account)
                found.append({name: max(deserved.get(name, 0), least.get(name, 0)) for name in names})
    elif tree in QUOTA_TREES and account.key.name not in ("", *KOORDINATOR_BESIDE):
        least = dict(account.spec.deserved or ()) if account.spec is not None else {}
        # A root shares what there is; that it says nothing of a min does not mean that nobody below has one.
        names = frozenset(least) if _is_root(account) else has_min(session, tree)
        found.append({name: least.get(name, 0) for name in names})
    return tuple(share for share in found if share)


def _is_root(quota: AccountRecord) -> bool:
    """Whether quotas share below it what nodes offer, or a pool of them."""
    return bool(quota.children) and (
        quota.parent is None or (quota.spec is not None and quota.spec.total is not None)
    )


class ToldShares:
    """What the policy gives queues at one moment, as people and Prometheus are told of it. Of a copy only those
    plugins may be asked that say so (`deserved_from_accounts`)."""

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
        """In the words of the first plugin that says something (`deserved`, `nominal_quota`). Slots for pods are
        only of interest where some queue speaks of them."""
        for plugin in self._plugin_runtime.plugins(point):
            found: Mapping[str, int] | None = getattr(plugin, point)(self._view, queue)
            if found is not None:
                told = dict(found)
                if not self._pods_count:
                    told.pop(PODS, None)
                return told
        return {}
