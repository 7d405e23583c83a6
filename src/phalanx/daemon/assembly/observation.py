"""Builder of the observer of the cluster, and of the metrics, probes and debug pages of the process."""

from __future__ import annotations

import time

import msgspec

from phalanx.daemon.assembly.core import Core
from phalanx.daemon.assembly.status import Publishers
from phalanx.daemon.assembly.writes import Writes
from phalanx.daemon.inspection import Inspection
from phalanx.daemon.lifecycle import Readiness
from phalanx.daemon.node_load import NodeLoads
from phalanx.daemon.observer import Observer


class Observation(msgspec.Struct, frozen=True, eq=False):
    observer: Observer
    node_loads: NodeLoads
    readiness: Readiness
    inspection: Inspection


def build_observation(core: Core, writes: Writes, status: Publishers) -> Observation:
    wake, client = core.lifecycle.wake, writes.client

    def changed() -> None:
        wake.set()
        status.accounts.touch()

    observer = Observer(
        client,
        core.intake,
        core.state,
        changed=changed,
        pod_seen=core.parts.pod_seen,
        pod_gone=core.parts.pod_gone,
        gang_touched=core.parts.gang_touched,
        failures=core.failures,
        arrivals=core.telemetry.decisions.arrivals,
        discovered=status.endpoint.learn,
    )
    status.endpoint.outdated = observer.kinds.rediscover

    def needs_node_usage() -> bool:
        return any(entry.plugin.needs_node_usage for entry in core.policy.plugins)

    node_loads = NodeLoads(client, needs_node_usage, observer.apply_event, time.time)
    readiness = Readiness(core.lifecycle, writes.leadership, observer, core.policy_file)
    inspection = Inspection(
        client,
        core.state,
        lambda: core.scheduler,
        status.verdict_publisher.told_verdict,
        readiness.condition,
        readiness.checks,
        lambda: (core.options, core.policy_file.text),
        core.telemetry,
        lambda: observer.reflectors,
        writes.pool,
        writes.recorder,
        core.failures,
    )
    return Observation(observer, node_loads, readiness, inspection)
