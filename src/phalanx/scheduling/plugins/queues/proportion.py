"""Plugin `proportion` of Volcano: queues share the cluster by weight, and unrequested shares go to other queues."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from phalanx.cluster.account_paths import ROOT
from phalanx.cluster.accounts import add_amounts
from phalanx.plugin import AccountKey, AccountRecord, AccountView, Arguments, Limit, Tree, View
from phalanx.scheduling.plugins.queues.fairshare import surplus_weights
from phalanx.scheduling.plugins.queues.queue_admission import QueueAdmission
from phalanx.scheduling.quota.dominant_share import order_by_share
from phalanx.scheduling.quota.queue_tree import (
    Amounts,
    capability,
    guarantee,
    guaranteed,
    real_capabilities,
    requested,
    takes_part,
)
from phalanx.scheduling.quota.usage_history import WEIGHT_SCALE
from phalanx.scheduling.quota.water_filling import ShareRequest, deserved

_OWN = ""  # the claim of pods that are charged to a queue with children; no queue has this name
_NONE: Amounts = {}
_BORROW = "proportion.borrow"
_PRIORITY_FIRST = "proportion.priorityFirst"


class Proportion(QueueAdmission):
    """Deserved amounts: a part of the parent's deserved amounts by weight.

    They are at most the queue's requests and real capability, and at least its guarantee. The root deserves the
    part of the cluster that pods of queues can use: without usage of pods without a queue, and without nodes whose
    taints no queue's pods tolerate.

    Queues without requests have no share, but their guarantees stay reserved (Volcano lends them). Volcano's
    proportion is flat; in a tree each level is shared like the cluster.

    With `proportion.borrow` (default true) units exceed the deserved amounts of their queue where room is idle that
    no unit within its share can use. (Volcano never exceeds them.)

    With `proportion.priorityFirst` (default false) siblings are served by priority: after the guarantees of all,
    those of the highest priority get their requests, those of the next one get from the rest. Weights divide among
    siblings of one priority.
    """

    name = "proportion"
    deserved_from_accounts = True
    arguments = (_BORROW, _PRIORITY_FIRST)

    def __init__(self, arguments: Arguments) -> None:
        self._borrow = arguments.boolean(_BORROW, True)
        self._by_priority = arguments.boolean(_PRIORITY_FIRST, False)

    def queue_order(self, session: View, account: AccountRecord) -> tuple[int, float]:
        """Return the sort key: higher priority first, then the smaller used part of deserved; age and name break
        ties.
        """
        session.state.ledger.refresh_sums()
        deserved = self._deserved(session).get(account.key, _NONE)
        share = order_by_share(account.used.items(), deserved, unfounded=True)
        return (-account.spec.priority if account.spec is not None else 0, share)

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        if account.key.tree is not Tree.QUEUE or account.parent is None:
            return None
        return session.memo(("proportion", account.key), lambda: self._limit_of(session, account))

    def deserved(self, session: AccountView, account: AccountRecord) -> Amounts | None:
        return self._deserved(session).get(account.key, _NONE) if account.key.tree is Tree.QUEUE else None

    def nominal_quota(self, session: AccountView, account: AccountRecord) -> Amounts | None:
        if account.key.tree is not Tree.QUEUE:
            return None
        return session.memo("entitled shares", lambda: entitled_shares(session, by_priority=self._by_priority)).get(
            account.key, _NONE
        )

    def deserved_with_request(
        self, session: View, account: AccountRecord, asker: AccountRecord, wanted: Mapping[str, int]
    ) -> Amounts | None:
        if account.key.tree is not Tree.QUEUE:
            return None
        key = ("prospective shares", asker.key, tuple(sorted(wanted.items())))
        shares = session.memo(
            key, lambda: _shares(session, _needs(session, {asker.key: wanted}), self._by_priority)
        )
        return shares.get(account.key, _NONE)

    def _limit_of(self, session: View, account: AccountRecord) -> Limit | None:
        if not takes_part(account):
            return None
        reals = real_capabilities(session)
        amounts, real = self._deserved(session).get(account.key), reals.of(account)
        if amounts is None:
            return Limit("real capability", reals.binding(real), computed=True)
        # Without requests, only the real capability limits the first request. A queue that deserves all its
        # requests needs no limit.
        wanted = requested(account)
        limits = {name: amounts[name] if name in wanted else real[name] for name in amounts}
        limits = {name: limit for name, limit in limits.items() if limit < wanted.get(name, limit + 1)}
        # A capability limits the queue by itself; a second limit would hide that raising the capability helps.
        declared = capability(account)
        follows = {
            name: self._unshared(session, account).get(name, 0)
            for name, limit in limits.items()
            if limit == declared.get(name)
        }
        limits = {
            name: limit
            for name, limit in limits.items()
            if name not in follows or wanted.get(name, 0) - limit > follows[name]
        }
        binding = reals.binding(limits)
        return Limit("deserved share", binding, computed=True, follows=follows, lends=self._borrow)

    def _unshared(self, session: AccountView, account: AccountRecord) -> Amounts:
        """Return the amounts of the queue's parent that neither the parent nor any of its children deserves."""
        parent = account.parent
        assert parent is not None

        def compute() -> Amounts:
            shares = self._deserved(session)
            left = dict(_offered(parent, shares.get(parent.key, _NONE), shares))
            for child in parent.children.values():
                add_amounts(left, shares.get(child.key, _NONE), -1)
            add_amounts(left, _own(parent, session.ledger.charged_queues()), -1)
            return left

        return session.memo(("unshared", parent.key), compute)

    def _deserved(self, session: AccountView) -> dict[AccountKey, Amounts]:
        return session.memo("deserved shares", lambda: deserved_shares(session, by_priority=self._by_priority))


