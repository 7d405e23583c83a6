"""Changes of shares after which units that wait for reclaim are searched again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import Tree
from phalanx.scheduling.ordering.entitlements import has_share
from phalanx.scheduling.session.share_pressures import PressureKey, SharePressure

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

_NOTHING: Mapping[str, int] = {}


def share_version(session: Session) -> int:
    """Return the version of the shares, after reading them if they can have changed (`SharePressures`)."""
    pressures = session.share_pressures
    if session.plugin_runtime.policy.eviction.reclaim:
        demand, version = session.ledger.demand_version, session.state.version
        if pressures.read_at != (demand, version):
            accounts = session.ledger.accounts
            # Without new requests the same shares are contested.
            same = pressures.read_at is not None and pressures.read_at[0] == demand
            read = [accounts[key] for key in pressures.accounts] if same else accounts.values()
            pressures.update((demand, version), dict(_read_pressures(session, read)))
    return pressures.version


def search_again_after_changes(session: Session, rechecks: bool = True) -> None:
    """Request a search for victims for all demands in the next cycle if shares have changed for them; without
    `rechecks` of verdicts also if room was freed."""
    if session.queue.waiting_demands():
        if not rechecks:
            search_again_in_freed_room(session)
        version, pressures = share_version(session), session.share_pressures
        if version != pressures.searched:
            session.queue.ask_preemption_for_all()
        pressures.searched = version


def search_again_in_freed_room(session: Session) -> None:
    """Request a search for victims for all demands if room was freed since the last call, or is about to be freed:
    it can complete the room of victims without fitting a unit by itself."""
    state, pressures = session.state, session.share_pressures
    version = state.capacity_version, state.leaving_version
    if version != pressures.searched_in:
        session.queue.ask_preemption_for_all()
    pressures.searched_in = version


def _read_pressures(
    session: Session, accounts: Collection[AccountRecord]
) -> Iterator[tuple[PressureKey, SharePressure]]:
    """Yield the pressure on each share that is smaller than the requests of its account."""
    queues = [account for account in accounts if account.key.tree is Tree.QUEUE]
    for number, plugin in enumerate(session.plugin_runtime.plugins("deserved")):
        names = has_share(session, plugin)
        for queue in queues:
            share, least = plugin.deserved(session, queue) or _NOTHING, queue.guarantee
            if least:
                share = {name: max(share.get(name, 0), least.get(name, 0)) for name in names}
            if pressure := _pressure(queue, share, names):
                yield (queue.key, number), pressure
    for account in accounts:
        if account.key.tree is Tree.KOORDINATOR:
            for plugin in session.plugin_runtime.plugins("runtime_quota"):
                share = plugin.runtime_quota(session, account)
                if pressure := _pressure(account, share, share):
                    yield (account.key, 0), pressure
        elif account.spec is not None and account.key.tree is not Tree.QUEUE:
            share = dict(account.spec.deserved or ())
            if pressure := _pressure(account, share, share):
                yield (account.key, 0), pressure


def _pressure(account: AccountRecord, share: Mapping[str, int], names: Iterable[str]) -> SharePressure | None:
    used, pending = account.used, account.pending
    contested = {
        name: limit for name in names if used.get(name, 0) + pending.get(name, 0) > (limit := share.get(name, 0))
    }
    if not contested:
        return None
    held = {name: used.get(name, 0) - account.releasing.get(name, 0) - limit for name, limit in contested.items()}
    return SharePressure({name: amount for name, amount in held.items() if amount > 0}, contested)
