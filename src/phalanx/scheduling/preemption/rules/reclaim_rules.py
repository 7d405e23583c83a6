"""Reclaim rules between charge paths: quotas and queues together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.model.account import Tree
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.preemption.rules.queue_rules import QueueRules
from phalanx.scheduling.preemption.rules.quota_rules import QuotaRules
from phalanx.scheduling.preemption.rules.rule import Amounts, ReclaimRequest, ReclaimRule

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session


_QUOTA_TREES = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)


class ReclaimRules:
    """All reclaim rules of one preemptor's charge path, which requests `wanted` in sum.

    Create and query it before a search removes pods: sums are read at the first query of a reclaimee.

    Every tree that holds a quota of either side must agree. In quota trees (scheduler-plugins,
    capacity_scheduling.go) a preemptor whose usage and request are within its min reclaims from quotas above
    theirs, whatever the priorities; within one quota, pods of lower priority are preempted. In Koordinator trees
    the runtime quota replaces the min. Between queues, a preemptor within its deserved share, on every level below
    the common queue, reclaims from branches above theirs; within one queue, pods of lower priority are preempted
    unless quotas decide. Only requested resources are compared, and of these only resources of which some account
    in the tree has a share.

    The preemptor ends within its share, and the reclaimee exceeds its own before each removal. So the reclaimee
    never gets a rule to reclaim the same room (`tests/scheduling/test_reclaim_rules_fixpoint.py`).
    """

    def __init__(
        self,
        session: Session,
        charge_path: ChargePath,
        wanted: Amounts,
        *,
        preempt: bool,
        reclaim: bool,
        announced: bool = False,
        together: Mapping[ChargePath, Amounts] | None = None,
    ) -> None:
        """Initialize the rules for one charge path.

        `together` is the amounts that all charge paths of the preemptor, this one included, are still to be
        charged: shared accounts are charged for all of them, and nominated pods are charged already. `announced`:
        see `ReclaimRequest`.
        """
        ledger = session.ledger  # sums and faults as of now
        self._fault = charge_path.fault.message if charge_path.fault is not None else None
        wanted = {name: amount for name, amount in wanted.items() if amount > 0}
        charges: dict[AccountRecord, dict[str, int]] = {}
        for path, amounts in (together if together is not None else {charge_path: wanted}).items():
            for account in path.path:
                add_amounts(charges.setdefault(account, {}), amounts, 1)
        question = ReclaimRequest(charge_path, wanted, charges, preempt, reclaim, announced)
        self._queues = QueueRules(session, question)
        kinds = session.memo("kinds of trees", lambda: {account.key.tree for account in ledger.accounts.values()})
        self._quotas = [QuotaRules(session, tree, question) for tree in _QUOTA_TREES if tree in kinds]
        self._found: dict[ChargePath, ReclaimRule | str] = {}

    def rule_for(self, reclaimee: ChargePath) -> ReclaimRule | str:
        """Return the rule by which pods of the reclaimee can be evicted, or the reason as a phrase."""
        rule = self._found.get(reclaimee)
        if rule is None:
            rule = self._found[reclaimee] = self._fault or self._find(reclaimee)
        return rule

    def _find(self, reclaimee: ChargePath) -> ReclaimRule | str:
        answers = [answer for rule in self._quotas if (answer := rule.rule_for(reclaimee)) is not None]
        if not (answers and self._queues.by_priority_alone(reclaimee)):
            answers.append(self._queues.rule_for(reclaimee))
        rules: list[ReclaimRule] = []
        for answer in answers:
            if isinstance(answer, str):
                return answer
            rules.append(answer)
        if len(rules) == 1:
            return rules[0]
        reclaimed = any(rule.reason is EvictionReason.RECLAIMED for rule in rules)
        return ReclaimRule(
            EvictionReason.RECLAIMED if reclaimed else EvictionReason.PREEMPTED,
            any(rule.lower_priority_only for rule in rules),
            tuple(over for rule in rules for over in rule.must_exceed),
            tuple(floor for rule in rules for floor in rule.must_keep),
            max(rule.distance for rule in rules),
            max(rule.excess for rule in rules),
            shares=tuple(group for rule in rules for group in rule.shares),
            deserved=tuple(share for rule in rules for share in rule.deserved),
        )
