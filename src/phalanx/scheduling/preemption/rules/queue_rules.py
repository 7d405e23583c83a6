"""What queues say about taking pods: by priority within one, and between them by what each deserves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.decisions import EvictionReason
from phalanx.model.resources import PODS
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.ordering.entitlements import has_share
from phalanx.scheduling.preemption.rules.rule import (
    NO_PREEMPTION,
    NO_RECLAIM,
    AccountLimits,
    Amounts,
    ReclaimRequest,
    ReclaimRule,
    excess_of,
    future_holdings,
)
from phalanx.scheduling.quota.queue_tree import QUEUE_CLOSED

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

NOBODY_DESERVES = "no plugin of the policy says what queues deserve"


class QueueRules:
    """What the queues say to one question."""

    def __init__(self, session: Session, question: ReclaimRequest) -> None:
        charge_path = question.charge_path
        self._session = session
        self._question = question
        self._plugins = session.plugin_runtime.plugins("deserved")
        levels = (plugin.reclaim_level for plugin in self._plugins)
        self._levels = next((level for level in levels if level is not None), None)
        self._chain = charge_path.queue.lineage() if charge_path.queue is not None else ()
        self._depths = {account: depth for depth, account in enumerate(self._chain)}
        self._named = {plugin: has_share(session, plugin) for plugin in self._plugins}
        self._shares: dict[tuple[Plugin, AccountRecord], Amounts] = {}
        self._claims: dict[int, frozenset[str] | str] = {}
        self._found: dict[AccountRecord | None, ReclaimRule | str] = {}

    def by_priority_alone(self, reclaimee: ChargePath) -> bool:
        """Whether queues tell the two apart by priority alone: they share one, or the reclaimee has none."""
        return not reclaimee.key.queue or (bool(self._chain) and reclaimee.queue is self._chain[0])

    def rule_for(self, reclaimee: ChargePath) -> ReclaimRule | str:
        if self.by_priority_alone(reclaimee):
            depth = 0 if reclaimee.key.queue else max(0, len(self._chain) - 1)
            if not self._question.preempt:
                return NO_PREEMPTION
            levels = bool(reclaimee.key.queue) and self._session.plugin_runtime.policy.eviction.levels
            return ReclaimRule(EvictionReason.PREEMPTED, True, distance=depth, drf=levels)
        found = self._found.get(reclaimee.queue)
        if found is None:
            found = self._found[reclaimee.queue] = self._between(reclaimee.queue)
        return found

    def _between(self, queue: AccountRecord | None) -> ReclaimRule | str:
        if not self._question.reclaim:
            return NO_RECLAIM
        if not self._plugins:
            return NOBODY_DESERVES
        top = len(self._chain) - 1
        branch = [*self._branch(queue)] if queue is not None else []
        joint = branch[-1].parent if branch else queue
        depth = self._depths.get(joint, top) if joint is not None else top
        claim = self._claim(depth)
        if isinstance(claim, str):
            return claim
        kept = next((each for each in branch or self._below_root(queue) if not _reclaimable(each)), None)
        if kept is not None:
            return f"{kept.label} is not reclaimable"
        if queue is None or _broken(queue) or not branch:
            # Nothing is deserved in a queue that is gone or broken, or where only its children may have pods.
            return ReclaimRule(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        return self._from(branch, depth, claim)

    def _from(self, branch: Sequence[AccountRecord], depth: int, claim: frozenset[str]) -> ReclaimRule | str:
        """`branch` runs from the reclaimee's queue up to the one just below the queue that both share; `claim` are
        the resources that the preemptor may take back."""
        looked_at = branch if self._levels is None else branch[: self._levels + 1]
        overs, floors = list[AccountLimits](), list[AccountLimits]()
        for plugin in self._plugins:
            silent = claim & self._named[plugin]
            for account in looked_at:
                stated, share = self._stated(plugin, account), self._share(plugin, account)
                limits = {name: share.get(name, 0) for name in claim & self._named[plugin] if name in stated}
                if account is looked_at[-1]:
                    # Where nobody says anything, nothing is deserved.
                    limits |= {name: share.get(name, 0) for name in silent - stated}
                silent -= stated
                if limits:
                    overs.append(AccountLimits(account, limits))
                names = self._kept(plugin) & stated - claim
                kept = {name: amount for name in names if (amount := share.get(name, 0))}
                if kept:
                    floors.append(AccountLimits(account, kept, frozenset(kept)))
        if not overs:
            return NOBODY_DESERVES
        for over in overs:
            if not over.exceeded(future_holdings(over.account), self._question.wanted):
                return f"{over.account.label} is within what it deserves"
        asked = frozenset(self._question.wanted)
        floors += [AccountLimits(account, account.guarantee, asked) for account in branch if account.guarantee]
        dues = (tuple(overs),)
        return ReclaimRule(
            EvictionReason.RECLAIMED,
            False,
            tuple(overs),
            tuple(floors),
            depth,
            excess_of(dues, future_holdings),
            shares=dues,
        )

    def _branch(self, queue: AccountRecord) -> Iterator[AccountRecord]:
        for account in queue.lineage():
            if account in self._depths:
                return
            yield account

    def _below_root(self, queue: AccountRecord | None) -> Iterable[AccountRecord]:
        return () if queue is None or queue.parent is None else (queue,)

    def _claim(self, depth: int) -> frozenset[str] | str:
        """The resources that the preemptor may take back from outside the queue at `depth`, since those below it
        stay within what they deserve; or which of these would not."""
        found = self._claims.get(depth)
        if found is None:
            found = self._claims[depth] = self._find_claim(depth)
        return found

    def _find_claim(self, depth: int) -> frozenset[str] | str:
        chain = self._chain[:depth] if self._levels is None else self._chain[: min(depth, self._levels + 1)]
        claim, objection = set[str](), None
        for plugin in self._plugins:
            for name in self._question.wanted:
                if name not in self._named[plugin]:
                    continue
                speak = [account for account in chain if name in self._stated(plugin, account)]
                # Where no queue says anything, what they are guaranteed counts.
                words = [self._exceeds(account, plugin, name) for account in speak or chain]
                against = next((word for word in words if word is not None), None)
                if against is None or (self._levels is not None and None in words):
                    claim.add(name)
                elif _follows(plugin):
                    return against  # nobody ever gets more than that
                else:
                    objection = objection or against
        # How many pods there are is no reason to take anything else.
        return objection if objection is not None and claim <= {PODS} else frozenset(claim)

    def _exceeds(self, account: AccountRecord, plugin: Plugin, name: str) -> str | None:
        share = {name: self._share(plugin, account).get(name, 0)}
        return self._question.exceeds_share(account, share, "what it deserves")

    def _stated(self, plugin: Plugin, account: AccountRecord) -> frozenset[str]:
        """The resources of which a queue has a share of its own, in the words of a plugin."""
        return (
            plugin.declared_resources(self._session, account)
            if overrides(plugin, "declared_resources")
            else self._named[plugin]
        )

    def _kept(self, plugin: Plugin) -> frozenset[str]:
        """The resources of which a reclaimee keeps what it deserves, unless they are taken back. A share that
        follows what queues ask for is as large as what nobody else asks for, and so nothing to keep."""
        return frozenset() if _follows(plugin) else self._named[plugin]

    def _share(self, plugin: Plugin, account: AccountRecord) -> Amounts:
        """What a queue deserves in the words of a plugin, at least what it is guaranteed."""
        key = (plugin, account)
        found = self._shares.get(key)
        if found is None:
            deserved, least = self._deserved(plugin, account) or {}, account.guarantee
            names = (deserved.keys() | least.keys()) & self._named[plugin]
            found = self._shares[key] = {name: max(deserved.get(name, 0), least.get(name, 0)) for name in names}
        return found

    def _deserved(self, plugin: Plugin, account: AccountRecord) -> Amounts | None:
        if self._question.announced and self._chain and _follows(plugin):
            return plugin.deserved_with_request(self._session, account, self._chain[0], self._question.wanted)
        return plugin.deserved(self._session, account)


def _follows(plugin: Plugin) -> bool:
    """Whether what queues deserve follows from what they ask for."""
    return overrides(plugin, "deserved_with_request")


def _broken(queue: AccountRecord) -> bool:
    """A closed queue takes nothing new, but keeps what it has."""
    return queue.fault is not None and queue.fault.code != QUEUE_CLOSED


def _reclaimable(queue: AccountRecord) -> bool:
    return queue.spec is None or queue.spec.reclaimable
