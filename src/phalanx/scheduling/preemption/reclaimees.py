"""Whose pods a preemptor may take at all, kind by kind; and what the cluster would be like without them."""

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
_MODEST = "they ask for resources, and pods that ask for none evict only such as ask for none"

VictimRank = tuple[bool, int, float, int]
"""In which order reclaimees' pods are taken: what was lent first, near before far, furthest above its due first,
low before high priority."""


class PreemptorView(Protocol):
    """Of a preemptor, what decides who may go for it: what each charge path would be charged, and priorities. Pods
    of its own `gangs` are compared with `pod_priority`. For those that are `nominated` room is held, and
    charged."""

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


class FreedAmounts:
    """int64[R, N] that would be freed, and what charge paths would not be charged any more."""

    __slots__ = ("charges", "freed", "pods")

    def __init__(self, freed: IntArray, charges: dict[ChargePath, dict[str, int]], pods: int) -> None:
        self.freed = freed
        self.charges = charges
        self.pods = pods


class Reclaimees:
    """What may go for one preemptor, pod by pod of a kind; `refused` counts the others by why they may not."""

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
            and not any(map(_asks_for_more_than_a_slot, preemptor.charge_paths.values()))
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
        """bool[K], as `reclaim_rule` says of a pod; counts the others by why not."""
        columns = self._classes
        left: BoolArray = counts > 0

        def refuse(out: BoolArray, why: str) -> None:
            nonlocal left
            pods = int(counts[left & out].sum())
            if pods:
                self.refused[why] += pods
            left = left & ~out

        if not self._foreign:
            refuse(columns.other_scheduler, "they belong to other schedulers")
        refuse(columns.daemon_or_static, "they belong to their nodes")
        if self._best_effort_only:
            asks = [_asks_for_more_than_a_slot(kind.footprint.amounts) for kind in self.classes]
            refuse(np.array(asks, dtype=np.bool_), _MODEST)
        below: BoolArray = np.zeros(len(columns.charge_paths), dtype=np.bool_)
        # Which of the pods that are marked must go all the same is asked pod by pod.
        keep: BoolArray = np.ones(len(columns.charge_paths), dtype=np.bool_)
        marked = set(np.unique(columns.charge_path[left & columns.non_preemptible]).tolist())
        whys: dict[str, list[int]] = {}
        for place in np.unique(columns.charge_path[left]).tolist():
            word = self._rule_for(columns.charge_paths[place])
            if isinstance(word, str):
                whys.setdefault(word, []).append(place)
            else:
                below[place] = word.lower_priority_only
                keep[place] = place in marked and self._protected.holds_for_all_pods(
                    columns.charge_paths[place], word
                )
        refuse(columns.non_preemptible & keep[columns.charge_path], "they are marked as not preemptable")
        for why, places in whys.items():
            refuse(np.isin(columns.charge_path, places), why)
        own: BoolArray = np.zeros(len(self.classes), dtype=np.bool_)
        for gang in self._preemptor.gangs:
            own[list(self._session.state.victims.of_gang(gang))] = True
        refuse(own & (columns.pod_priority >= self._preemptor.pod_priority), _OWN)
        high = ~own & below[columns.charge_path] & (columns.priority >= self._preemptor.priority)
        for number in np.flatnonzero(left & high).tolist() if self.drf is not None else ():
            kind = self.classes[number]
            high[number] = isinstance(
                self._by_priority(self._rule_for(kind.charge_path), kind.gang, kind.priority), str
            )
        refuse(high, _HIGH)
        return left

    @property
    def ranks(self) -> Mapping[int, VictimRank]:
        """The place in the order of each kind that may go."""
        if self._ranks is None:
            priorities = self._classes.priority
            self._ranks = {
                number: victim_rank(self.rules[self.classes[number].charge_path], int(priorities[number]))
                for number in np.flatnonzero(self._possible).tolist()
            }
        return self._ranks

    @property
    def any_possible(self) -> bool:
        """Whether anybody may go, now or once he has arrived on his node."""
        return bool(self.allowed.any() or self.arriving.any())

    @property
    def pods(self) -> int:
        """How many pods may go, as far as that can be told without looking at each."""
        return int(self._counts[self.allowed].sum())

    def reclaim_rule(self, record: PodRecord) -> ReclaimRule | str:
        """The rule by which one pod may be taken, or why there is none."""
        assert record.charge_path is not None
        if self._best_effort_only and _asks_for_more_than_a_slot(record.footprint.amounts):
            return _MODEST
        return self._by_priority(self._rule_for(record.charge_path), record.gang, record.pod.priority)

    def overrules_owner(self, record: PodRecord) -> bool:
        """Whether what a pod's owner says against its eviction does not count for this preemptor."""
        rule = self.reclaim_rule(record)
        return not isinstance(rule, str) and self._protected.why_overruled(record, rule) is not None

    def keep_up_to(self, most: VictimRank) -> None:
        """Leaves everybody alone who comes after a level."""
        self.allowed = self._possible & self._up_to(most)

    def keep_all(self) -> None:
        """Takes back `keep_up_to`."""
        self.allowed = self._possible

    def _up_to(self, most: VictimRank) -> BoolArray:
        mask: BoolArray = np.ones(len(self.classes), dtype=np.bool_)
        for number, level in self.ranks.items():
            mask[number] = level <= most
        return mask

    def freed_amounts(self, most: VictimRank | None = None, arriving: bool = False) -> FreedAmounts:
        """What would be freed if all went that may go, up to a level; with those who may once they have arrived."""
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
            # Sums of one node's amounts are far below 2^53: exact.
            freed[column] = np.bincount(rows, weights=weights * chosen, minlength=nodes.capacity)
        return FreedAmounts(freed, charges, int(totals.sum()))

    def _weights(self) -> dict[int, FloatArray]:
        """column -> float64[entries of the table]: what the pods take of a resource of which anybody takes any."""
        if self._taken is None:
            usage = self._usage()
            kinds, counts = self.table.kinds, self.table.counts
            used = np.flatnonzero(usage.any(axis=0)).tolist()
            self._taken = {column: usage[kinds, column].astype(np.float64) * counts for column in used}
        return self._taken

    def _usage(self) -> IntArray:
        """int64[K, R]"""
        width = len(self._session.state.nodes.space)
        usages = [kind.footprint.usage for kind in self.classes]
        return np.array(usages, dtype=np.int64).reshape(-1, width)

    def rows(self) -> list[int]:
        """The rows on which anybody is that may go."""
        rows: list[int] = np.flatnonzero(self.rows_mask()).tolist()
        return rows

    def rows_mask(self, accounts: Collection[object] | None = None) -> BoolArray:
        """bool[N]: where anybody is that may go; with `accounts`, anybody who counts towards one of them."""
        mask = self.allowed
        if accounts is not None:
            mask = mask.copy()
            for number in np.flatnonzero(mask).tolist():
                mask[number] = any(account in accounts for account in self.classes[number].charge_path.path)
        present: BoolArray = np.zeros(self._session.state.nodes.capacity, dtype=np.bool_)
        present[self.table.rows[mask[self.table.kinds]]] = True
        return present

    def largest_on_rows(self, columns: npt.NDArray[np.intp]) -> IntArray:
        """int64[columns, N]: the most that any one of those who may go takes on a row."""
        chosen = self.allowed[self.table.kinds]
        rows, kinds = self.table.rows[chosen], self.table.kinds[chosen]
        found: IntArray = np.zeros((len(columns), self._session.state.nodes.capacity), dtype=np.int64)
        usage = self._usage()
        for place, column in enumerate(columns.tolist()):
            np.maximum.at(found[place], rows, usage[kinds, column])
        return found

    def _by_priority(
        self, rule: ReclaimRule | str, gang: GangRecord | None, pod_priority: int
    ) -> ReclaimRule | str:
        if isinstance(rule, str):
            return rule
        if gang is not None and gang in self._preemptor.gangs:
            lower = pod_priority < self._preemptor.pod_priority
            return rule if lower else _OWN
        if rule.lower_priority_only:
            priority = pod_priority if gang is None else self._session.victim_priority(gang, pod_priority)
            if priority >= self._preemptor.priority and not self._drf_allows(rule, gang, priority):
                return _HIGH
        return rule

    def _drf_allows(self, rule: ReclaimRule, gang: GangRecord | None, priority: int) -> bool:
        """Whether any pod at all of a gang of equal priority could go."""
        equal = rule.drf and priority == self._preemptor.priority
        return equal and self.drf is not None and self.drf.allows_victim(gang, {})

    def _rule_for(self, charge_path: ChargePath) -> ReclaimRule | str:
        found = self._found.get(charge_path)
        if found is None:
            words = [rules.rule_for(charge_path) for rules in self._rules_by_path]
            rules = [word for word in words if not isinstance(word, str)]
            found = rules[0] if rules else words[0] if words else "nobody pays for them"
            self._found[charge_path] = found
            if not isinstance(found, str):
                self.rules[charge_path] = found
        return found


def _asks_for_more_than_a_slot(amounts: Mapping[str, int]) -> bool:
    return any(amount for name, amount in amounts.items() if name != PODS)


def victim_rank(rule: ReclaimRule, priority: int) -> VictimRank:
    return (rule.reason is EvictionReason.PREEMPTED, rule.distance, -rule.excess, priority)
