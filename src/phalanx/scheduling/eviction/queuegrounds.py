"""What queues say about taking pods: by priority within one, and between them by what each deserves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, Payer
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.eviction.ground import (
    NO_PREEMPTION,
    NO_RECLAIM,
    Amounts,
    Ground,
    Over,
    Question,
    excess_over,
    held,
)
from phalanx.scheduling.plugin import Plugin, overrides
from phalanx.scheduling.plugins.capacity import Capacity
from phalanx.scheduling.queuetree import QUEUE_CLOSED
from phalanx.scheduling.shares import has_share

if TYPE_CHECKING:
    from phalanx.scheduling.session import Session

NOBODY_DESERVES = "no plugin of the policy says what queues deserve"


class QueueGrounds:
    """What the queues say to one question."""

    def __init__(self, session: Session, question: Question) -> None:
        payer = question.payer
        self._session = session
        self._question = question
        self._plugins = session.pipeline.plugins("deserved")
        capacity = session.configured(Capacity)
        self._levels = capacity.reclaim_level if capacity is not None else None
        self._chain = payer.queue.lineage() if payer.queue is not None else ()
        self._depths = {account: depth for depth, account in enumerate(self._chain)}
        self._named = {plugin: has_share(session, plugin) for plugin in self._plugins}
        self._shares: dict[AccountRecord, list[Amounts]] = {}
        self._objections: dict[int, str | None] = {}
        self._found: dict[AccountRecord | None, Ground | str] = {}

    def shared(self, lender: Payer) -> bool:
        """Whether queues tell the two apart by priority alone: they share one, or the lender has none."""
        return not lender.key.queue or (bool(self._chain) and lender.queue is self._chain[0])

    def of(self, lender: Payer) -> Ground | str:
        if self.shared(lender):
            depth = 0 if lender.key.queue else max(0, len(self._chain) - 1)
            if not self._question.preempt:
                return NO_PREEMPTION
            levels = bool(lender.key.queue) and self._session.pipeline.policy.eviction.levels
            return Ground(EvictionReason.PREEMPTED, True, distance=depth, levels=levels)
        found = self._found.get(lender.queue)
        if found is None:
            found = self._found[lender.queue] = self._between(lender.queue)
        return found

    def _between(self, queue: AccountRecord | None) -> Ground | str:
        if not self._question.reclaim:
            return NO_RECLAIM
        if not self._plugins:
            return NOBODY_DESERVES
        top = len(self._chain) - 1
        branch = [*self._branch(queue)] if queue is not None else []
        joint = branch[-1].parent if branch else queue
        depth = self._depths.get(joint, top) if joint is not None else top
        if (objection := self._objection(depth)) is not None:
            return objection
        kept = next((each for each in branch or self._below_root(queue) if not _reclaimable(each)), None)
        if kept is not None:
            return f"{kept.label} is not reclaimable"
        if queue is None or _broken(queue) or not branch:
            # Nothing is deserved in a queue that is gone or broken, or where only its children may have pods.
            return Ground(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        return self._from(branch, depth)

    def _from(self, branch: Sequence[AccountRecord], depth: int) -> Ground | str:
        """`branch` runs from the lender's queue up to the one just below the queue that both share."""
        must = branch[-1:] if self._levels is None else (*branch[: self._levels + 1], branch[-1])
        overs: list[Over] = []
        for account in dict.fromkeys(must):
            holding = held(account)
            for share in self._share(account):
                over = Over(account, share)
                if not over.exceeded(holding, self._question.wanted):
                    return f"{account.label} is within what it deserves"
                overs.append(over)
        if not overs:
            return NOBODY_DESERVES
        excess = min(
            excess_over(share, held(account), self._question.wanted)
            for account in branch
            for share in self._share(account)
        )
        asked = frozenset(self._question.wanted)
        floors = tuple(Over(account, account.guarantee, asked) for account in branch if account.guarantee)
        return Ground(EvictionReason.RECLAIMED, False, tuple(overs), floors, depth, excess)

    def _branch(self, queue: AccountRecord) -> Iterator[AccountRecord]:
        for account in queue.lineage():
            if account in self._depths:
                return
            yield account

    def _below_root(self, queue: AccountRecord | None) -> Iterable[AccountRecord]:
        return () if queue is None or queue.parent is None else (queue,)

    def _objection(self, depth: int) -> str | None:
        """Which queue below the one at `depth` would hold more than it deserves; None if none would."""
        if depth not in self._objections:
            self._objections[depth] = next(
                (
                    phrase
                    for account in self._chain[:depth]
                    for share in self._share(account)
                    if (phrase := self._question.exceeds(account, share, "what it deserves")) is not None
                ),
                None,
            )
        return self._objections[depth]

    def _share(self, account: AccountRecord) -> list[Amounts]:
        """What a queue deserves of what is asked for, in the words of each plugin that speaks."""
        found = self._shares.get(account)
        if found is None:
            found = self._shares[account] = []
            least = account.guarantee
            for plugin in self._plugins:
                deserved, named = self._deserved(plugin, account), self._named[plugin]
                if deserved is not None:
                    share = {name: max(deserved.get(name, 0), least.get(name, 0)) for name in self._question.wanted}
                    found.append({name: amount for name, amount in share.items() if name in named})
        return found

    def _deserved(self, plugin: Plugin, account: AccountRecord) -> Amounts | None:
        if self._question.announced and self._chain and overrides(plugin, "prospect"):
            return plugin.prospect(self._session, account, self._chain[0], self._question.wanted)
        return plugin.deserved(self._session, account)


def _broken(queue: AccountRecord) -> bool:
    """A closed queue takes nothing new, but keeps what it has."""
    return queue.fault is not None and queue.fault.code != QUEUE_CLOSED


def _reclaimable(queue: AccountRecord) -> bool:
    return queue.noun is None or queue.noun.reclaimable
