"""Builder of the execution of plans: preparations, bindings, evictions, and the last checks before a binding."""

from __future__ import annotations

import math
import time

import msgspec

from phalanx.daemon.assembly.core import Core
from phalanx.daemon.assembly.status import Publishers
from phalanx.daemon.assembly.writes import Writes
from phalanx.daemon.eligibility import Eligibility
from phalanx.daemon.executor import Executor, already_condemned, gone_guard
from phalanx.daemon.hub_lease import HubLease
from phalanx.execution.binder import Binder, BindResult
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import Evictor, EvictResult
from phalanx.execution.preparation import Preparations
from phalanx.execution.preparation_handlers import preparation_handlers
from phalanx.execution.writes import PooledClient, Urgency
from phalanx.model.events import ProvisioningFailed


class Execution(msgspec.Struct, frozen=True, eq=False):
    executor: Executor
    preparations: Preparations
    evictor: Evictor
    hub_lease: HubLease


def build_execution(core: Core, writes: Writes, status: Publishers) -> Execution:
    state, client, pool, wake = core.state, writes.client, writes.pool, core.lifecycle.wake.set

    def bound(result: BindResult) -> None:
        state.pods.stories.now = time.time()
        core.telemetry.bound(result)
        executor.bound(result)

    def evicted(result: EvictResult) -> None:
        state.pods.stories.now = time.time()
        core.telemetry.evicted(result)
        executor.evicted(result)

    name = core.options.scheduler_names[0]
    evictor = Evictor(client, pool, time.time, scheduler=name, through=lambda: core.policy.evictions)
    evictor.says_so = already_condemned(state, name)
    nominated, conditions = core.telemetry.nominated, status.conditions
    disruptions = Disruptions(conditions, evictor, evicted, gone_guard(state), nominated, core.signer)

    def provisioning_failed(namespace: str, storage_class: str, node: str, size: int) -> None:
        state.apply(ProvisioningFailed(node, namespace, storage_class, size, math.ceil(time.time())))
        wake()

    preparations = Preparations(
        lambda report: Binder(client, pool, report, core.signer),
        bound,
        preparation_handlers(PooledClient(client, pool, Urgency.BIND), provisioning_failed),
        delayed=lambda bind, text: executor.delayed(bind, text),
    )
    eligibility = Eligibility(state, lambda: core.scheduler.placer)
    hub_lease = HubLease(client, core.options.lease_namespace, eligibility.since_now, wake)
    executor = Executor(
        state,
        preparations,
        disruptions,
        conditions,
        status.plan_publisher,
        guard=hub_lease.guard,
        wake=wake,
        failures=core.failures,
    )
    return Execution(executor, preparations, evictor, hub_lease)
