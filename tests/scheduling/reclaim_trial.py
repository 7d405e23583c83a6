"""Reclaims allowed in a scenario by the rules alone: no nodes, no gangs, no vetoes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState, PodPhase
from phalanx.scheduling.preemption.rules.reclaim_rules import ReclaimRules
from phalanx.scheduling.preemption.rules.rule import ReclaimRule, future_holdings

from .scenario import Scenario


class ReclaimTrial:
    """Reclaim by the waiting pods `takers` of one charge path; `taken` are the victims, in order."""

    def __init__(
        self, scenario: Scenario, takers: Iterable[str], *, preempt: bool = True, reclaim: bool = True
    ) -> None:
        self.scenario = scenario
        self.takers = [scenario.state.pods[name] for name in takers]
        (charge_path,) = {record.charge_path for record in self.takers}
        assert charge_path is not None
        self.charge_path: ChargePath = charge_path
        self.priority = max(record.pod.priority for record in self.takers)
        self.wanted = total(record.footprint.amounts for record in self.takers)
        session = scenario.scheduler.new_session(scenario.now)
        self.rules = ReclaimRules(session, charge_path, self.wanted, preempt=preempt, reclaim=reclaim)
        self.taken: list[PodRecord] = []
        self._gone: dict[AccountRecord, dict[str, int]] = {}
        # The state before any reclaim.
        self.words = {each: self.rules.rule_for(each) for each in scenario.state.ledger.charge_paths}

    def word(self, name: str) -> ReclaimRule | str:
        """Return the rule by which a pod can be reclaimed, or the reason why there is none."""
        charge_path = self.scenario.state.pods[name].charge_path
        assert charge_path is not None
        return self.words[charge_path]

    def may_take(self, record: PodRecord) -> bool:
        """Return whether a pod can be reclaimed after the present victims."""
        assert record.charge_path is not None
        rule = self.words[record.charge_path]
        if isinstance(rule, str) or record in self.taken:
            return False
        if rule.lower_priority_only and record.pod.priority >= self.priority:
            return False
        return rule.allows_removal(record.footprint.amounts, self._holdings)

    def take(self, record: PodRecord) -> None:
        assert self.may_take(record)
        self.taken.append(record)
        assert record.charge_path is not None
        for account in record.charge_path.path:
            add_amounts(self._gone.setdefault(account, {}), record.footprint.amounts, 1)

    def running(self) -> Iterator[PodRecord]:
        """Return the candidates, first pods of the nearest reclaimee that holds the most."""
        states = (MemberState.BOUND, MemberState.RUNNING)
        records = [record for record in self.scenario.state.pods.values() if record.state in states]
        return iter(sorted(records, key=self._order))

    def everything(self) -> list[str]:
        """Reclaim as many pods as the rules allow, one after the other, and return their names."""
        for record in self.running():
            if self.may_take(record):
                self.take(record)
        return sorted(record.pod.name for record in self.taken)

    def count(self) -> dict[str, int]:
        """Return the number of reclaimable pods by the first part of the name."""
        return dict(Counter(name.split("-")[0] for name in self.everything()))

    def _order(self, record: PodRecord) -> tuple[int, float, int, str]:
        assert record.charge_path is not None
        rule = self.words[record.charge_path]
        if isinstance(rule, str):
            return (99, 0.0, 0, record.pod.name)
        return (rule.distance, -rule.excess, record.pod.priority, record.pod.name)

    def _holdings(self, account: AccountRecord) -> Mapping[str, int]:
        amounts = dict(future_holdings(account))
        add_amounts(amounts, self._gone.get(account, {}), -1)
        return amounts


def total(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in amounts:
        add_amounts(sums, each, 1)
    return sums


def takes(scenario: Scenario, prefix: str, *, preempt: bool = True, reclaim: bool = True) -> ReclaimTrial:
    """Return the pods that all waiting pods with this name prefix can reclaim."""
    names = [name for name, record in scenario.state.pods.items() if record.state is MemberState.PENDING]
    return ReclaimTrial(
        scenario, [name for name in names if name.startswith(prefix)], preempt=preempt, reclaim=reclaim
    )


def settled(scenario: Scenario, trial: ReclaimTrial) -> Scenario:
    """Remove the victims and run the takers; no victim is created again."""
    scenario.gone(*(record.pod.name for record in trial.taken))
    for record in trial.takers:
        scenario.becomes(record.pod.name, node="n").becomes(record.pod.name, phase=PodPhase.RUNNING)
    return scenario
