"""`guarantees`: what a queue is guaranteed is kept for it while it is idle. No policy names it."""

from __future__ import annotations

from phalanx.plugin import AccountRecord, Arguments, Limit, Plugin, Tree, View
from phalanx.scheduling.quota.queue_tree import real_capabilities


class Guarantees(Plugin):
    """Below every queue the sum over its children of max(used, guarantee) stays within what the queue may hold.

    Volcano looks at one queue at a time (min(capability, total - guarantees of the others)), so that two queues
    together can use up what a third is guaranteed; here they cannot.
    """

    name = "guarantees"

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
    return Limit("capacity beside what others are guaranteed", limits, reserves=True)
