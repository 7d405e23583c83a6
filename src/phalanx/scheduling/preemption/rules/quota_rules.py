"""Reclaim rules of quotas: by priority within one quota, by guaranteed amounts between quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.account import KOORDINATOR_BESIDE, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.ordering.entitlements import has_min, quota_of
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

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

ONE_WITHOUT_QUOTA = "pods with a quota and pods without one do not evict each other"
OTHER_FOREST = "they are in different quota trees"


class QuotaRules:
    """Answers of the quota trees of one kind to one request."""

    def __init__(self, session: Session, tree: Tree, question: ReclaimRequest) -> None:
        self._session = session
        self._tree = tree
        self._question = question
        self._word = "runtime quota" if tree is Tree.KOORDINATOR else "min"
        self._quota = quota_of(question.charge_path, tree)
        self._chain = self._quota.lineage() if self._quota is not None else ()
        self._depths = {account: depth for depth, account in enumerate(self._chain)}
        self._named = has_min(session, tree)
        self._objection: str | None = None
        if self._quota is not None:
            self._objection = question.exceeds_share(self._quota, self._share(self._quota), f"its {self._word}")
        self._found: dict[AccountRecord, ReclaimRule | str] = {}

    def rule_for(self, reclaimee: ChargePath) -> ReclaimRule | str | None:
        """Return the rule or the reason; None if neither side has a quota."""
        quota, mine = quota_of(reclaimee, self._tree), self._quota
        if mine is None or quota is None:
            return None if mine is quota else ONE_WITHOUT_QUOTA
        rule = self._found.get(quota)
        if rule is None:
            rule = self._found[quota] = self._between(mine, quota)
        return rule

    def _between(self, mine: AccountRecord, quota: AccountRecord) -> ReclaimRule | str:
        beside = next((account for account in (quota, mine) if account.key.name in KOORDINATOR_BESIDE), None)
        if beside is not None and self._tree is Tree.KOORDINATOR:
            return f"{beside.label} takes no part in reclaim between quotas"
        if quota is mine:
            return ReclaimRule(EvictionReason.PREEMPTED, True) if self._question.preempt else NO_PREEMPTION
        if not self._question.reclaim:
            return NO_RECLAIM
        if mine.key.forest != quota.key.forest:
            return OTHER_FOREST
        if self._objection is not None:
            return self._objection
        depths = (self._depths[account] for account in quota.lineage() if account in self._depths)
        depth = next(depths, len(self._chain))
        if quota.fault is not None:
            return ReclaimRule(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        share, holding = self._share(quota), future_holdings(quota)
        over = AccountLimits(quota, share)
        if not over.exceeded(holding, self._question.wanted):
            return f"{quota.label} is within its {self._word}"
        dues = ((over,),)
        return ReclaimRule(
            EvictionReason.RECLAIMED,
            False,
            (over,),
            (),
            depth,
            excess_of(dues, future_holdings),
            shares=dues,
            deserved=self._deserved_shares(quota),
        )

    def _deserved_shares(self, quota: AccountRecord) -> tuple[AccountLimits, ...]:
        """Return the shares of a quota and of the quotas above it, up to the one that it shares with the
        preemptor."""
        shares: list[AccountLimits] = []
        for account in quota.lineage():
            if account in self._depths:
                break
            limits = {name: amount for name, amount in self._share(account).items() if amount > 0}
            if limits:
                shares.append(AccountLimits(account, limits))
        return tuple(shares)

    def _share(self, quota: AccountRecord) -> Amounts:
        """Return the quota's own share of the requested resources."""
        if self._tree is Tree.KOORDINATOR:
            runtime = _runtime(self._session, quota)
            return {name: amount for name, amount in runtime.items() if name in self._question.wanted}
        least = dict(quota.spec.deserved or ()) if quota.spec is not None else {}
        return {name: least.get(name, 0) for name in self._question.wanted if name in self._named}


def _runtime(session: Session, quota: AccountRecord) -> Amounts:
    """Return the present runtime quota of a Koordinator quota, for the resources that its max names."""
    return next(
        (plugin.runtime_quota(session, quota) for plugin in session.plugin_runtime.plugins("runtime_quota")), {}
    )
