"""Report of every queue and quota of the live cluster, by one dry run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import Plan
from phalanx.model.gang import GangKey
from phalanx.model.verdict import NamedObject, Verdict, gang_object, joined_objects
from phalanx.reports.account_entries import AccountEntry, FirstWaiting, QueueReport, SubqueueEntry
from phalanx.reports.account_report import AccountReport, amounts
from phalanx.reports.first_in_queue import first_in_queue
from phalanx.reports.snapshot import Snapshot
from phalanx.scheduling.collecting.plugin import load_collections
from phalanx.scheduling.features.borrowed_room import load_reclaims
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import pod_object
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import rehearse_promises
from phalanx.scheduling.start_reservations.rehearsal import PromiseMove, promise_moves
from phalanx.views.promises import Promises, with_move

_POINTS = ("queue_order", "deserved", "subqueue_order")
_KINDS = frozenset({"Queue", "ElasticQuota", "ElasticQuotaTree"})


def report(snapshot: Snapshot, policy: Policy, now: float, promises: Promises | None = None) -> QueueReport:
    """Return the report of one dry run at `now` (seconds since the epoch) with the scheduler's promised starts.

    The dry run consumes the snapshot.
    """
    promises = promises or Promises()
    scheduler = Scheduler(snapshot.state, policy)
    scheduler.history.restore(snapshot.usages, now)
    rehearse_promises(scheduler.features, promises.promises)
    load_reclaims(scheduler.features, promises.reclaimed)
    load_collections(scheduler.features, promises.collections)
    scheduler.observe(now)
    accounts = AccountReport(scheduler.new_session(now))
    queues = {record.key: accounts.queue(record) for record in accounts.queues()}
    quotas = {record.key: accounts.quota(record) for record in accounts.quotas()}
    tenants = {record.key: accounts.tenant(record) for record in accounts.tenants()}
    for key, tenant in tenants.items():
        queues[AccountKey(Tree.QUEUE, key.forest)].tenants.append(tenant)
    lenders: dict[AccountKey, AccountEntry] = {**queues, **quotas}
    for key, loan in accounts.borrowing().items():
        entry = lenders[key]
        entry.borrowed, entry.lent = amounts(loan.borrowed), amounts(loan.lent)
        entry.partners, entry.further_partners = list(loan.partners), loan.further
    # A notice of a queue or quota entry is not repeated.
    at_entries = {text for entry in lenders.values() for text in (entry.fault, *entry.warnings)}
    warnings = [
        *(f"not read: {text}" for text in snapshot.missing),
        *accounts.demand_without_queue(),
        *_notices(snapshot, at_entries),
        *promises.warnings(now),
    ]
    # The dry run changes the usage of accounts, so it runs last.
    plan = scheduler.cycle(now)
    after = scheduler.new_session(now)
    verdicts = _Verdicts(plan, promises, promise_moves(scheduler.new_session(now)))
    entries_by_key: dict[AccountKey, AccountEntry | SubqueueEntry] = {**lenders, **tenants}
    for key, unit in first_in_queue(after, scheduler.waiting_units(after)).items():
        if key in entries_by_key:
            entries_by_key[key].first = verdicts.waiting(unit)
    plugins = {plugin.name: None for point in _POINTS for plugin in scheduler.plugin_runtime.plugins(point)}
    return QueueReport(
        amounts(accounts.totals), list(plugins), list(queues.values()), list(quotas.values()), warnings
    )


class _Verdicts:
    """Verdicts of the dry run on gangs and pods that were not placed."""

    def __init__(self, plan: Plan, promises: Promises, moves: Sequence[PromiseMove]) -> None:
        self._promises, self._moves = promises, moves
        self._gangs: Mapping[GangKey, Verdict | None] = {entry.gang: entry.verdict for entry in plan.gangs}
        self._pods: Mapping[str, Verdict | None] = {entry.uid: entry.verdict for entry in plan.pods}

    def waiting(self, unit: QueuedUnit) -> FirstWaiting | None:
        if unit.pod is not None:
            verdict = self._pods.get(unit.pod.pod.uid)
            return self._first(unit, f"pod {unit.pod.pod.key}", pod_object(unit.pod), verdict)
        for gang in unit.gangs:
            members = (self._pods.get(uid) for uid in gang.pending)
            verdict = self._gangs.get(gang.key) or next(
                (verdict_of_member for verdict_of_member in members if verdict_of_member is not None), None
            )
            if verdict is not None:
                return self._first(unit, f"gang {gang.title}", gang_object(gang.key), verdict)
        return None

    def _first(
        self, unit: QueuedUnit, name: str, named: NamedObject, verdict: Verdict | None
    ) -> FirstWaiting | None:
        if verdict is None:
            return None
        promise = self._promises.of_unit(unit)
        start = with_move(self._promises.start(promise), promise, self._moves) if promise is not None else None
        objects = joined_objects((named,), verdict.objects)
        return FirstWaiting(name, verdict.code, verdict.message, verdict.change, start, named, objects)


def _notices(snapshot: Snapshot, known: Collection[str]) -> list[str]:
    """Return messages about objects that define no queue or quota (the second quota of a namespace, for
    example)."""
    notices = [notice for notice in snapshot.intake.drain_warnings() if notice.about.kind in _KINDS]
    warnings = [notice for notice in notices if notice.type == "Warning" and notice.message not in known]
    texts = dict.fromkeys(f"{notice.reason}: {notice.message}" for notice in warnings)
    return [text for text in texts if text not in known]
