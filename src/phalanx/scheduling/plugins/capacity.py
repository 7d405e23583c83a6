"""`capacity`: queues say themselves what they deserve, and may hold what others are not guaranteed (Volcano)."""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import Tree
from phalanx.scheduling.arguments import Arguments
from phalanx.scheduling.ceilings import Ceiling
from phalanx.scheduling.plugins.queueadmission import QueueAdmission
from phalanx.scheduling.queuetree import (
    Amounts,
    capability,
    guarantee,
    real_capabilities,
    takes_part,
)
from phalanx.scheduling.sharing.dominance import order_by_share
from phalanx.scheduling.view import View

_RECLAIM_LEVEL = "ancestorReclaimLevel"
_DEVICES = ("capacity.DRAConsumableCapacityEnable", "capacity.DynamicResourceAllocationEnable")


class Capacity(QueueAdmission):
    """A queue may hold its real capability, on every level of the tree; `deserved` decides who comes first.

    `deserved` counts up to the real capability and from the guarantee up. A queue that deserves nothing has a
    share of 1 and comes after the others of that share.
    """

    name = "capacity"
    without_effect = (_RECLAIM_LEVEL, *_DEVICES)
    arguments = without_effect

    def __init__(self, arguments: Arguments) -> None:
        arguments.integer(_RECLAIM_LEVEL, 0, least=0)
        for key in _DEVICES:
            arguments.boolean(key, False)

    def queue_order(self, session: View, account: AccountRecord) -> tuple[int, float, bool]:
        """Higher priorities first, then the smaller part of what is deserved (then age and name decide)."""
        session.state.ledger.settle()
        deserved = self._deserved(session, account)
        share = order_by_share(_of(account.used, deserved), deserved, unfounded=True) if deserved else 1.0
        return (-account.noun.priority if account.noun is not None else 0, share, not deserved)

    def ceiling(self, session: View, account: AccountRecord) -> Ceiling | None:
        if account.key.tree is not Tree.QUEUE or account.parent is None:
            return None
        return session.memo(("capacity", account.key), lambda: _ceiling(session, account))

    def deserved(self, session: View, account: AccountRecord) -> Amounts | None:
        return self._deserved(session, account) if account.key.tree is Tree.QUEUE else None

    def entitled(self, session: View, account: AccountRecord) -> Amounts | None:
        return self.deserved(session, account)

    def _deserved(self, session: View, account: AccountRecord) -> Amounts:
        return session.memo(("capacity deserved", account.key), lambda: _deserved(session, account))


def _ceiling(session: View, account: AccountRecord) -> Ceiling | None:
    if not takes_part(account):
        return None
    # The capability itself is a ceiling whatever the policy; only what is tighter is news.
    declared, reals = capability(account), real_capabilities(session)
    limits = reals.binding(reals.of(account))
    limits = {name: limits[name] for name in limits if limits[name] != declared.get(name)}
    return Ceiling("real capability", limits, computed=True)


def _deserved(session: View, account: AccountRecord) -> Amounts:
    noun = account.noun
    if noun is None:
        return {}
    real = real_capabilities(session).of(account)
    amounts = {name: min(amount, real.get(name, amount)) for name, amount in noun.deserved or ()}
    for name, amount in guarantee(account).items():
        amounts[name] = max(amounts.get(name, 0), amount)
    return amounts


def _of(used: Amounts, deserved: Amounts) -> list[tuple[str, int]]:
    """What is used of the resources that something is said about."""
    return [(name, used[name]) for name in deserved if name in used]
