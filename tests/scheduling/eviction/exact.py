"""The best choice of victims, found by an integer program (HiGHS).

There is one column for every pod that can be evicted, one for every gang that can be evicted whole, and one for
the number of members of each class on each node. The rule that every reclaimee owes something before every
single
eviction depends on the order of evictions: it is checked for every solution. A set of units without a valid
order
is excluded with all its supersets, unless a gang of single members among them is evicted whole. (A subset of a
set with a valid order has a valid order too: reclaimees then hold more.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import highspy
import numpy as np

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.topology import SubgroupRule

from .problem import Candidate, Company, Problem

# Weights for the order of costs: every part outweighs the sum of all later parts in these clusters.
MOST = (2, 4, 29, 8, 4, 15, 14 * 3 + 1, 14 * 3 + 1)
"""How many values each part may have: see `Problem.cost`."""


def weights() -> tuple[int, ...]:
    found = [1]
    for values in reversed(MOST[1:]):
        found.append(found[-1] * values)
    return tuple(reversed(found))


def scalar(cost: Sequence[int]) -> int:
    """Return one number that orders costs as the documented order does."""
    assert all(part < most for part, most in zip(cost, MOST, strict=True)), cost
    return sum(part * weight for part, weight in zip(cost, weights(), strict=True))


class _Program:
    """Integer minimisation problem, built row by row."""

    def __init__(self) -> None:
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._solver.setOptionValue("mip_rel_gap", 0.0)
        self._solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
        self._columns = 0

    def column(self, cost: float = 0.0, most: float = 1.0) -> int:
        self._solver.addCol(cost, 0.0, most, 0, np.array([], dtype=np.int32), np.array([], dtype=np.float64))
        self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1
        return self._columns - 1

    def row(self, least: float, terms: Mapping[int, float], most: float = highspy.kHighsInf) -> None:
        """Require least <= sum of the terms <= most."""
        columns = np.array(list(terms), dtype=np.int32)
        values = np.array(list(terms.values()), dtype=np.float64)
        self._solver.addRow(least, most, len(terms), columns, values)

    def solve(self) -> list[int] | None:
        """Return the values, or None if there is no solution."""
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        assert status == highspy.HighsModelStatus.kOptimal, status
        return [round(value) for value in self._solver.getSolution().col_value]


class Exact:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._program = _Program()
        far, near, against, breaks, highest, pods, sums, own = weights()
        program = self._program
        self._goes = {
            pod: program.column(pods + sums * pod.priority + own * pod.own)
            for pod in problem.pods
            if pod.rule is not None
        }
        self._falls: dict[GangRecord, int] = {}
        self._preempts = program.column(far)
        self._distance = program.column(near, MOST[1] - 1)
        self._highest = program.column(highest, MOST[4] - 1)
        for pod, column in self._goes.items():
            assert pod.rule is not None
            if pod.rule.reason is EvictionReason.PREEMPTED:
                program.row(0, {self._preempts: 1, column: -1})
            program.row(0, {self._distance: 1, column: -pod.rule.distance})
            program.row(0, {self._highest: 1, column: -pod.priority})
        self._budgets(against)
        self._gangs(breaks)
        self._places()

    def best(self) -> frozenset[Candidate] | None:
        """Return the victims, or None if no choice of victims helps."""
        while (values := self._program.solve()) is not None:
            going = frozenset(pod for pod, column in self._goes.items() if values[column])
            assert self._problem.whole(going)
            units = self._problem.units(going)
            if self._problem.in_turn(units):
                return going
            for unit in units:
                fewer = [other for other in units if other is not unit]
                if not self._problem.in_turn(fewer):
                    units = fewer
            stuck: dict[int, float] = {self._goes[pod]: 1 for unit in units for pod in unit}
            most = len(stuck) - 1
            for pod, *mates in units:
                if pod.gang is not None and len(mates) + 1 < max(2, len(self._problem.companies[pod.gang].members)):
                    # A pod that cannot be evicted singly can be evicted with its whole gang.
                    stuck[self._falls[pod.gang]] = -most - 1
            self._program.row(-highspy.kHighsInf, stuck, most)
        return None

    def suffices(self, going: Collection[Candidate]) -> bool:
        """Return whether the preemptor fits and is allowed when exactly these pods are evicted. Call it last."""
        for pod, column in self._goes.items():
            self._program.row(int(pod in going), {column: 1}, int(pod in going))
        return self._program.solve() is not None

    def _budgets(self, weight: int) -> None:
        for budget, allowed in self._problem.budgets.items():
            counted = [column for pod, column in self._goes.items() if budget in pod.budgets]
            if counted:
                broken = self._program.column(weight, len(counted))
                self._program.row(-allowed, {broken: 1, **dict.fromkeys(counted, -1)})

    def _gangs(self, weight: int) -> None:
        for gang, company in self._problem.companies.items():
            members = [self._goes[member] for member in company.members if member in self._goes]
            falls = self._falls[gang] = self._program.column(weight * company.breaks, int(company.may_fall))
            free = max(0, company.free)
            for column in members:
                self._program.row(0, {column: 1, falls: -1})
            self._limit(members, free, falls, len(company.members))
            for role, most in company.roles.items():
                of_role = [m for m in company.members if m.record.pod.role == role and m in self._goes]
                self._limit([self._goes[m] for m in of_role], max(0, most), falls, len(company.members))

            for rule in company.rules:
                self._subgroups(company, rule, falls)

    def _subgroups(self, company: Company, rule: SubgroupRule, falls: int) -> None:
        """Limit broken subgroups to the number that the gang can spare, unless the whole gang is evicted."""
        whole = company.whole_parts(rule, company.members)
        broken = [self._program.column() for _ in whole]
        for column, part in zip(broken, whole.values(), strict=True):
            members = {self._goes[member]: 1.0 for member in part if member in self._goes}
            if len(part) == rule.size:
                self._together(part)
            if members:
                terms = {**members, column: -float(len(part))}
                self._program.row(-highspy.kHighsInf, terms, len(part) - rule.size)
        if broken:
            terms = {**dict.fromkeys(broken, 1.0), falls: -float(len(whole))}
            self._program.row(-highspy.kHighsInf, terms, len(whole) - rule.least)

    def _together(self, part: Sequence[Candidate]) -> None:
        """Evict all of these pods or none."""
        columns = [self._goes[member] for member in part if member in self._goes]
        for column in columns[1:]:
            self._program.row(0, {columns[0]: 1, column: -1}, 0)
        if columns and len(columns) < len(part):
            self._program.row(0, {columns[0]: 1}, 0)

    def _limit(self, columns: Sequence[int], most: int, falls: int, all_of_them: int) -> None:
        """Evict at most this number of pods, unless the whole gang is evicted."""
        if columns:
            terms = {**dict.fromkeys(columns, 1.0), falls: -float(all_of_them)}
            self._program.row(-highspy.kHighsInf, terms, most)

    def _places(self) -> None:
        problem, program = self._problem, self._program
        here: dict[int, dict[str, dict[int, float]]] = {row: {} for row in problem.rows}
        for cls, count in problem.wanted:
            amounts = cls.footprint.amounts
            columns = {row: program.column(0, count) for row in problem.rows if problem.open[cls][row]}
            program.row(count, dict.fromkeys(columns.values(), 1), count)
            for row, column in columns.items():
                for name, amount in amounts.items():
                    here[row].setdefault(name, {})[column] = amount
        for row, resources in here.items():
            for name, terms in resources.items():
                freed = {
                    column: -pod.amounts[name]
                    for pod, column in self._goes.items()
                    if pod.row == row and name in pod.amounts
                }
                room = problem.idle[row].get(name, 0)
                assert room >= 0, "who asks for nothing of an overdrawn resource would be kept out"
                program.row(-highspy.kHighsInf, {**terms, **freed}, room)
        for account, name, most, wanted, reserves in problem.account_limits:
            terms = self._freed(account, name)
            for child in account.children.values() if reserves else ():
                kept = self._kept(child, name)
                if kept is not None:
                    terms[kept] = 1
            program.row(-highspy.kHighsInf, terms, most - account.used.get(name, 0) - wanted)

    def _freed(self, account: AccountRecord, name: str) -> dict[int, float]:
        return {
            column: -pod.amounts[name]
            for pod, column in self._goes.items()
            if account in pod.charge_path.path and name in pod.amounts
        }

    def _kept(self, account: AccountRecord, name: str) -> int | None:
        """Return the amount reserved for an account: the unused part of its guarantee, or the amount reserved for
        its children if that is larger. It grows as pods of the account are evicted.
        """
        below = [kept for child in account.children.values() if (kept := self._kept(child, name)) is not None]
        guarantee = account.guarantee.get(name, 0)
        if not guarantee and not below:
            return None
        kept = self._program.column(0, highspy.kHighsInf)
        self._program.row(guarantee - account.used.get(name, 0), {kept: 1, **self._freed(account, name)})
        self._program.row(0, {kept: 1, **dict.fromkeys(below, -1)})
        return kept
