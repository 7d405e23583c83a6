"""Builder of the publishers: conditions, events, verdicts, the status of groups, queues and quotas, warnings."""

from __future__ import annotations

import time

import msgspec

from phalanx.daemon.assembly.core import Core
from phalanx.daemon.assembly.writes import Writes
from phalanx.execution.conditions import PodConditions
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.status.account_status import AccountStatuses
from phalanx.status.composite_status import CompositeStatuses
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.eviction_events import EvictionEvents
from phalanx.status.group_status import GroupStatuses
from phalanx.status.plan_publisher import PlanPublisher
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.verdict_publisher import VerdictPublisher
from phalanx.status.warnings.composite_priorities import CompositePriorities
from phalanx.status.warnings.distrusted_devices import DEVICE_RESULTS, DistrustedDevices
from phalanx.status.warnings.lost_members import LostMembers
from phalanx.status.warnings.network_faults import NetworkFaults


class Publishers(msgspec.Struct, frozen=True, eq=False):
    endpoint: StatusEndpoint
    conditions: PodConditions
    event_publisher: EventPublisher
    verdict_publisher: VerdictPublisher
    plan_publisher: PlanPublisher
    groups: GroupStatuses
    composites: CompositeStatuses
    accounts: AccountStatuses
    lost_members: LostMembers
    network_faults: NetworkFaults
    composite_priorities: CompositePriorities
    distrusted_devices: DistrustedDevices


def build_status(core: Core, writes: Writes) -> Publishers:
    state, intake, pool, recorder = core.state, core.intake, writes.pool, writes.recorder
    endpoint = StatusEndpoint(writes.client, recorder, core.telemetry.status_refused)
    conditions = PodConditions(writes.client, pool, time.time)
    event_publisher = EventPublisher(recorder, state, intake.dialects, lambda: core.policy.pod_events)
    lost_members = LostMembers(state, recorder, intake.dialects)

    def published_verdict(key: GangKey) -> Verdict | None:
        return verdict_publisher.told_verdict(key)

    groups = GroupStatuses(
        endpoint,
        pool,
        state,
        intake,
        published_verdict,
        time.time,
        core.policy_file.dialects,
        wrote=lost_members.status_written,
    )
    composites = CompositeStatuses(endpoint, pool, state, intake, published_verdict, time.time, groups.disruption)
    verdict_publisher = VerdictPublisher(
        state,
        conditions,
        event_publisher,
        core.parts.verdict_published,
        pace=core.options.pace,
        failures=core.failures,
    )
    plan_publisher = PlanPublisher(
        state, event_publisher, EvictionEvents(recorder, state), verdict_publisher, groups, core.failures
    )
    return Publishers(
        endpoint,
        conditions,
        event_publisher,
        verdict_publisher,
        plan_publisher,
        groups,
        composites,
        AccountStatuses(endpoint, pool, state, intake, recorder, failures=core.failures),
        lost_members,
        NetworkFaults(state.topology),
        CompositePriorities(state, intake.is_ours),
        DistrustedDevices(state, lambda: core.telemetry.distrusted(DEVICE_RESULTS)),
    )
