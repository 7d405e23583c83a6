"""By what rule pods may be taken from whom: what quotas and queues say together."""

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
    """All rules for one preemptor: a charge path that asks for `wanted` in sum.

    Speaks of the sums at the time when it is first asked about a reclaimee: ask before anything is tried.

    Every tree in which either party stands must agree. In quota trees (scheduler-plugins, capacity_scheduling.go):
    who is within his own min, what he asks for included, takes back from quotas above theirs, whatever the
    priorities; within one quota lower priorities make room. In Koordinator the runtime quota takes the place of the
    min. Between queues: who stays within what he deserves, on every level below the queue that both share, takes
    from branches that have more than they deserve; within one queue lower priorities make room, unless quotas say
    otherwise. Only what is asked for is compared, and of that only what somebody in the tree has a share of.

    Since the taker ends within its share and the giver had more than its own before each removal, the giver never
    has a rule by which to take the same back (`tests/scheduling/test_reclaim_rules_fixpoint.py`).
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
        """`together` tells what all charge paths of the preemptor are yet to be charged, this one included:
        accounts that they share are charged for all, and for room that is held already they have been. `announced`:
        see `ReclaimRequest`."""
        ledger = session.ledger  # sums and faults as of now
        self._fault = charge_path.fault.message if charge_path.fault is not None else None
        wanted = {name: amount for name, amount in wanted.items() if amount > 0}
        charges: dict[AccountRecord, dict[str, int]] = {}
        for each, amounts in (together if together is not None else {charge_path: wanted}).items():
            for account in each.path:
                add_amounts(charges.setdefault(account, {}), amounts, 1)
        question = ReclaimRequest(charge_path, wanted, charges, preempt, reclaim, announced)
        self._queues = QueueRules(session, question)
        kinds = session.memo("kinds of trees", lambda: {account.key.tree for account in ledger.accounts.values()})
        self._quotas = [QuotaRules(session, tree, question) for tree in _QUOTA_TREES if tree in kinds]
        self._found: dict[ChargePath, ReclaimRule | str] = {}

    def rule_for(self, reclaimee: ChargePath) -> ReclaimRule | str:
        """The rule by which pods of the reclaimee may be taken, or why there is none: a phrase for people."""
        found = self._found.get(reclaimee)
        if found is None:
            found = self._found[reclaimee] = self._fault or self._find(reclaimee)
        return found

    def _find(self, reclaimee: ChargePath) -> ReclaimRule | str:
        words = [word for rule in self._quotas if (word := rule.rule_for(reclaimee)) is not None]
        if not (words and self._queues.by_priority_alone(reclaimee)):
            words.append(self._queues.rule_for(reclaimee))
        rules: list[ReclaimRule] = []
        for word in words:
            if isinstance(word, str):
                return word
            rules.append(word)
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
        )
