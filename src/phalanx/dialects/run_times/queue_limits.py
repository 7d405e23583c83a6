"""Maximum run time per queue: the smallest of its own and its parents' maxima."""

from __future__ import annotations

from phalanx.dialects.run_times.stated import MAX_RUN_TIME
from phalanx.model.account import ROOT_QUEUE, Account, AccountKey, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, ClusterEvent

Most = tuple[int, str]
"""Seconds, 0 for no limit, and the queue that sets it."""


class QueueLimits:
    """Maximum run times that apply to queues, parents included. `stated` is the number of queues with a maximum of
    their own."""

    def __init__(self) -> None:
        # Input of the limits: the parent queue, and the queue's own maximum.
        self._queues: dict[str, tuple[str, int]] = {}
        self.stated = 0
        self._known: dict[str, Most] = {}

    def most(self, queue: str) -> Most:
        maximum = self._known.get(queue)
        if maximum is None:
            maximum = self._known[queue] = self._find(queue)
        return maximum

    def changed(self, events: list[ClusterEvent]) -> bool:
        """Process changed queues; return whether the maximum run time of any queue can have changed."""
        stated, has_changed = self.stated, False
        for event in events:
            match event:
                case AccountUpdated(account) if account.key.tree is Tree.QUEUE:
                    has_changed |= self._replace(account.key, account)
                case AccountRemoved(key) if key.tree is Tree.QUEUE:
                    has_changed |= self._replace(key, None)
        if has_changed:
            self._known.clear()
        return has_changed and bool(stated or self.stated)

    def _replace(self, key: AccountKey, account: Account | None) -> bool:
        last = self._queues.pop(key.name, None)
        now = None
        if account is not None:
            parent = account.parent.name if account.parent is not None else ""
            now = self._queues[key.name] = (parent, account.max_run_time)
        self.stated += bool(now and now[1]) - bool(last and last[1])
        return last != now

    def _find(self, queue: str) -> Most:
        minimum: Most = (0, "")
        seen: set[str] = set()
        while queue and queue not in seen:
            seen.add(queue)
            parent, maximum = self._queues.get(queue, (ROOT_QUEUE if queue != ROOT_QUEUE else "", 0))
            if maximum and (not minimum[0] or maximum < minimum[0]):
                minimum = maximum, f"Queue {queue}: annotation {MAX_RUN_TIME}"
            queue = parent
        return minimum
