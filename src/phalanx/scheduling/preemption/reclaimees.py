"""Victim classes that a preemptor can evict, and the cluster's free amounts without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.pods.victim_index import VictimClass, VictimTable
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.decisions import EvictionReason
from phalanx.model.resources import PODS
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.preemption.rules.drf_preemption import DrfPreemption
from phalanx.scheduling.preemption.rules.reclaim_rules import ReclaimRules
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.preemption.rules.self_protection import protected_pods_of
from phalanx.scheduling.session.session import Session

_OWN = "they belong to the same gang and have no lower priority"
_HIGH = "their priority is not lower"
_BEST_EFFORT = "surplus members preempt no pods"
_MODEST = "they request resources, and best-effort pods evict only best-effort pods"

VictimRank = tuple[bool, int, float, int]
"""Order in which victims are evicted: reclaimed before preempted pods, near before far queues, largest excess
first, low before high priority."""


class PreemptorView(Protocol):
    """Part of a preemptor that decides which pods are possible victims: charges by charge path, and priorities.

    Members of its own `gangs` are compared with `pod_priority`. `nominated` pods are already charged.
    """

    @property
    def charge_paths(self) -> Mapping[ChargePath, Mapping[str, int]]: ...
    @property
    def gangs(self) -> tuple[GangRecord, ...]: ...
    @property
    def nominated(self) -> Collection[PodRecord]: ...
    @property
    def priority(self) -> int: ...
    @property
    def pod_priority(self) -> int: ...
    @property
    def surplus(self) -> bool: ...


class FreedAmounts:
    """Amounts that evictions would free, as int64[R, N], and the charges that they would end."""

    __slots__ = ("charges", "freed", "pods")

    def __init__(self, freed: IntArray, charges: dict[ChargePath, dict[str, int]], pods: int) -> None:
        self.freed = freed
        self.charges = charges
        self.pods = pods


class Reclaimees:
    """Possible victims of one preemptor by victim class. `refused` counts all other pods by reason."""

    def __init__(
        self,
        session: Session,
        preemptor: PreemptorView,
        options: EvictionOptions,
        *,
        announced: bool = False,
    ) -> None:
        self._session = session
        self._preemptor = preemptor
        self._foreign = options.foreign_victims
        self._best_effort_only = (
            bool(preemptor.charge_paths)
            and not any(map(_requests_resources, preemptor.charge_paths.values()))
            and not session.plugin_runtime.policy.eviction.best_effort
        )
        together = {charge_path: dict(wanted) for charge_path, wanted in preemptor.charge_paths.items()}
        for record in preemptor.nominated:
            if record.charge_path is not None:
                add_amounts(together.setdefault(record.charge_path, {}), record.footprint.amounts, -1)
        self._rules_by_path = [
            ReclaimRules(
                session,
                charge_path,
                wanted,
                preempt=options.preempt,
                reclaim=options.reclaim,
                announced=announced,
                together=together,
            )
            for charge_path, wanted in preemptor.charge_paths.items()
        ]
        self.drf: DrfPreemption | None = None
        if session.plugin_runtime.policy.eviction.levels:
            wanted: dict[str, int] = {}
            for amounts in preemptor.charge_paths.values():
                add_amounts(wanted, amounts, 1)
            self.drf = DrfPreemption(session, preemptor.gangs, wanted, preemptor.priority)
        self.rules: dict[ChargePath, ReclaimRule] = {}
        self._found: dict[ChargePath, ReclaimRule | str] = {}
        self.refused: Counter[str] = Counter()
        self.table: VictimTable = session.state.victim_table()
        self.classes: Sequence[VictimClass] = session.state.victims.kinds
        self._classes = session.victim_classes()
        self._protected = protected_pods_of(session)
        counts = self.table.pods(len(self.classes))
        self._counts = counts
        may_go = self._may_go(counts)
        self.allowed: BoolArray = may_go & ~self._classes.arriving
        self.arriving: BoolArray = may_go & self._classes.arriving
        self._possible = self.allowed
        self._ranks: dict[int, VictimRank] | None = None
        self._taken: dict[int, FloatArray] | None = None

    def _may_go(self, counts: IntArray) -> BoolArray:
        """Return bool[K]: the classes that `reclaim_rule` accepts.

        Count the pods of all other classes by reason.
        """
        columns = self._classes
        remaining: BoolArray = counts > 0

        def exclude(excluded: BoolArray, why: str) -> None:
            nonlocal remaining
            pods = int(counts[remaining & excluded].sum())
            if pods:
                self.refused[why] += pods
            remaining = remaining & ~excluded

        if not self._foreign:
            exclude(columns.other_scheduler, "they belong to other schedulers")
        exclude(columns.daemon_or_static, "they belong to their nodes")
        if self._best_effort_only:
            asks = [_requests_resources(kind.footprint.amounts) for kind in self.classes]
            exclude(np.array(asks, dtype=np.bool_), _MODEST)
        below: BoolArray = np.zeros(len(columns.charge_paths), dtype=np.bool_)
        # A mark against preemption has exceptions for single pods: `reclaim_rule` checks these pod by pod.
        protected: BoolArray = np.ones(len(columns.charge_paths), dtype=np.bool_)
        marked = set(np.unique(columns.charge_path[remaining & columns.non_preemptible]).tolist())
        classes_by_reason: dict[str, list[int]] = {}
        for place in np.unique(columns.charge_path[remaining]).tolist():
            rule = self._rule_for(columns.charge_paths[place])
            if isinstance(rule, str):
                classes_by_reason.setdefault(rule, []).append(place)
            else:
                below[place] = rule.lower_priority_only
                self._protected.prepare(columns.charge_paths[place], rule)
                protected[place] = place in marked and self._protected.holds_for_all_pods(
                    columns.charge_paths[place], rule
                )
        exclude(columns.non_preemptible & protected[columns.charge_path], "they are marked as not preemptable")
        for why, places in classes_by_reason.items():
            exclude(np.isin(columns.charge_path, places), why)
        own: BoolArray = np.zeros(len(self.classes), dtype=np.bool_)
        for gang in self._preemptor.gangs:
            own[list(self._session.state.victims.of_gang(gang))] = True
        surplus = self._preemptor.surplus
        exclude(own & (surplus | (columns.pod_priority >= self._preemptor.pod_priority)), _OWN)
        high = ~own & below[columns.charge_path] & (surplus | (columns.priority >= self._preemptor.priority))
        for number in np.flatnonzero(remaining & high).tolist() if self.drf is not None else ():
            kind = self.classes[number]
            high[number] = isinstance(
                self._by_priority(self._rule_for(kind.charge_path), kind.gang, kind.priority), str
            )
        exclude(high, _BEST_EFFORT if surplus else _HIGH)
        return remaining

    @property
    def ranks(self) -> Mapping[int, VictimRank]:
        """Order of each victim class that can be evicted, by class number."""
        if self._ranks is None:
            priorities = self._classes.priority
            self._ranks = {
                number: victim_rank(self.rules[self.classes[number].charge_path], int(priorities[number]))
                for number in np.flatnonzero(self._possible).tolist()
            }
        return self._ranks

    @property
    def any_possible(self) -> bool:
        """Whether any pod can be evicted, now or after it has arrived on its node."""
        return bool(self.allowed.any() or self.arriving.any())

    @property
    def pods(self) -> int:
        """Number of possible victims by class, before single pods are checked."""
        return int(self._counts[self.allowed].sum())

    def reclaim_rule(self, record: PodRecord) -> ReclaimRule | str:
        """Return the rule that permits the eviction of a pod, or the reason why there is none."""
        assert record.charge_path is not None
        if self._best_effort_only and _requests_resources(record.footprint.amounts):
            return _MODEST
        return self._by_priority(self._rule_for(record.charge_path), record.gang, record.pod.priority)

    def overrules_owner(self, record: PodRecord) -> bool:
        """Return whether this preemptor overrules the owner's protection of a pod."""
        rule = self.reclaim_rule(record)
        return not isinstance(rule, str) and self._protected.why_overruled(record, rule) is not None

    def keep_up_to(self, most: VictimRank) -> None:
        """Drop victims of ranks above `most`."""
        self.allowed = self._possible & self._up_to(most)

    def keep_all(self) -> None:
        """Undo `keep_up_to`."""
        self.allowed = self._possible

    def _up_to(self, most: VictimRank) -> BoolArray:
        mask: BoolArray = np.ones(len(self.classes), dtype=np.bool_)
        for number, level in self.ranks.items():
            mask[number] = level <= most
        return mask

    def freed_amounts(self, most: VictimRank | None = None, arriving: bool = False) -> FreedAmounts:
        """Return the amounts that are freed if all victims up to rank `most` are evicted; with `arriving`, pods
        that are still being bound too."""
        mask = self.allowed | self.arriving if arriving else self.allowed
        if most is not None:
            mask = mask & self._up_to(most)
        nodes, rows = self._session.state.nodes, self.table.rows
        charges: dict[ChargePath, dict[str, int]] = {}
        totals = np.where(mask, self._counts, 0)
        for number in np.flatnonzero(totals).tolist():
            kind = self.classes[number]
            add_amounts(charges.setdefault(kind.charge_path, {}), kind.footprint.amounts, int(totals[number]))
        chosen = mask[self.table.kinds]
        freed: IntArray = np.zeros((len(nodes.space), nodes.capacity), dtype=np.int64)
        for column, weights in self._weights().items():
            # The sums of one node's amounts are far below 2^53, so float64 is exact.
            freed[column] = np.bincount(rows, weights=weights * chosen, minlength=nodes.capacity)
        return FreedAmounts(freed, charges, int(totals.sum()))

    def _weights(self) -> dict[int, FloatArray]:
        """Return column -> float64[entries of the table]: the amounts of each resource that any pod uses."""
        if self._taken is None:
            usage = self._usage()
            kinds, counts = self.table.kinds, self.table.counts
            used = np.flatnonzero(usage.any(axis=0)).tolist()
            self._taken = {column: usage[kinds, column].astype(np.float64) * counts for column in used}
        return self._taken

    def _usage(self) -> IntArray:
        """Return the usage of each class as int64[K, R]."""
        width = len(self._session.state.nodes.space)
        usages = [kind.footprint.usage for kind in self.classes]
        return np.array(usages, dtype=np.int64).reshape(-1, width)

    def rows(self) -> list[int]:
        """Return the rows that have a possible victim."""
        rows: list[int] = np.flatnonzero(self.rows_mask()).tolist()
        return rows

    def rows_mask(self, accounts: Collection[object] | None = None) -> BoolArray:
        """Return bool[N]: rows with a possible victim; with `accounts`, with a victim that is charged to one of
        them."""
        mask = self.allowed
        if accounts is not None:
            mask = mask.copy()
            for number in np.flatnonzero(mask).tolist():
                mask[number] = any(account in accounts for account in self.classes[number].charge_path.path)
        present: BoolArray = np.zeros(self._session.state.nodes.capacity, dtype=np.bool_)
        present[self.table.rows[mask[self.table.kinds]]] = True
        return present

    def largest_on_rows(self, columns: npt.NDArray[np.intp]) -> IntArray:
        """Return int64[columns, N]: the largest amount of a single possible victim on each row."""
        chosen = self.allowed[self.table.kinds]
        rows, kinds = self.table.rows[chosen], self.table.kinds[chosen]
        largest: IntArray = np.zeros((len(columns), self._session.state.nodes.capacity), dtype=np.int64)
        usage = self._usage()
        for place, column in enumerate(columns.tolist()):
            np.maximum.at(largest[place], rows, usage[kinds, column])
        return largest

    def _by_priority(
        self, rule: ReclaimRule | str, gang: GangRecord | None, pod_priority: int
    ) -> ReclaimRule | str:
        if isinstance(rule, str):
            return rule
        if gang is not None and gang in self._preemptor.gangs:
            lower = pod_priority < self._preemptor.pod_priority
            return rule if lower and not self._preemptor.surplus else _OWN
        if rule.lower_priority_only:
            surplus = self._preemptor.surplus
            priority = pod_priority if gang is None else self._session.victim_priority(gang, pod_priority)
            if (surplus or priority >= self._preemptor.priority) and not self._drf_allows(rule, gang, priority):
                return _BEST_EFFORT if surplus else _HIGH
        return rule

    def _drf_allows(self, rule: ReclaimRule, gang: GangRecord | None, priority: int) -> bool:
        """Return whether dominant shares permit the eviction of any pod of a gang with the preemptor's priority."""
        equal = rule.drf and priority == self._preemptor.priority
        return equal and self.drf is not None and self.drf.allows_victim(gang, {})

    def _rule_for(self, charge_path: ChargePath) -> ReclaimRule | str:
        found = self._found.get(charge_path)
        if found is None:
            words = [rules.rule_for(charge_path) for rules in self._rules_by_path]
            rules = [word for word in words if not isinstance(word, str)]
            found = rules[0] if rules else words[0] if words else "the preemptor is charged to no account"
            self._found[charge_path] = found
            if not isinstance(found, str):
                self.rules[charge_path] = found
        return found


def _requests_resources(amounts: Mapping[str, int]) -> bool:
    return any(amount for name, amount in amounts.items() if name != PODS)


def victim_rank(rule: ReclaimRule, priority: int) -> VictimRank:
    return (rule.reason is EvictionReason.PREEMPTED, rule.distance, -rule.excess, priority)
