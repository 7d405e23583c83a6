"""Plugin `guarantees`: idle guaranteed quota of a queue is reserved for it. The plugin is active in every
policy.
"""

from __future__ import annotations

from phalanx.plugin import AccountRecord, Arguments, Limit, Plugin, Tree, View
from phalanx.scheduling.quota.queue_tree import real_capabilities


class Guarantees(Plugin):
    """Limit of every parent queue: the sum over its children of max(used, guarantee) stays within its real
    capability.

    Volcano checks one queue at a time (min(capability, total - guarantees of the other queues)). There, two queues
    together can use up the guarantee of a third; here they cannot.
    """

    name = "guarantees"
    limits_by_declaration = True

    def __init__(self, arguments: Arguments) -> None:
        pass

    def limit(self, session: View, account: AccountRecord) -> Limit | None:
        if account.key.tree is not Tree.QUEUE or not account.children:
            return None
        return session.memo(("guarantees", account.key), lambda: _limit_of(session, account))


def _limit_of(session: View, account: AccountRecord) -> Limit | None:
    named = account.guaranteed_resources
    if not named:
        return None
    real = real_capabilities(session).of(account)
    limits = {name: real[name] for name in sorted(named) if name in real}
    return Limit("capacity without the guarantees of other queues", limits, reserves=True)
