"""An eviction problem, copied from a cluster before a decision: candidates, the room they free and their cost.

Debts of reclaimees (`ReclaimRules`), protection of pods (`evict_veto`) and limits of accounts (`limit`) are
used as they are; all rules about a set of victims are implemented here a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.pod import MemberState
from phalanx.model.topology import SubgroupRule
from phalanx.scheduling.preemption.rules.reclaim_rules import ReclaimRules
from phalanx.scheduling.preemption.rules.rule import ReclaimRule, future_holdings
from phalanx.scheduling.session.session import Session

from ..scenario import Scenario

Amounts = dict[str, int]
_THERE = (MemberState.BOUND, MemberState.RUNNING)


class Candidate:
    """A pod on a node; `rule` is None if it cannot be evicted."""

    def __init__(self, session: Session, record: PodRecord, rule: ReclaimRule | None) -> None:
        assert record.charge_path is not None
        self.record = record
        self.name = record.pod.name
        self.row = record.row
        self.gang = record.gang
        self.charge_path: ChargePath = record.charge_path
        self.amounts = dict(record.footprint.amounts)
        self.own = record.pod.priority
        stated = record.gang.spec.priority if record.gang is not None and record.gang.spec is not None else None
        self.priority = self.own if stated is None else max(stated, self.own)
        self.rule = rule
        self.budgets = [(record.pod.namespace, name) for name in record.pod.budgets]

    def __repr__(self) -> str:
        return self.name


class Company:
    """A gang with pods in the cluster: the number of members it can spare, in all and per role, and whether it can
    be evicted whole.
    """

    def __init__(self, gang: GangRecord, members: list[Candidate]) -> None:
        spec = gang.spec
        assert spec is not None
        self.members = members
        there = len(members)
        of_role = Counter(member.record.pod.role for member in members)
        self.roles = {role: of_role[role] - least for role, least in spec.roles}
        self.rules = spec.subgroups
        holds = there >= spec.min_member and min(self.roles.values(), default=0) >= 0 and self._enough(members)
        self.free = there - spec.min_member
        # Without a minimum, or below it already, there is no quorum to break.
        if not holds or (there == 1 and not self.roles and not self.rules):
            self.free, self.roles, self.rules = there, {}, ()
        if spec.unit:
            self.free = 0
        self.may_fall = all(member.rule is not None for member in members) and self.free < there
        self.breaks = int(holds)

    def spares(self, going: Collection[Candidate]) -> bool:
        mine = [member for member in self.members if member in going]
        roles = Counter(member.record.pod.role for member in mine)
        return (
            len(mine) <= max(0, self.free)
            and all(roles[role] <= most for role, most in self.roles.items())
            and self._enough([member for member in self.members if member not in going])
        )

    def whole_parts(
        self, rule: SubgroupRule, members: Iterable[Candidate]
    ) -> dict[tuple[str, ...], list[Candidate]]:
        """Return the subgroups of a rule that have all the members they need."""
        parts: dict[tuple[str, ...], list[Candidate]] = {}
        for member in members:
            values = rule.part(dict(member.record.pod.labels))
            if values is not None:
                parts.setdefault(values, []).append(member)
        return {values: part for values, part in parts.items() if len(part) >= rule.size}

    def part_of(self, pod: Candidate) -> tuple[Candidate, ...]:
        """Return the subgroup that is useless without the pod, or the pod."""
        parts = ((rule, part) for rule in self.rules for part in self.whole_parts(rule, self.members).values())
        exact = (part for rule, part in parts if len(part) == rule.size and pod in part)
        return tuple(next(exact, [pod]))

    def _enough(self, members: Collection[Candidate]) -> bool:
        return all(len(self.whole_parts(rule, members)) >= rule.least for rule in self.rules)


class Problem:
    """An eviction problem for one preemptor.

    `wanted` holds (class, number of members). `bars` holds (account, resource, maximum usage, part of it that
    the
    preemptor requests, whether guarantees of other accounts below it are reserved). The preemptor's own accounts
    must have no guarantees.
    """

    def __init__(self, scenario: Scenario, waiting: Sequence[str]) -> None:
        state = scenario.state
        session = scenario.scheduler.new_session(scenario.now)
        self.session = session
        asking = [state.pods[name] for name in waiting]
        head = asking[0]
        self.priority = session.priority(head.gang if head.gang is not None else head)
        self.wanted = list(Counter(record.pod_class for record in asking).items())
        asked: dict[ChargePath, Amounts] = {}
        for record in asking:
            assert record.charge_path is not None
            amounts = asked.setdefault(record.charge_path, {})
            for name, amount in record.footprint.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
        ((charge_path, wanted),) = asked.items()
        assert not any(account.guarantee for account in charge_path.path)
        rules = ReclaimRules(session, charge_path, wanted, preempt=True, reclaim=True)
        self.asked = wanted
        self.pods = [
            Candidate(session, record, self._rule(rules, record))
            for record in state.pods.values()
            if record.state in _THERE
        ]
        # Times are as of now: the problem describes the cluster before any eviction.
        self._held = {account: dict(future_holdings(account)) for account in session.ledger.accounts.values()}
        gangs: dict[GangRecord, list[Candidate]] = {}
        for pod in self.pods:
            if pod.gang is not None:
                gangs.setdefault(pod.gang, []).append(pod)
        self.companies = {gang: Company(gang, members) for gang, members in gangs.items()}
        self.budgets = {
            (namespace, name): budget.allowed
            for namespace, budgets in state.budgets.items()
            for name, budget in budgets.items()
        }
        nodes = state.nodes
        self.rows = nodes.rows().tolist()
        self.idle = {
            row: dict(zip(state.space.names, nodes.idle[:, row].tolist(), strict=True)) for row in self.rows
        }
        self.open = {cls: session.placer.class_view(cls).mask.copy() for cls, _ in self.wanted}
        self.account_limits = [
            (account_limit.account, name, account_limit.limit.limits[name], amount, account_limit.limit.reserves)
            for account_limit in session.quota_check.account_limits(charge_path)
            for name, amount in wanted.items()
            if name in account_limit.limit.limits
        ]

    def _rule(self, rules: ReclaimRules, record: PodRecord) -> ReclaimRule | None:
        assert record.charge_path is not None
        rule = rules.rule_for(record.charge_path)
        if isinstance(rule, str):
            return None
        if rule.lower_priority_only and Candidate(self.session, record, None).priority >= self.priority:
            return None
        spared = (
            plugin.evict_veto(self.session, record) for plugin in self.session.plugin_runtime.plugins("evict_veto")
        )
        return None if any(each is not None for each in spared) else rule

    # candidates

    def unit_of(self, pod: Candidate, going: Collection[Candidate]) -> tuple[Candidate, ...]:
        """Return the pods that are evicted in one step with a pod: its whole gang if the gang cannot spare all
        victims, or its subgroup if that has no surplus member.
        """
        company = self.companies.get(pod.gang) if pod.gang is not None else None
        if company is None or company.spares(going):
            return company.part_of(pod) if company is not None else (pod,)
        return tuple(company.members)

    def units(self, going: Collection[Candidate]) -> list[tuple[Candidate, ...]]:
        return list(dict.fromkeys(self.unit_of(pod, going) for pod in self.pods if pod in going))

    def whole(self, going: Collection[Candidate]) -> bool:
        """Return whether every gang keeps its quorum or is evicted whole, and no protected pod is evicted."""
        units = self.units(going)
        return all(pod in going and pod.rule is not None for unit in units for pod in unit)

    def in_turn(self, units: Sequence[tuple[Candidate, ...]]) -> bool:
        """Return whether an order exists in which every reclaimee still owes something when its next unit is
        evicted.
        """
        return _Turns(units, self._held).possible()

    # costs

    def cost(self, going: Collection[Candidate]) -> tuple[int, ...]:
        """Return the cost, in documented order: whether amounts are reclaimed that were not lent, distance, pods
        against budgets, gangs broken, highest priority, number of pods, sum of priorities, sum of own
        priorities. All parts are 0 or more here.
        """
        if not going:
            return (0,) * 8
        rules = [pod.rule for pod in going]
        assert all(rule is not None for rule in rules)
        counts = Counter(budget for pod in going for budget in pod.budgets if budget in self.budgets)
        broken = [company for company in self.companies.values() if not company.spares(going)]
        return (
            int(any(rule is not None and rule.reason is EvictionReason.PREEMPTED for rule in rules)),
            max(rule.distance for rule in rules if rule is not None),
            sum(max(0, count - self.budgets[budget]) for budget, count in counts.items()),
            sum(company.breaks for company in broken),
            max(pod.priority for pod in going),
            len(going),
            sum(pod.priority for pod in going),
            sum(pod.own for pod in going),
        )

    def named(self, names: Iterable[str]) -> frozenset[Candidate]:
        known = {pod.name: pod for pod in self.pods}
        return frozenset(known[name] for name in names)


class _Turns:
    """Yield all orders of some units, as sets instead of sequences where only the set matters."""

    def __init__(self, units: Sequence[tuple[Candidate, ...]], holdings: Mapping[AccountRecord, Amounts]) -> None:
        self._units = units
        self._held = holdings
        self._failed: set[frozenset[int]] = set()

    def possible(self) -> bool:
        return self._extend(frozenset())

    def _extend(self, gone: frozenset[int]) -> bool:
        if len(gone) == len(self._units):
            return True
        if gone in self._failed:
            return False
        for number in range(len(self._units)):
            if number not in gone and self._may_follow(gone, number) and self._extend(gone | {number}):
                return True
        self._failed.add(gone)
        return False

    def _may_follow(self, gone: frozenset[int], number: int) -> bool:
        before = [pod for place in gone for pod in self._units[place]]

        def holding(account: AccountRecord) -> Amounts:
            amounts = dict(self._held[account])
            for pod in before:
                if account in pod.charge_path.path:
                    for name, amount in pod.amounts.items():
                        amounts[name] = amounts.get(name, 0) - amount
            return amounts

        by_charge_path: dict[ChargePath, tuple[ReclaimRule, Amounts]] = {}
        for pod in self._units[number]:
            assert pod.rule is not None
            _, amounts = by_charge_path.setdefault(pod.charge_path, (pod.rule, {}))
            for name, amount in pod.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
        return all(rule.allows_removal(amounts, holding) for rule, amounts in by_charge_path.values())


Wanted = tuple[ClassRecord, int]
