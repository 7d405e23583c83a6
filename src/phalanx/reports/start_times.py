"""Starts of all waiting gangs and pods: a dry run over the live cluster, and the scheduler's promised starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey
from phalanx.reports.promised_starts import StartTimes
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.start_entries import StartEntry
from phalanx.scheduling.collecting.plugin import load_collections
from phalanx.scheduling.features.borrowed_room import load_reclaims
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.start_reservations.forecasts import UnitStart
from phalanx.scheduling.start_reservations.plugin import rehearse_promises
from phalanx.scheduling.start_reservations.rehearsal import promise_moves
from phalanx.scheduling.whatif.dry_run import DryRun
from phalanx.scheduling.whatif.start_forecasts import forecast_starts
from phalanx.views.gang_names import shown, target
from phalanx.views.gang_state import GangState, PlacementForecast
from phalanx.views.promises import PromisedStart, Promises
from phalanx.views.record_facts import observed_states


def start_entries(
    snapshot: Snapshot, policy: Policy, promises: Promises, now: float, should_stop: Callable[[], bool] = never
) -> list[StartEntry]:
    """Return the starts of waiting gangs and pods, earliest first and unknown ones last. The dry run consumes the
    snapshot."""
    scheduler = DryRun(snapshot.state, policy)
    scheduler.history.restore(snapshot.usages, now)
    rehearse_promises(scheduler.features, promises.promises)
    load_reclaims(scheduler.features, promises.reclaimed)
    load_collections(scheduler.features, promises.collections)
    observed = observed_states(snapshot.state, snapshot.disruption_targets)
    plan = scheduler.cycle(now)
    starts = [
        forecast
        for forecast in forecast_starts(scheduler, now, should_stop)
        if not any(scheduler.session.requirement(gang).satisfied for gang in forecast.unit.gangs if gang.spec)
    ]
    moves = promise_moves(scheduler.new_session(now))
    times = StartTimes(promises, starts, now, moves)
    entries = [entry for forecast in starts for entry in _entries(forecast, times.start(forecast), observed)]
    entries.sort(key=lambda forecast: forecast.start.no_later_than or forecast.start.planned or "~")
    return _starting(scheduler, plan.binds, observed) + entries


def _entries(
    unit_start: UnitStart, start: PromisedStart, observed: Mapping[GangKey, GangState]
) -> list[StartEntry]:
    """Return the start entries of a queue entry. A composite starts as one unit and has several gangs."""
    unit = unit_start.unit
    if unit.pod is not None:
        pod = unit.pod.pod
        return [
            StartEntry(
                "pod",
                pod.namespace,
                pod.name,
                unit_start.queue,
                1,
                unit_start.priority,
                GangState.PENDING,
                start,
                target=f"pod/{pod.name}",
            )
        ]
    return [
        StartEntry(
            "gang",
            gang.key.namespace,
            shown(gang),
            unit_start.queue,
            gang.spec.min_member if gang.spec is not None else 0,
            unit_start.priority,
            observed[gang.key],
            start,
            target=target(gang),
        )
        for gang in unit.gangs
    ]


def _starting(scheduler: DryRun, binds: list[Bind], observed: Mapping[GangKey, GangState]) -> list[StartEntry]:
    """Return the start entries of the gangs and pods that the dry run would place now, in that order."""
    entries: dict[GangKey, StartEntry] = {}
    for bind in binds:
        record = scheduler.state.pods[bind.uid]
        kind, name = ("gang", record.gang.key.name) if record.gang is not None else ("pod", record.pod.name)
        key = GangKey(record.pod.namespace, f"{kind}/{name}")
        entry = entries.get(key)
        if entry is None:
            charge_path = record.charge_path
            queue = charge_path.queue.key.name if charge_path is not None and charge_path.queue is not None else ""
            member = record.gang if record.gang is not None and record.gang.spec is not None else record
            entry = entries[key] = StartEntry(
                kind,
                record.pod.namespace,
                shown(record.gang) if record.gang is not None else name,
                queue,
                0,
                scheduler.session.turn_priority(member),
                observed[record.gang.key] if record.gang is not None else GangState.PENDING,
                PromisedStart(),
                PlacementForecast.STARTS_NOW,
                target(record.gang) if record.gang is not None else f"pod/{name}",
            )
        entry.pods += 1
    return list(entries.values())
