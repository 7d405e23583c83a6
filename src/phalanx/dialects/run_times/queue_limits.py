"""For how long pods may run in a queue: the least that it or a queue above it allows."""

from __future__ import annotations

from phalanx.dialects.run_times.stated import MAX_RUN_TIME
from phalanx.model.account import ROOT_QUEUE, Account, AccountKey, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, ClusterEvent

Most = tuple[int, str]
"""Seconds, 0 for no limit, and which queue says so."""


class QueueLimits:
    """`stated` is how many queues say anything."""

    def __init__(self) -> None:
        # What limits depend on: the queue above, and what each queue says itself.
        self._queues: dict[str, tuple[str, int]] = {}
        self.stated = 0
        self._known: dict[str, Most] = {}

    def most(self, queue: str) -> Most:
        found = self._known.get(queue)
        if found is None:
            found = self._known[queue] = self._find(queue)
        return found

    def changed(self, events: list[ClusterEvent]) -> bool:
        """Takes note of queues; whether limits may be others than before."""
        stated, news = self.stated, False
        for event in events:
            match event:
                case AccountUpdated(account) if account.key.tree is Tree.QUEUE:
                    news |= self._replace(account.key, account)
                case AccountRemoved(key) if key.tree is Tree.QUEUE:
                    news |= self._replace(key, None)
        if news:
            self._known.clear()
        return news and bool(stated or self.stated)

    def _replace(self, key: AccountKey, account: Account | None) -> bool:
        last = self._queues.pop(key.name, None)
        now = None
        if account is not None:
            parent = account.parent.name if account.parent is not None else ""
            now = self._queues[key.name] = (parent, account.max_run_time)
        self.stated += bool(now and now[1]) - bool(last and last[1])
        return last != now

    def _find(self, queue: str) -> Most:
        found: Most = (0, "")
        seen: set[str] = set()
        while queue and queue not in seen:
            seen.add(queue)
            parent, most = self._queues.get(queue, (ROOT_QUEUE if queue != ROOT_QUEUE else "", 0))
            if most and (not found[0] or most < found[0]):
                found = most, f"Queue {queue}: annotation {MAX_RUN_TIME}"
            queue = parent
        return found
