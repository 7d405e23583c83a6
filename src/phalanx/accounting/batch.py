"""One transaction of the usage recorder: turns changes of gangs into rows of runs and members."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from phalanx.accounting.facts import GangFact, PodFact, PodOutcome
from phalanx.accounting.notices import NoticeWriter
from phalanx.accounting.records import Clock, MemberRow, RunRow, new_member, record_loss, update
from phalanx.accounting.runs import RunTotals, State, belongs_to_run, count_evictions, open_state, run_end
from phalanx.accounting.store import Store
from phalanx.accounting.sums import decode_parts, usage_by_day
from phalanx.model.gang import shown_name
from phalanx.notifications.settings import Settings

if TYPE_CHECKING:
    from phalanx.accounting.recorder import GangChange


class Batch:
    """Transaction that records changes of pods: first ends, then new pods in order of creation.

    The result after a gap is therefore the same as if every change had been recorded in time.
    """

    def __init__(
        self, store: Store, changes: Sequence[GangChange], clock: Clock, settings: Settings | None = None
    ) -> None:
        self._store = store
        self._notices = NoticeWriter(store, settings, clock.now) if settings is not None else None
        self._clock = clock
        self._changes = changes
        self._lost = {pod.uid: pod for change in changes for pod in change.lost}
        uids = [*(pod.uid for change in changes for pod in change.pods), *self._lost]
        declared = [change.gang.run_uid for change in changes if change.gang is not None and change.gang.declared]
        self._known = store.members(uids)
        self._forgotten = store.forgotten((*uids, *declared))
        named = [(change.key.namespace, change.key.name) for change in changes if not _is_single_pod(change)]
        self._runs = store.runs({row.run for row in self._known.values()}, named)
        self._by_gang: dict[tuple[str, str], list[RunRow]] = {}
        for run in sorted(self._runs.values(), key=lambda run: run.id):
            if run.gang:
                self._by_gang.setdefault((run.namespace, run.gang), []).append(run)
        self._loaded = {number: copy(run) for number, run in self._runs.items()}
        self._next = 0
        self._totals: dict[int, RunTotals] = {}
        self._touched: dict[int, GangFact | None] = {}
        self._new_runs: dict[int, RunRow] = {}
        self._new_members: list[MemberRow] = []
        self._sums: dict[tuple[int, int, str], list[int]] = {}
        self._payers: dict[tuple[str, str, str], int] = {}

    def write(self) -> None:
        self._change_known()
        self._totals = self._store.totals(self._runs)
        for change in self._changes:
            self._add_new(change)
        self._store.add_runs(list(self._new_runs.values()))
        self._store.add_members(self._new_members)
        self._update_runs()
        self._store.add_usage(self._sums)

    # known pods

    def _change_known(self) -> None:
        changed: dict[str, MemberRow] = {}
        for change in self._changes:
            for run in self._by_gang.get((change.key.namespace, change.key.name), ()):
                self._touched[run.id] = change.gang
            facts = {fact.uid: fact for fact in change.pods}
            for uid in {**facts, **dict.fromkeys(pod.uid for pod in change.lost)}:
                row = self._known.get(uid)
                if row is not None and (fact := facts.get(uid)) is not None and fact.notify:
                    self._runs[row.run].notify = fact.notify
                if row is not None and self._update_member(row, facts.get(uid)):
                    changed[uid] = row
                    self._mark_changed(row, change.gang)
        self._store.change_members(list(changed.values()))

    def _update_member(self, row: MemberRow, fact: PodFact | None) -> bool:
        """Update a member's row with its pod's last state, then with its unobserved deletion. Return whether the
        row has changed."""
        if row.ended is not None:
            return False
        before = copy(row)
        if fact is not None:
            if row.bound is None:
                row.payer = self._payer_of(fact)
            update(row, fact, self._clock)
        if row.uid in self._lost:
            record_loss(row, self._lost[row.uid])
        return row != before

    def _mark_changed(self, row: MemberRow, gang: GangFact | None) -> None:
        self._touched.setdefault(row.run, gang)
        if row.ended is not None:
            self._charge(row)

    # new pods and gangs

    def _add_new(self, change: GangChange) -> None:
        gang, single = change.gang, _is_single_pod(change)
        new = [pod for pod in change.pods if pod.uid not in self._known and pod.uid not in self._forgotten]
        for fact in sorted(new, key=lambda pod: (pod.created, pod.uid)):
            payer = self._payer_of(fact)
            run = None if single else self._run_of(change, fact)
            if run is None:
                run = self._begin(
                    change,
                    uid=fact.uid,
                    name=fact.name if single else _name(change),
                    kind="Pod" if single else gang.kind if gang is not None else "",
                    payer=payer,
                    submitted=_submitted(gang, fact, first=self._is_first(change)),
                )
            row = new_member(fact, run.id, payer)
            update(row, fact, self._clock)
            if row.uid in self._lost:
                record_loss(row, self._lost[row.uid])
            self._new_members.append(row)
            self._known[row.uid] = row
            totals = self._totals.setdefault(run.id, RunTotals())
            if not totals.members:
                self._add_first_member(run, fact, payer, gang)
            totals.add(row.created, row.bound, row.ended, evicted=row.outcome == PodOutcome.EVICTED)
            run.notify = run.notify or fact.notify
            self._touched[run.id] = gang
            if row.ended is not None:
                self._charge(row)
        if gang is not None and gang.declared and gang.run_uid not in self._forgotten and self._is_first(change):
            payer = self._payer(gang.namespace, gang.queue, "")
            self._begin(
                change, uid=gang.run_uid, name=gang.shown, kind=gang.kind, payer=payer, submitted=gang.created
            )

    def _run_of(self, change: GangChange, fact: PodFact) -> RunRow | None:
        """Return the last run of the pod's gang if the pod belongs to that run, else None."""
        known = self._by_gang.get((change.key.namespace, change.key.name))
        if not known:
            return None
        run, uid = known[-1], change.gang.uid if change.gang is not None else ""
        totals = self._totals.get(run.id, RunTotals())
        if not belongs_to_run(totals, run.gang_uid, uid, fact.created):
            return None
        run.gang_uid = run.gang_uid or uid
        return run

    def _is_first(self, change: GangChange) -> bool:
        """Return whether the database has no run of this gang; a gang known only by its name is compared by
        name."""
        runs = self._by_gang.get((change.key.namespace, change.key.name), ())
        if change.gang is None or not change.gang.uid:
            return not runs
        return all(run.gang_uid != change.gang.uid for run in runs)

    def _begin(self, change: GangChange, *, uid: str, name: str, kind: str, payer: int, submitted: int) -> RunRow:
        gang, single = change.gang, _is_single_pod(change)
        run = RunRow(
            id=self._next_id(),
            uid=uid,
            namespace=change.key.namespace,
            name=name,
            gang="" if single else change.key.name,
            gang_uid=gang.uid if gang is not None else "",
            kind=kind,
            payer=payer,
            state=State.PENDING,
            reason="",
            submitted=min(submitted, self._clock.now),
        )
        self._runs[run.id] = self._new_runs[run.id] = run
        if not single:
            self._by_gang.setdefault((run.namespace, run.gang), []).append(run)
        self._touched[run.id] = gang
        return run

    def _add_first_member(self, run: RunRow, fact: PodFact, payer: int, gang: GangFact | None) -> None:
        """Set the payer of a run (namespace, queue, user) to that of its first member. Without an admission check
        the pod's creation is its submission."""
        run.payer = payer
        if run.id not in self._new_runs and (gang is None or not gang.admission):
            run.submitted = fact.created

    def _next_id(self) -> int:
        self._next = self._next + 1 if self._next else self._store.next_run()
        return self._next

    # runs

    def _update_runs(self) -> None:
        """Update the state, the times and the payer of all runs that changed in this transaction."""
        evictions = self._store.evictions(self._touched)
        fresh_totals = self._store.totals(self._touched)
        ended_runs: list[RunRow] = []
        started: list[RunRow] = []
        for number, gang in self._touched.items():
            run, totals = self._runs[number], fresh_totals.get(number, RunTotals())
            run.members, run.evictions = totals.members, count_evictions(evictions.get(number, ()))
            if totals.members:
                run.submitted = min(run.submitted, totals.created)
            if totals.started:
                if run.started != totals.started:
                    started.append(run)
                run.started, run.wait = totals.started, max(0, totals.started - run.submitted)
            self._admit(run, gang)
            if totals.open or self._expects_pods(run, totals, gang):
                run.state, run.reason, run.ended = open_state(totals), "", None
            elif run.ended is None or totals.members:
                ended_runs.append(run)
        first_payers = self._store.first_payers([run.id for run in started])
        for run in started:
            run.payer = first_payers.get(run.id, run.payer)
        ends = self._store.ends([run.id for run in ended_runs])
        for run in ended_runs:
            if run.ended is not None and not ends.get(run.id):
                continue
            end = run_end(ends.get(run.id, ()), self._clock.now, self._clock.precision)
            run.state, run.reason, run.ended, run.end_precision = end.state, end.reason, end.ended, end.precision
        changed = [run for number, run in self._runs.items() if run != self._loaded.get(number)]
        self._store.change_runs(changed)
        if self._notices is not None:
            for run in changed:
                self._notices.run_changed(self._loaded.get(run.id), run)

    def _expects_pods(self, run: RunRow, totals: RunTotals, gang: GangFact | None) -> bool:
        """Return whether the run's object exists and has no pods yet, or only evicted ones."""
        if gang is None or not gang.declared or run.gang_uid != gang.uid:
            return False
        last = self._by_gang[run.namespace, run.gang][-1] if run.gang else run
        return last is run and (not totals.members or totals.last_evicted)

    def _admit(self, run: RunRow, gang: GangFact | None) -> None:
        ours = gang is not None and gang.admission and run.gang_uid == gang.uid
        if ours and gang is not None and gang.admitted and run.admitted is None and run.ended is None:
            run.admitted = max(run.submitted, min(self._clock.now, run.started or self._clock.now))
            run.admitted_precision = self._clock.precision

    # usage

    def _charge(self, row: MemberRow) -> None:
        """Add the usage of an ended pod to the stored sums per day; called once per pod."""
        if row.bound is None:
            return
        for (day, resource), amount in usage_by_day(decode_parts(row.parts)).items():
            sums = self._sums.setdefault((day, row.payer, resource), [0, 0, 0])
            sums[0] += amount
            if row.outcome == PodOutcome.EVICTED:
                sums[1] += amount
            elif row.outcome == PodOutcome.FAILED:
                sums[2] += amount

    def _payer_of(self, fact: PodFact) -> int:
        return self._payer(fact.namespace, fact.queue, fact.user)

    def _payer(self, namespace: str, queue: str, user: str) -> int:
        key = (namespace, queue, user)
        if key not in self._payers:
            self._payers[key] = self._store.payer(*key)
        return self._payers[key]


def _name(change: GangChange) -> str:
    """Return the shown name of the changed gang."""
    known = change.gang.shown if change.gang is not None else ""
    return known or shown_name(change.key.name)


def _is_single_pod(change: GangChange) -> bool:
    return change.key.name.startswith("/")


def _submitted(gang: GangFact | None, fact: PodFact, *, first: bool) -> int:
    return min(gang.created, fact.created) if gang is not None and gang.admission and first else fact.created
