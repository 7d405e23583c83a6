"""Victim candidates of one search: which pods, in which order, and on which nodes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.reclaimees import Reclaimees, VictimRank, victim_rank
from phalanx.scheduling.preemption.rules.rule import future_holdings
from phalanx.scheduling.preemption.rules.self_protection import evict_veto_on
from phalanx.scheduling.preemption.shortfall import shortfall_of
from phalanx.scheduling.preemption.victims import VictimBuilder, VictimCandidate, lost_work
from phalanx.scheduling.session.session import Session

# With more possible victims than this, ranks and rows are selected before any pod is examined.
_FEW_PODS = 2000
# Smallest number of nodes in the first window, and multiple of the required room that it must offer.
_ROWS = 12
_TIMES = 4


class Candidates:
    """Victim candidates of one search.

    `refused` counts the pods whose eviction is vetoed, by reason. `retry_at` is the time (seconds since the epoch)
    at which the first veto ends.
    """

    def __init__(
        self, session: Session, preemptor: Preemptor, reclaimees: Reclaimees, options: EvictionOptions
    ) -> None:
        self.reclaimees = reclaimees
        self.refused: Counter[str] = Counter()
        self.retry_at: float | None = None
        self._session = session
        self._preemptor = preemptor
        self._options = options
        self._cut: VictimRank | None = None
        self._verdicts: dict[str, bool] = {}
        self._found: dict[tuple[int, VictimRank | None], list[PodRecord]] = {}
        self._works: dict[str, float] = {}
        self._totals = session.totals()

    def rounds(self, suffices: Callable[[VictimRank], bool]) -> Iterable[list[VictimCandidate]]:
        """Yield candidates in eviction order: all if there are few, else first the lowest ranks on the most
        promising nodes.

        `suffices` returns whether the eviction of all victims up to a rank is enough.
        """
        reclaimees = self.reclaimees
        if reclaimees.pods <= _FEW_PODS:
            yield self.on_rows(reclaimees.rows())
            return
        everybody = reclaimees.pods
        self._cut_ranks(suffices)
        for cut in (self._cut, None):
            self._cut = cut
            if cut is None:
                if reclaimees.pods == everybody:
                    return
                reclaimees.keep_all()
            if reclaimees.pods <= _FEW_PODS:
                yield self.on_rows(reclaimees.rows())
            else:
                for rows in CandidateNodes(self._session, self._preemptor, reclaimees).windows():
                    yield self.on_rows(rows)

    def _cut_ranks(self, suffices: Callable[[VictimRank], bool]) -> None:
        """Drop the ranks above the lowest one up to which all victims suffice."""
        reclaimees = self.reclaimees
        ranks = sorted(set(reclaimees.ranks.values()))
        low, high = 0, len(ranks) - 1
        while low < high:
            middle = (low + high) // 2
            if suffices(ranks[middle]):
                high = middle
            else:
                low = middle + 1
        self._cut = ranks[high]
        reclaimees.keep_up_to(ranks[high])

    def on_rows(self, rows: Iterable[int]) -> list[VictimCandidate]:
        session = self._session
        records = [record for row in rows for record in self._possible_victims(row)]
        builder = VictimBuilder(
            session.state,
            self.reclaimees.rules,
            self._may_go,
            session.victim_priority,
            self._work,
            self._preemptor.gangs,
        )
        candidates = builder.victims_of(records)
        candidates = [victim for victim in candidates if not victim.whole or self._may_go_as_a_whole(victim)]
        if self._preemptor.surplus:
            candidates = list(_victims_of_surplus(candidates))
        orders = session.plugin_runtime.plugins("victim_order")
        for victim in candidates:
            opinions = tuple(plugin.victim_order(session, victim.records[0]) for plugin in orders)
            victim.exhausted_budgets = self._exhausted_budgets(victim)
            if not victim.preempted:
                victim.shortfall = shortfall_of([victim], future_holdings)
            victim.order_key = (
                victim.preempted,
                victim.distance,
                -victim.excess,
                victim.priority,
                victim.exhausted_budgets > 0,
                victim.broken_quorums > 0,
                victim.highest_priority,
                opinions,
                victim.lost_work,
                victim.rank,
                -victim.latest_start,
                victim.name,
            )
        return sorted(candidates, key=lambda victim: victim.order_key)

    def _possible_victims(self, row: int) -> list[PodRecord]:
        """Return the possible victims on a row. A pod on its own must also pass the vetoes."""
        key = (row, self._cut)
        victims = self._found.get(key)
        if victims is None:
            victims = self._found[key] = [
                record
                for record in self._session.state.pods.on(row)
                if self._within_cut(record) and (record.gang is not None or self._may_go(record))
            ]
        return victims

    def _of_allowed_class(self, record: PodRecord) -> bool:
        """Return whether the pod's victim class can be evicted."""
        return record.charge_path is not None and not isinstance(self.reclaimees.reclaim_rule(record), str)

    def _within_cut(self, record: PodRecord) -> bool:
        """Return whether the pod's victim class can be evicted, at a rank within the cut."""
        if record.charge_path is None:
            return False
        rule = self.reclaimees.reclaim_rule(record)
        if isinstance(rule, str):
            return False
        if self._cut is None:
            return True
        own, gang = record.pod.priority, record.gang
        priority = own if gang is None else self._session.victim_priority(gang, own)
        return victim_rank(rule, priority) <= self._cut

    def _may_go(self, record: PodRecord) -> bool:
        allowed = self._verdicts.get(record.pod.uid)
        if allowed is None:
            allowed = self._verdicts[record.pod.uid] = self._passes_vetoes(record)
        return allowed

    def _passes_vetoes(self, record: PodRecord) -> bool:
        if record.state not in CAN_LEAVE or record.charge_path is None:
            return False
        rule = self.reclaimees.reclaim_rule(record)
        if isinstance(rule, str):
            return False
        veto = evict_veto_on(self._session, record, rule)
        if veto is None:
            return True
        self.refused[f"each {veto.why}"] += 1
        if veto.until is not None:
            self.retry_at = veto.until if self.retry_at is None else min(self.retry_at, veto.until)
        return False

    def _work(self, record: PodRecord) -> float:
        uid = record.pod.uid
        if uid not in self._works:
            self._works[uid] = lost_work(record, self._session.now, self._totals)
        return self._works[uid]

    def _exhausted_budgets(self, victim: VictimCandidate) -> int:
        budgets = self._session.state.budgets
        return sum(
            1
            for record in (victim.records if budgets else ())
            for name in record.pod.budgets
            if (budget := budgets.get(record.pod.namespace, {}).get(name)) is not None and budget.allowed <= 0
        )

    def _may_go_as_a_whole(self, victim: VictimCandidate) -> bool:
        options = self._options
        return options.preempt_whole_gangs if victim.preempted else options.reclaim_whole_gangs

    def groups(self, candidates: list[VictimCandidate]) -> list[list[VictimCandidate]]:
        """Return the sets of candidates that can be evicted together: one set a node where the policy requires a
        single node."""
        options = self._options
        if not (options.preempt_on_single_node or options.reclaim_on_single_node):
            return [candidates]
        on_row: dict[int, list[VictimCandidate]] = {}
        for victim in candidates:
            rows = set(victim.rows)
            if len(rows) == 1:
                on_row.setdefault(rows.pop(), []).append(victim)
        return [on_row[row] for row in sorted(on_row)]


