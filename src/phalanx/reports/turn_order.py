"""Scheduling order of all waiting gangs and pods, with the deciding sort keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.account import ROOT_QUEUE
from phalanx.model.decisions import Bind, Plan
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.turn_entries import OrderReport, TurnEntry
from phalanx.scheduling.collecting.plugin import load_collections
from phalanx.scheduling.features.borrowed_room import load_reclaims
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.dominant_share import dominant_share
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import rehearse_promises
from phalanx.scheduling.whatif.dry_run import DryRun
from phalanx.views.gang_names import shown, target
from phalanx.views.gang_state import GangState, PlacementForecast
from phalanx.views.promises import Promises
from phalanx.views.record_facts import observed_states

#: Sort keys after those of the plugins.
REPAIR, AGE, NAME = "repair", "age", "name"


def turn_order(snapshot: Snapshot, policy: Policy, now: float, promises: Promises | None = None) -> OrderReport:
    """Return the scheduling order from one dry run at `now` with the scheduler's promised starts: gangs and pods
    that would be placed first.

    The dry run consumes the snapshot.
    """
    promises = promises or Promises()
    scheduler = DryRun(snapshot.state, policy)
    scheduler.history.restore(snapshot.usages, now)
    rehearse_promises(scheduler.features, promises.promises)
    load_reclaims(scheduler.features, promises.reclaimed)
    load_collections(scheduler.features, promises.collections)
    observed = observed_states(snapshot.state, snapshot.disruption_targets)
    plan = scheduler.cycle(now)
    session = scheduler.new_session(now)
    line = _Line(session, plan, observed)
    entries = line.starting(plan.binds)
    units = [unit for unit in scheduler.waiting_units(session) if not _satisfied(session, unit)]
    before: QueuedUnit | None = None
    for unit in _turns(session, units):
        behind = line.behind(before, unit) if before is not None else ""
        entries += line.waiting(unit, len(entries) + 1, behind)
        before = unit
    missing = [f"not read: {text}" for text in snapshot.missing]
    return OrderReport(entries, missing + promises.warnings(now))


def _satisfied(session: Session, unit: QueuedUnit) -> bool:
    return any(session.requirement(gang).satisfied for gang in unit.gangs if gang.spec is not None)


def _turns(session: Session, units: list[QueuedUnit]) -> Iterator[QueuedUnit]:
    order = QueueOrder(session, units)
    while (turn := order.next()) is not None:
        assert isinstance(turn, list)
        yield from turn


class _Line:
    """Builder of the entries of the scheduling order, with the session after the dry run."""

    def __init__(self, session: Session, plan: Plan, observed: Mapping[GangKey, GangState]) -> None:
        self._session = session
        self._observed = observed
        self._gangs: Mapping[GangKey, Verdict | None] = {entry.gang: entry.verdict for entry in plan.gangs}
        self._pods: Mapping[str, Verdict | None] = {entry.uid: entry.verdict for entry in plan.pods}
        self._queue_plugins = session.plugin_runtime.plugins("queue_order")
        self._plugins = session.plugin_runtime.plugins("gang_order")
        self._totals = {name: offered for name, (offered, _) in session.totals().items() if offered}

    def starting(self, binds: list[Bind]) -> list[TurnEntry]:
        """Return the entries of the gangs and pods that the dry run placed, in that order."""
        entries: dict[int, TurnEntry] = {}
        for bind in binds:
            record = self._session.state.pods[bind.uid]
            gang = record.gang
            member = gang if gang is not None and gang.spec is not None else record
            entry = self._entry(member, len(entries) + 1, PlacementForecast.STARTS_NOW, "")
            known = entries.setdefault(id(member), entry)
            known.members += known is not entry
        return list(entries.values())

    def waiting(self, unit: QueuedUnit, position: int, behind: str) -> list[TurnEntry]:
        """Return the entries of a waiting gang or pod; for a composite one entry per gang."""
        entries = []
        for number, member in enumerate(unit.members):
            entry = self._entry(
                member, position + number, PlacementForecast.NONE, "gang group" if number else behind
            )
            entry.reserved = unit.reserved
            verdict = self._verdict(member)
            if verdict is not None:
                entry.reason, entry.message = verdict.code, verdict.message
            entries.append(entry)
        return entries

    def _verdict(self, member: GangRecord | PodRecord) -> Verdict | None:
        if isinstance(member, PodRecord):
            return self._pods.get(member.pod.uid)
        verdict = self._gangs.get(member.key)
        return verdict or next(
            (pod_verdict for uid in member.pending if (pod_verdict := self._pods.get(uid)) is not None), None
        )

    def _entry(
        self, member: GangRecord | PodRecord, position: int, forecast: PlacementForecast, behind: str
    ) -> TurnEntry:
        queue = self._session.charge_path(member).queue
        if isinstance(member, PodRecord):
            pod = member.pod
            kind, namespace, name, created, members = "pod", pod.namespace, pod.name, pod.created, 1
            state = GangState.PENDING
        else:
            spec = member.spec
            kind, namespace, name = "gang", member.key.namespace, shown(member)
            created = spec.created if spec is not None else 0
            state = self._observed[member.key]
            members = (
                1
                if forecast is PlacementForecast.STARTS_NOW
                else spec.min_member
                if spec is not None
                else len(member.members)
            )
        return TurnEntry(
            position=position,
            kind=kind,
            namespace=namespace,
            name=name,
            queue=queue.key.name if queue is not None else "",
            queue_share=self._share(queue),
            priority=self._session.turn_priority(member),
            created=created,
            state=state,
            forecast=forecast,
            keys=self._keys(member, queue),
            behind=behind,
            members=members,
            target=f"pod/{name}" if isinstance(member, PodRecord) else target(member),
        )

    def _share(self, queue: AccountRecord | None) -> float:
        if queue is None:
            return 0.0
        return round(100 * float(dominant_share(queue.allocated.items(), self._totals)), 2)

    def _keys(self, member: GangRecord | PodRecord, queue: AccountRecord | None) -> dict[str, float | str]:
        session, keys = self._session, dict[str, float | str]()
        if queue is not None:
            for plugin in self._queue_plugins:
                keys[f"queue:{plugin.name}"] = _plain(plugin.queue_order(session, queue))
        for plugin in self._plugins:
            keys[plugin.name] = _plain(plugin.gang_order(session, member))
        return keys

    # comparison in the order of `QueueOrder`

    def behind(self, first: QueuedUnit, second: QueuedUnit) -> str:
        if first.rank[0] != second.rank[0]:
            return REPAIR
        ones, second_path = self._charge_path(first), self._charge_path(second)
        if self._queue_plugins and (queues := self._queues_differ(ones, second_path)):
            return queues
        width = len(first.band)
        if first.band != second.band:
            return self._plugin_between(first, second, 1, width) or NAME
        for plugin in self._session.plugin_runtime.plugins("subqueues"):
            mine, theirs = (plugin.subqueues(self._session, charge_path) for charge_path in (ones, second_path))
            if mine != theirs:
                kinds = {account.key.tree.value for account in (*mine, *theirs)}
                return f"{'/'.join(sorted(kinds))}:{plugin.name}"
        key = self._plugin_between(first, second, width, 1 + len(self._plugins))
        return key or (AGE if first.rank[-3] != second.rank[-3] else NAME)

    def _charge_path(self, unit: QueuedUnit) -> ChargePath:
        return self._session.charge_path(
            min(unit.gangs, key=lambda gang: gang.key) if unit.gangs else unit.members[0]
        )

    def _queues_differ(self, ones: ChargePath, second_path: ChargePath) -> str:
        """Return the sort key that separates the queues of two pods, "" if their queue is the same."""
        lines = [
            [queue for queue in reversed(list(charge_path.queue.lineage())) if queue.key.name != ROOT_QUEUE]
            if charge_path.queue is not None
            else []
            for charge_path in (ones, second_path)
        ]
        for one, other in zip(*lines, strict=False):
            if one is other:
                continue
            for plugin in self._queue_plugins:
                if plugin.queue_order(self._session, one) != plugin.queue_order(self._session, other):
                    return f"queue:{plugin.name}"
            ages = [account.spec.created if account.spec is not None else 0 for account in (one, other)]
            return f"queue:{AGE if ages[0] != ages[1] else NAME}"
        return "queue:parent" if len(lines[0]) != len(lines[1]) else ""

    def _plugin_between(self, first: QueuedUnit, second: QueuedUnit, start: int, end: int) -> str:
        for at in range(start, min(end, 1 + len(self._plugins))):
            if first.rank[at] != second.rank[at]:
                return self._plugins[at - 1].name
        return ""


def _plain(key: object) -> float | str:
    """Return a sort key in a form for display."""
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, int):
        return key
    if isinstance(key, float):
        return round(key, 4)
    return str(key)