def deserved_shares(session: AccountView, *, by_priority: bool = False) -> dict[AccountKey, Amounts]:
    """Return the deserved amounts of every queue with requests, per resource of the cluster."""
    return _shares(session, _needs(session), by_priority)


def entitled_shares(session: AccountView, *, by_priority: bool = False) -> dict[AccountKey, Amounts]:
    """Return the deserved amounts of every active queue if all of them requested everything."""
    queues = [session.ledger.accounts[ROOT]]
    for queue in queues:
        queues.extend(child for child in queue.children.values() if takes_part(child))
    everything = _shared(session)
    return _shares(session, {queue.key: everything for queue in queues}, by_priority)


def _shared(session: AccountView) -> Amounts:
    """Return the amounts that all queues together can use."""
    return session.memo("shared by queues", lambda: _share_out(session))


def _share_out(session: AccountView) -> dict[str, int]:
    left = session.usable()
    return {name: min(amount, left[name]) for name, amount in real_capabilities(session).total.items()}


def _shares(
    session: AccountView, needs: Mapping[AccountKey, Amounts], by_priority: bool
) -> dict[AccountKey, Amounts]:
    """Return the deserved amounts of every queue with such needs. With `by_priority` siblings of a higher priority
    get theirs before those of a lower one."""
    ledger = session.ledger
    shares: dict[AccountKey, Amounts] = {ROOT: _shared(session)}
    charged = ledger.charged_queues()
    parents = [ledger.accounts[ROOT]]
    for parent in parents:
        children = [child for child in parent.children.values() if child.key in needs]
        if not children:
            continue
        shared = _offered(parent, shares[parent.key], needs)
        weights = surplus_weights(session, children)
        claims: dict[int, list[ShareRequest]] = {}
        for child in children:
            level = child.spec.priority if by_priority and child.spec is not None else 0
            claim = ShareRequest(
                child.key.name, weights[child.key], needs[child.key], guarantee(child), capability(child)
            )
            claims.setdefault(level, []).append(claim)
        own = _own(parent, charged)
        if own:
            claims.setdefault(0, []).append(ShareRequest(_OWN, WEIGHT_SCALE, own))
        found = _deserved_by_level(shared, claims)
        for child in children:
            shares[child.key] = found[child.key.name]
            parents.append(child)
    return shares


def _deserved_by_level(total: Amounts, claims: Mapping[int, list[ShareRequest]]) -> dict[str, dict[str, int]]:
    """Return the deserved amounts of all claimants by name. A level gets from what the higher levels and the
    guarantees of the lower ones leave."""
    if len(claims) == 1:
        return deserved(total, next(iter(claims.values())))
    amounts: dict[str, dict[str, int]] = {}
    left = dict(total)
    levels = sorted(claims, reverse=True)
    for number, level in enumerate(levels):
        floors: dict[str, int] = {}
        for lower in levels[number + 1 :]:
            for claim in claims[lower]:
                add_amounts(floors, claim.guarantee, 1)
        offered = {name: max(0, amount - floors.get(name, 0)) for name, amount in left.items()}
        for name, share in deserved(offered, claims[level]).items():
            amounts[name] = share
            # A resource of which nothing is left has a share of 0: without an entry it would be unlimited.
            left = {resource: amount - share.get(resource, 0) for resource, amount in left.items()}
    return amounts


def _offered(parent: AccountRecord, share: Amounts, needs: Mapping[AccountKey, Amounts]) -> Amounts:
    """Return the amounts for the children with needs, without the guarantees of the other children."""
    kept = guaranteed([child for child in parent.children.values() if child.key not in needs])
    if not kept:
        return share
    return {name: max(0, amount - kept.get(name, 0)) for name, amount in share.items()}


def _needs(
    session: AccountView, more: Mapping[AccountKey, Amounts] = MappingProxyType({})
) -> dict[AccountKey, dict[str, int]]:
    """Return the needs of each active queue with requests, including its children; `more` are additional needs of
    some queues.
    """
    ledger = session.ledger
    order = [ledger.accounts[ROOT]]
    for queue in order:
        order.extend([child for child in queue.children.values() if takes_part(child)])
    charged = ledger.charged_queues()
    needs: dict[AccountKey, dict[str, int]] = {}
    for queue in reversed(order):
        need = _own(queue, charged)
        if queue.key in more:
            add_amounts(need, more[queue.key], 1)
        for child in queue.children.values():
            below = needs.get(child.key)
            if below is None:
                continue
            limits, least = capability(child), guarantee(child)
            for name, amount in below.items():
                if name in limits:
                    amount = min(amount, limits[name])
                if name in least:
                    amount = max(amount, least[name])
                need[name] = need.get(name, 0) + amount
            for name, amount in least.items():
                if name not in below:
                    need[name] = need.get(name, 0) + amount
        if need:
            needs[queue.key] = need
    return needs


def _own(queue: AccountRecord, charged: set[AccountKey]) -> dict[str, int]:
    """Return the usage and requests of a queue's own pods."""
    return requested(queue, less=queue.children.values()) if queue.key in charged else {}
