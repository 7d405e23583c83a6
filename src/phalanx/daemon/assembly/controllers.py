"""Builder of the process's controllers: stored state, objects that the process creates, gates and gangs that it
releases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.daemon.assembly.core import Core
from phalanx.daemon.assembly.execution import Execution
from phalanx.daemon.assembly.observation import Observation
from phalanx.daemon.assembly.status import Publishers
from phalanx.daemon.assembly.writes import Writes
from phalanx.daemon.controllers.advance_reservations import AdvanceReservationStatuses
from phalanx.daemon.controllers.builtin_queues import BuiltinQueues
from phalanx.daemon.controllers.defragmentation_record import DefragmentationRecord
from phalanx.daemon.controllers.generated_pod_groups import GeneratedPodGroups
from phalanx.daemon.controllers.leftover_evictions import LeftoverEvictions
from phalanx.daemon.controllers.maintenance_windows import MaintenanceWindowController
from phalanx.daemon.controllers.partial_gangs import PartialGangs
from phalanx.daemon.controllers.policy_record import PolicyRecord
from phalanx.daemon.controllers.queue_gates import QueueGates
from phalanx.daemon.controllers.recent_history_record import (
    BACKOFFS_KEY,
    EVICTIONS_KEY,
    NODE_REQUESTS_KEY,
    RUN_TIMES_KEY,
    HistorySection,
    RecentHistoryRecord,
)
from phalanx.daemon.controllers.reservation_record import ReservationRecord
from phalanx.daemon.controllers.run_time_exceeded import RunTimeExceeded
from phalanx.daemon.controllers.usage_record import UsageRecord
from phalanx.daemon.controllers.withdrawn_pods import WithdrawnPods
from phalanx.daemon.kubelet_rejections import KubeletRejections
from phalanx.daemon.ledger_check import LedgerCheck
from phalanx.kube.own_objects import name_prefix
from phalanx.model.events import NodeBackoffsRestored, PodRejected
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.node_request import NodeRequest
from phalanx.scheduling.collecting.plugin import Collecting
from phalanx.scheduling.collecting.run_times import LearnedRunTime, LearnedRunTimes
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.features.borrowed_room import BorrowedRoom
from phalanx.scheduling.session.eviction_log import NotedEvictions
from phalanx.scheduling.start_reservations.plugin import StartReservations


class StoredState(msgspec.Struct, frozen=True, eq=False):
    """State of the scheduler that survives a restart, each kind in its own ConfigMaps."""

    usage: UsageRecord
    start_reservations: StartReservations
    reservations: ReservationRecord
    defragmentation: DefragmentationRecord
    policy: PolicyRecord
    recent_history: RecentHistoryRecord


class Controllers(msgspec.Struct, frozen=True, eq=False):
    kubelet_rejections: KubeletRejections
    partial_gangs: PartialGangs
    run_time_exceeded: RunTimeExceeded
    maintenance_windows: MaintenanceWindowController
    advance_reservations: AdvanceReservationStatuses
    leftover_evictions: LeftoverEvictions
    builtin_queues: BuiltinQueues
    generated_pod_groups: GeneratedPodGroups
    queue_gates: QueueGates
    withdrawn_pods: WithdrawnPods
    ledger_check: LedgerCheck


def build_stored_state(core: Core, writes: Writes, observation: Observation) -> StoredState:
    client, pool, options, features = writes.client, writes.pool, core.options, core.scheduler.features
    place, prefix = options.lease_namespace, name_prefix(options.scheduler_names)
    # Without the feature in the registry, this instance takes part in no cycle and stores nothing.
    starts = features.get(StartReservations) or StartReservations(core.state, core.scheduler.queue)
    borrowed_room = features.get(BorrowedRoom) or BorrowedRoom(core.state, core.scheduler.queue)
    defragmentation = features.get(Defragmentation) or Defragmentation()
    return StoredState(
        UsageRecord(client, pool, place, core.scheduler.history, time.time, prefix=prefix),
        starts,
        ReservationRecord(
            client,
            pool,
            place,
            starts.promised,
            starts.observed_starts,
            borrowed_room.backoff,
            features.get(Collecting),
            prefix=prefix,
        ),
        DefragmentationRecord(
            client, pool, place, defragmentation, core.lifecycle.wake.set, time.time, prefix=prefix
        ),
        PolicyRecord(client, pool, place, lambda: core.policy_file.text, scheduler_names=options.scheduler_names),
        RecentHistoryRecord(client, pool, place, _history_sections(core, observation), prefix=prefix),
    )


def _history_sections(core: Core, observation: Observation) -> tuple[HistorySection[Any], ...]:
    """Return the recent events that a restart must not forget."""
    backoff, evictions = core.state.nodes.backoff, core.scheduler.cycle_history.evictions
    requests = core.state.gangs.node_requests

    def restore_backoffs(entries: Sequence[NodeBackoffEntry]) -> None:
        observation.observer.apply_event(NodeBackoffsRestored(tuple(entries)))

    collecting = core.scheduler.features.get(Collecting)
    run_times = collecting.run_times if collecting is not None else LearnedRunTimes()
    return (
        HistorySection(BACKOFFS_KEY, NodeBackoffEntry, lambda: backoff.version, backoff.entries, restore_backoffs),
        HistorySection(
            EVICTIONS_KEY, NotedEvictions, lambda: evictions.version, evictions.export, evictions.restore
        ),
        HistorySection(
            NODE_REQUESTS_KEY, NodeRequest, lambda: requests.version, requests.entries, requests.restore
        ),
        HistorySection(
            RUN_TIMES_KEY, LearnedRunTime, lambda: run_times.version, run_times.export, run_times.restore
        ),
    )


def build_controllers(
    core: Core,
    writes: Writes,
    status: Publishers,
    execution: Execution,
    observation: Observation,
    stored: StoredState,
) -> Controllers:
    client, pool, state, intake, telemetry = writes.client, writes.pool, core.state, core.intake, core.telemetry
    event_publisher, evict, kinds = status.event_publisher, execution.executor.evict, observation.observer.kinds

    def pod_rejected(event: PodRejected) -> None:
        telemetry.refused_by_kubelet(event.reason)
        observation.observer.apply_event(event)

    return Controllers(
        KubeletRejections(state, pod_rejected, time.time),
        PartialGangs(state, event_publisher, evict, time.time),
        RunTimeExceeded(
            state, event_publisher, telemetry.run_time_exceeded, core.parts.verdict_published, time.time
        ),
        MaintenanceWindowController(
            client, status.endpoint, pool, state, intake, event_publisher, kinds.knows_all, time.time
        ),
        AdvanceReservationStatuses(
            status.endpoint,
            pool,
            intake,
            event_publisher,
            stored.start_reservations.advance_grants,
            stored.reservations.holds,
            time.time,
        ),
        LeftoverEvictions(state, evict, execution.evictor.withdraw, time.time),
        BuiltinQueues(client, pool, kinds, intake),
        GeneratedPodGroups(
            client,
            pool,
            state,
            intake,
            lambda: kinds.readable("podgroups"),
            lambda: core.policy.create_pod_groups,
        ),
        QueueGates(client, pool, state, lambda: core.scheduler.new_session(time.time())),
        WithdrawnPods(client, pool, state, time.time),
        LedgerCheck(state, telemetry.self_check_failed),
    )
