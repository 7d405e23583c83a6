"""Reclaim rules of queues: by priority within one queue, by deserved shares between queues."""

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

NOBODY_DESERVES = "no plugin of the policy computes deserved shares"


class QueueRules:
    """Answers of the queues to one request."""

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
        """Return whether priority alone decides: both sides share a queue, or the reclaimee has none."""
        return not reclaimee.key.queue or (bool(self._chain) and reclaimee.queue is self._chain[0])

    def rule_for(self, reclaimee: ChargePath) -> ReclaimRule | str:
        if self.by_priority_alone(reclaimee):
            depth = 0 if reclaimee.key.queue else max(0, len(self._chain) - 1)
            if not self._question.preempt:
                return NO_PREEMPTION
            levels = bool(reclaimee.key.queue) and self._session.plugin_runtime.policy.eviction.levels
            return ReclaimRule(EvictionReason.PREEMPTED, True, distance=depth, drf=levels)
        rule = self._found.get(reclaimee.queue)
        if rule is None:
            rule = self._found[reclaimee.queue] = self._between(reclaimee.queue)
        return rule

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
        kept = next((account for account in branch or self._below_root(queue) if not _reclaimable(account)), None)
        if kept is not None:
            return f"{kept.label} is not reclaimable"
        if queue is None or _is_broken(queue) or not branch:
            # A queue that is missing, broken or not a leaf deserves nothing.
            return ReclaimRule(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        return self._from(branch, depth, claim)

    def _from(self, branch: Sequence[AccountRecord], depth: int, claim: frozenset[str]) -> ReclaimRule | str:
        """Return the rule between two branches, or the reason why there is none.

        `branch` runs from the reclaimee's queue up to the child of the common queue. `claim` is the resources that
        the preemptor can reclaim.
        """
        looked_at = branch if self._levels is None else branch[: self._levels + 1]
        overs, floors = list[AccountLimits](), list[AccountLimits]()
        for plugin in self._plugins:
            silent = claim & self._named[plugin]
            for account in looked_at:
                stated, share = self._stated(plugin, account), self._share(plugin, account)
                limits = {name: share.get(name, 0) for name in claim & self._named[plugin] if name in stated}
                if account is looked_at[-1]:
                    # A resource for which no level states a share is deserved by no queue.
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
                return f"{over.account.label} is within its deserved share"
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
            deserved=self._deserved_shares(branch),
        )

    def _deserved_shares(self, branch: Sequence[AccountRecord]) -> tuple[AccountLimits, ...]:
        """Return the stated shares of the requested resources on every level of a branch."""
        shares: list[AccountLimits] = []
        for plugin in self._plugins:
            requested = self._named[plugin].intersection(self._question.wanted)
            for account in branch:
                share, names = self._share(plugin, account), requested & self._stated(plugin, account)
                limits = {name: amount for name in names if (amount := share.get(name, 0)) > 0}
                if limits:
                    shares.append(AccountLimits(account, limits))
        return tuple(shares)

    def _branch(self, queue: AccountRecord) -> Iterator[AccountRecord]:
        for account in queue.lineage():
            if account in self._depths:
                return
            yield account

    def _below_root(self, queue: AccountRecord | None) -> Iterable[AccountRecord]:
        return () if queue is None or queue.parent is None else (queue,)

    def _claim(self, depth: int) -> frozenset[str] | str:
        """Return the resources that the preemptor can reclaim from outside the queue at `depth`: its own branch
        stays within its deserved share of them. If there are none, return the reason."""
        claim = self._claims.get(depth)
        if claim is None:
            claim = self._claims[depth] = self._find_claim(depth)
        return claim

    def _find_claim(self, depth: int) -> frozenset[str] | str:
        chain = self._chain[:depth] if self._levels is None else self._chain[: min(depth, self._levels + 1)]
        claim, objection = set[str](), None
        for plugin in self._plugins:
            for name in self._question.wanted:
                if name not in self._named[plugin]:
                    continue
                declaring = [account for account in chain if name in self._stated(plugin, account)]
                # Without any stated share, guarantees count as shares.
                excesses = [self._excess_over_share(account, plugin, name) for account in declaring or chain]
                excess = next((text for text in excesses if text is not None), None)
                if excess is None or (self._levels is not None and None in excesses):
                    claim.add(name)
                elif _follows_requests(plugin):
                    return excess  # no queue ever gets more than this share
                else:
                    objection = objection or excess
        # A larger number of pods alone is no claim to other resources.
        return objection if objection is not None and claim <= {PODS} else frozenset(claim)

    def _excess_over_share(self, account: AccountRecord, plugin: Plugin, name: str) -> str | None:
        share = {name: self._share(plugin, account).get(name, 0)}
        return self._question.exceeds_share(account, share, "its deserved share")

    def _stated(self, plugin: Plugin, account: AccountRecord) -> frozenset[str]:
        """Return the resources of which a queue states a share, by one plugin."""
        return (
            plugin.declared_resources(self._session, account)
            if overrides(plugin, "declared_resources")
            else self._named[plugin]
        )

    def _kept(self, plugin: Plugin) -> frozenset[str]:
        """Return the resources of which a reclaimee keeps its deserved share unless they are reclaimed.

        A share that follows requests includes unrequested resources, so there is nothing to keep.
        """
        return frozenset() if _follows_requests(plugin) else self._named[plugin]

    def _share(self, plugin: Plugin, account: AccountRecord) -> Amounts:
        """Return the deserved share of a queue by one plugin, at least its guarantee."""
        key = (plugin, account)
        share = self._shares.get(key)
        if share is None:
            deserved, least = self._deserved(plugin, account) or {}, account.guarantee
            names = (deserved.keys() | least.keys()) & self._named[plugin]
            share = self._shares[key] = {name: max(deserved.get(name, 0), least.get(name, 0)) for name in names}
        return share

    def _deserved(self, plugin: Plugin, account: AccountRecord) -> Amounts | None:
        if self._question.announced and self._chain and _follows_requests(plugin):
            return plugin.deserved_with_request(self._session, account, self._chain[0], self._question.wanted)
        return plugin.deserved(self._session, account)


def _follows_requests(plugin: Plugin) -> bool:
    """Return whether deserved shares of the plugin follow from requests."""
    return overrides(plugin, "deserved_with_request")


def _is_broken(queue: AccountRecord) -> bool:
    """Return whether the queue is missing or misconfigured.

    A closed queue admits no new pods but keeps its bound ones.
    """
    return queue.fault is not None and queue.fault.code != QUEUE_CLOSED


def _reclaimable(queue: AccountRecord) -> bool:
    return queue.spec is None or queue.spec.reclaimable
