"""Changes of shares after which units that wait for reclaim are searched again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.ordering.entitlements import has_share
from phalanx.scheduling.quota.queue_tree import requested
from phalanx.scheduling.session.share_pressures import SharePressure

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session


def share_version(session: Session) -> int:
    """Return the version of the shares, after reading them if they can have changed (`SharePressures`)."""
    pressures = session.share_pressures
    if session.plugin_runtime.policy.eviction.reclaim:
        versions = session.ledger.demand_version, session.state.version
        if not pressures.read_at(versions):
            pressures.update(versions, dict(_read_pressures(session)))
    return pressures.version


def search_after_share_changes(session: Session) -> None:
    """Search again for all unschedulable units if the shares have changed since the last call."""
    pressures = session.share_pressures
    if session.queue.waiting_demands() and share_version(session) != pressures.searched_version:
        session.queue.ask_preemption_for_all()
        pressures.searched_version = pressures.version


def _read_pressures(session: Session) -> Iterator[tuple[tuple[AccountKey, int], SharePressure]]:
    """Yield the pressure on each share that is smaller than the requests of its account."""
    for account in session.ledger.accounts.values():
        if account.used or account.pending:
            wanted = requested(account)
            for number, share in enumerate(_shares(session, account)):
                contested = {name: amount for name, amount in share.items() if wanted.get(name, 0) > amount}
                if contested:
                    held = {name: _held(account, name) - amount for name, amount in contested.items()}
                    excess = {name: amount for name, amount in held.items() if amount > 0}
                    yield (account.key, number), SharePressure(excess, contested)


def _held(account: AccountRecord, name: str) -> int:
    return account.used.get(name, 0) - account.releasing.get(name, 0)


def _shares(session: Session, account: AccountRecord) -> Iterator[Mapping[str, int]]:
    """Yield the shares that reclaim rules compare with the usage of an account."""
    tree, plugin_runtime = account.key.tree, session.plugin_runtime
    if tree is Tree.QUEUE:
        for plugin in plugin_runtime.plugins("deserved"):
            share, least = plugin.deserved(session, account) or {}, account.guarantee
            yield {name: max(share.get(name, 0), least.get(name, 0)) for name in has_share(session, plugin)}
    elif tree is Tree.KOORDINATOR:
        for plugin in plugin_runtime.plugins("runtime_quota"):
            yield plugin.runtime_quota(session, account)
    elif account.spec is not None and account.spec.deserved:
        yield dict(account.spec.deserved)