def _victims_of_surplus(candidates: Iterable[VictimCandidate]) -> Iterator[VictimCandidate]:
    """Yield the candidates that surplus can evict: surplus, and whole gangs and pods on their own whose accounts
    keep their shares."""
    for victim in candidates:
        if victim.dispensable is None:
            if victim.preempted:
                continue
            victim.rules = {charge_path: rule.within_surplus() for charge_path, rule in victim.rules.items()}
        yield victim


class CandidateNodes:
    """Rows on which the preemptor's pods would fit without all possible victims.

    Rows that need the fewest evictions come first. Rows on which no pod would fit come last: pods there count
    towards a full account, or block the preemptor by affinity.
    """

    def __init__(self, session: Session, preemptor: Preemptor, reclaimees: Reclaimees) -> None:
        self._session = session
        self._preemptor = preemptor
        self._reclaimees = reclaimees

    def windows(self) -> Iterator[list[int]]:
        """Yield growing sets of rows."""
        rows, copies = self._promising()
        enough = int(np.searchsorted(np.cumsum(copies), _TIMES * self._preemptor.total)) + 1
        size = max(_ROWS, enough)
        while size < len(rows):
            yield rows[:size].tolist()
            size *= 4
        yield rows.tolist()
        accounts = self._full_accounts()
        restricts = any(pod_class.affinity.restricts for pod_class in self._preemptor.classes)
        if accounts or restricts or not len(rows):
            # A pod that blocks a whole domain by affinity can be on a node where no pod of the preemptor would fit.
            extended = self._reclaimees.rows_mask(None if restricts else accounts)
            extended[rows] = True
            everywhere = np.flatnonzero(extended).tolist()
            if len(everywhere) > len(rows):
                yield everywhere

    def _promising(self) -> tuple[IntArray, IntArray]:
        """Return (rows, number of copies that would fit on each)."""
        nodes, reclaimees = self._session.state.nodes, self._reclaimees
        free = nodes.idle + reclaimees.freed_amounts().freed
        best: FloatArray = np.full(nodes.capacity, np.inf)
        part: FloatArray = np.full(nodes.capacity, np.inf)
        room: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
        present: BoolArray = reclaimees.rows_mask()
        for pod_class in self._preemptor.classes:
            wanted = pod_class.amounts[:, None]
            copies = np.where(
                self._session.placer.class_view(pod_class).static,
                (free[pod_class.columns] // wanted).min(axis=0),
                0,
            )
            missing = (wanted - nodes.idle[pod_class.columns]).clip(min=0)
            pods = np.ceil(missing / reclaimees.largest_on_rows(pod_class.columns).clip(min=1)).max(axis=0)
            better = (copies > 0) & present & (pods < best)
            best[better] = pods[better]
            part[better] = (missing / wanted).max(axis=0)[better]
            room = np.maximum(room, copies)
        rows = np.flatnonzero(np.isfinite(best))
        rows = rows[np.lexsort((rows, part[rows], best[rows]))]
        return rows, room[rows]

    def _full_accounts(self) -> set[object]:
        """Return the accounts that refuse the preemptor now."""
        full: set[object] = set()
        for charge_path, wanted in self._preemptor.charge_paths.items():
            for account_limit in self._session.quota_check.account_limits(charge_path):
                if any(
                    account_limit.refuses(name, amount)
                    for name, amount in wanted.items()
                    if name in account_limit.limit.limits
                ):
                    full.add(account_limit.account)
        return full
