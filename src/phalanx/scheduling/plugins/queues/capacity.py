"""Plugin `capacity` of Volcano: queues declare what they deserve and can use quota that is not guaranteed to other
queues.
"""

from __future__ import annotations

from phalanx.cluster.accounts import add_amounts
from phalanx.plugin import AccountRecord, AccountView, Arguments, Limit, Tree, View
from phalanx.scheduling.plugins.queues.queue_admission import QueueAdmission
from phalanx.scheduling.quota.dominant_share import order_by_share
from phalanx.scheduling.quota.queue_tree import Amounts, capability, guarantee, real_capabilities, takes_part

_RECLAIM_LEVEL = "ancestorReclaimLevel"
_DEVICES = ("capacity.DRAConsumableCapacityEnable", "capacity.DynamicResourceAllocationEnable")


class Capacity(QueueAdmission):
    """Limit of a queue: its real capability, on every level of the tree. Order of queues: by `deserved`.

    `deserved` is at least the guarantee and at most the real capability. Of a resource that a parent queue does not
    declare, it deserves the sum of its children. A queue that deserves nothing has a share of 1 and sorts after the
    other queues of that share.

    Reclaim is decided on every level below the common ancestor of both queues, where a level declares anything. All
    levels of the preemptor must stay within their deserved amounts, all levels of the reclaimee must exceed them.
    With `reclaim_level` n, only the queues and n levels above them count, and one level of the preemptor within its
    deserved amounts is enough. Volcano does the same, with n = 0 by default. (In Volcano, queues with one parent
    can then reclaim from each other for the parent's sake, even if both exceed their deserved amounts: without
    end.)
    """

    name = "capacity"
    deserved_from_accounts = True
    without_effect = _DEVICES
    arguments = (_RECLAIM_LEVEL, *_DEVICES)

    def __init__(self, arguments: Arguments) -> None:
        level = arguments.integer(_RECLAIM_LEVEL, -1, least=0)
        self.reclaim_level = level if level >= 0 else None
        for key in _DEVICES:
            arguments.boolean(key, False)

    def queue_order(self, session: View, account: AccountRecord) -> tuple[int, float, bool]:
        """Return the sort key: higher priority first, then the smaller used part of deserved; age and name break
        ties.
        """
        session.state.ledger.refresh_sums()
        deserved = self._deserved(session, account)
        share = order_by_share(_of(account.used, deserved), deserved, unfounded=True) if deserved else 1.0
        return (-account.spec.priority if account.spec is not None else 0, share, not deserved)

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        if account.key.tree is not Tree.QUEUE or account.parent is None:
            return None
        return session.memo(("capacity", account.key), lambda: _limit_of(session, account))

    def deserved(self, session: AccountView, account: AccountRecord) -> Amounts | None:
        return self._deserved(session, account) if account.key.tree is Tree.QUEUE else None

    def nominal_quota(self, session: View, account: AccountRecord) -> Amounts | None:
        return self.deserved(session, account)

    def declared_resources(self, session: View, account: AccountRecord) -> frozenset[str]:
        """Return the resources for which the queue or a descendant declares `deserved`; guarantees do not count."""
        return session.memo(("capacity stated", account.key), lambda: self._stated(session, account))

    def _stated(self, session: View, account: AccountRecord) -> frozenset[str]:
        declared = (account.spec.deserved or ()) if account.spec is not None else ()
        below = (
            self.declared_resources(session, child) for child in account.children.values() if takes_part(child)
        )
        return frozenset(name for name, _ in declared).union(*below)

    def _deserved(self, session: AccountView, account: AccountRecord) -> Amounts:
        return session.memo(("capacity deserved", account.key), lambda: self._deserve(session, account))

    def _deserve(self, session: AccountView, account: AccountRecord) -> Amounts:
        spec = account.spec
        declared = dict(spec.deserved or ()) if spec is not None else {}
        below: dict[str, int] = {}
        for child in account.children.values():
            if takes_part(child):
                add_amounts(below, self._deserved(session, child), 1)
        real = real_capabilities(session).of(account)
        amounts = {name: min(amount, real.get(name, amount)) for name, amount in (below | declared).items()}
        for name, amount in guarantee(account).items():
            amounts[name] = max(amounts.get(name, 0), amount)
        return amounts


def _limit_of(session: View, account: AccountRecord) -> Limit | None:
    if not takes_part(account):
        return None
    # The capability itself is a limit in every policy, so only lower amounts are returned.
    declared, reals = capability(account), real_capabilities(session)
    limits = reals.binding(reals.of(account))
    limits = {name: limits[name] for name in limits if limits[name] != declared.get(name)}
    return Limit("real capability", limits, computed=True)


def _of(used: Amounts, deserved: Amounts) -> list[tuple[str, int]]:
    """Return the used amounts of the resources that `deserved` names."""
    return [(name, used[name]) for name in deserved if name in used]
