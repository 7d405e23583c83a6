"""The scheduler as a service: observe, plan, act, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.advance_reservations import AdvanceReservationStatuses
from phalanx.daemon.controllers.builtin_queues import BuiltinQueues
from phalanx.daemon.controllers.defragmentation_record import DefragmentationRecord
from phalanx.daemon.controllers.generated_pod_groups import GeneratedPodGroups
from phalanx.daemon.controllers.leftover_evictions import LeftoverEvictions
from phalanx.daemon.controllers.maintenance_windows import MaintenanceWindows
from phalanx.daemon.controllers.partial_gangs import PartialGangs
from phalanx.daemon.controllers.policy_record import PolicyRecord
from phalanx.daemon.controllers.queue_gates import QueueGates
from phalanx.daemon.controllers.reservation_record import ReservationRecord
from phalanx.daemon.controllers.run_time_exceeded import RunTimeExceeded
from phalanx.daemon.controllers.usage_record import UsageRecord
from phalanx.daemon.eligibility import Eligibility
from phalanx.daemon.endpoint import STOPPING, EndpointError
from phalanx.daemon.executor import Executor, already_condemned, gone_guard
from phalanx.daemon.extender_calls import connect_extenders
from phalanx.daemon.hub_lease import HubLease
from phalanx.daemon.inspection import Inspection
from phalanx.daemon.kubelet_rejections import KubeletRejections
from phalanx.daemon.node_load import NodeLoads
from phalanx.daemon.observer import Observer
from phalanx.daemon.policy_file import PolicyFile
from phalanx.daemon.provisioning_troubles import ProvisioningTroubles
from phalanx.daemon.scheduler_options import SchedulerOptions as SchedulerOptions
from phalanx.daemon.standby import Standby
from phalanx.daemon.telemetry import Telemetry
from phalanx.dialects.core import PodObject
from phalanx.dialects.intake import Intake
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.execution.binder import Binder, BindResult
from phalanx.execution.conditions import PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import Evictor, EvictResult
from phalanx.execution.preparation import Preparations
from phalanx.execution.preparation_handlers import preparation_handlers
from phalanx.execution.writes import PooledClient, Urgency, WritePool
from phalanx.kube.api_server import until_reachable
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ConfigError
from phalanx.kube.events import EventRecorder
from phalanx.kube.failures import Failures, first_failure
from phalanx.kube.leadership import Leadership, LeaseOptions, unless_stopped
from phalanx.kube.own_objects import name_prefix
from phalanx.kube.retry import Backoff
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.features.rejecting_nodes import RejectingNodes
from phalanx.scheduling.features.run_time_limits import KILL
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import StartReservations
from phalanx.status.account_status import AccountStatuses
from phalanx.status.composite_status import CompositeStatuses
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.eviction_events import EvictionEvents
from phalanx.status.group_status import GroupStatuses
from phalanx.status.plan_publisher import PlanPublisher
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.verdict_publisher import VerdictPublisher
from phalanx.status.warnings.distrusted_devices import DEVICE_RESULTS, DistrustedDevices
from phalanx.status.warnings.ignored_protection import ignored_protection
from phalanx.status.warnings.ignored_quota_labels import ignored_quota_labels
from phalanx.status.warnings.lost_members import LostMembers
from phalanx.status.warnings.network_faults import NetworkFaults

log = logging.getLogger(__name__)

# Events that arrive together are planned together: a gang's pods come in one burst.
_GATHER = 0.01
_STALE_PERIOD = 0.1
_POLICY_PERIOD = 1.0
_CHECK_PERIOD = 1.0
_TIMEOUT_PERIOD = 1.0
_FLUSH_SECONDS = 2.0
_MOST_COMPLAINTS = 1000


class ServiceError(Exception):
    """A part of the service failed; nothing goes on without it."""


class SchedulerService:
    """One scheduler over one API server. `run` ends when `stop` is called or leadership is lost.

    Raises PolicyError for a policy that cannot be used. `ready` is set once it has seen the whole cluster and
    schedules.
    """

    def __init__(self, client: KubeClient, options: SchedulerOptions, telemetry: Telemetry | None = None) -> None:
        self.options = options
        self._wake = asyncio.Event()
        self._planned = asyncio.Event()
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self._policy = PolicyFile(options.config, self._use)
        connect_extenders(self._policy.policy)
        self.state = ClusterState(options.scheduler_names)
        self._network_faults = NetworkFaults(self.state.topology)
        self.scheduler = Scheduler(self.state, self._policy.policy)
        self.telemetry = telemetry or Telemetry()
        self._signer = Signer()
        self._distrusted: set[tuple[str, str]] = set()
        self._failures = Failures(self.telemetry.failed)
        self._intake = Intake(
            options.scheduler_names, self._policy.dialects, self._signer, self._distrust, installed_dialects()
        )
        self.telemetry.priority_class_of = self._intake.group_objects.priority_class_of
        self.scheduler.cycle_history.searches = self.telemetry.eviction_searches
        self._distrusted_devices = DistrustedDevices(self.state, lambda: self.telemetry.distrusted(DEVICE_RESULTS))
        lease = LeaseOptions(
            options.lease_namespace,
            options.lease_name,
            options.lease_seconds,
            options.renew_seconds,
            options.retry_seconds,
        )
        self.leadership = Leadership(client, lease if options.leader_elect else None)
        # Nothing that changes a thing goes out without the lease; what is asked about the cluster does.
        client = self._client = client.fenced(self.leadership.holds)
        self._pool = WritePool(options.concurrency, self.leadership.holds, self._failures)
        client.throttled = self._pool.slow_down
        name = options.scheduler_names[0]
        news = PooledClient(client, self._pool, Urgency.EVENT)
        self._recorder = EventRecorder(news, controller=name, instance=f"{name}-{socket.gethostname()}")
        conditions = PodConditions(client, self._pool, time.time)
        event_publisher = EventPublisher(self._recorder, self.state, self._intake.dialects)
        self._lost_members = LostMembers(self.state, self._recorder, self._intake.dialects)
        endpoint = StatusEndpoint(client, self._recorder, self.telemetry.status_refused)
        statuses = GroupStatuses(
            endpoint,
            self._pool,
            self.state,
            self._intake,
            self._verdict,
            time.time,
            self._policy.dialects,
            wrote=self._lost_members.status_written,
        )
        composites = CompositeStatuses(
            endpoint, self._pool, self.state, self._intake, self._verdict, time.time, statuses.disruption
        )
        self._groups_told = (statuses.touch, composites.touch)
        evictor = Evictor(client, self._pool, time.time, scheduler=name, through=lambda: self.policy.evictions)
        evictor.says_so = already_condemned(self.state, name)
        disruptions = Disruptions(
            conditions, evictor, self._evicted, gone_guard(self.state), self.telemetry.nominated
        )
        troubles = ProvisioningTroubles(self.state, self._wake.set)
        self._preparations = Preparations(
            lambda report: Binder(client, self._pool, report, self._signer),
            self._bound,
            preparation_handlers(PooledClient(client, self._pool, Urgency.BIND), troubles.provisioning_failed),
        )
        self._verdict_publisher = VerdictPublisher(
            self.state, conditions, event_publisher, self._publish_group, pace=options.pace, failures=self._failures
        )
        self._publisher = PlanPublisher(
            self.state,
            event_publisher,
            EvictionEvents(self._recorder, self.state),
            self._verdict_publisher,
            statuses,
            self._failures,
        )
        guard = Eligibility(self.state, lambda: self.scheduler.placer).since_now
        self._hub_lease = HubLease(client, options.lease_namespace, guard, self._wake.set)
        self.executor = Executor(
            self.state,
            self._preparations,
            disruptions,
            conditions,
            self._publisher,
            guard=self._hub_lease.guard,
            wake=self._wake.set,
            failures=self._failures,
        )
        self._accounts = AccountStatuses(
            endpoint, self._pool, self.state, self._intake, self._recorder, failures=self._failures
        )
        self._refusals = KubeletRejections(self.state, self._refused)
        self.observer = Observer(
            client,
            self._intake,
            self.state,
            changed=self._changed,
            pod_seen=self._pod_seen,
            pod_gone=self._pod_gone,
            gang_touched=self._gang_touched,
            failures=self._failures,
            arrivals=self.telemetry.decisions.arrivals,
            discovered=endpoint.learn,
        )
        endpoint.outdated = self.observer.kinds.rediscover
        self._node_loads = NodeLoads(client, self._minds_load, self.observer.apply_event, time.time)
        self._generated_pod_groups = GeneratedPodGroups(
            client,
            self._pool,
            self.state,
            self._intake,
            lambda: self.observer.kinds.readable("podgroups"),
            lambda: self.policy.create_pod_groups,
        )
        self._queue_gates = QueueGates(
            client, self._pool, self.state, lambda: self.scheduler.new_session(time.time())
        )
        self._builtin_queues = BuiltinQueues(client, self._pool, self.observer.kinds, self._intake)
        place, prefix = options.lease_namespace, name_prefix(options.scheduler_names)
        self._usage = UsageRecord(client, self._pool, place, self.scheduler.history, time.time, prefix=prefix)
        # Where the registry leaves a feature out, these stand beside the cycle and nothing happens to them.
        features = self.scheduler.features
        self._starts = features.get(StartReservations) or StartReservations(self.state, self.scheduler.queue)
        defragmentation = features.get(Defragmentation) or Defragmentation()
        self._reservations = ReservationRecord(
            client, self._pool, place, self._starts.promised, self._starts.observed_starts, prefix=prefix
        )
        self._defragmentation = DefragmentationRecord(
            client, self._pool, place, defragmentation, self._wake.set, time.time, prefix=prefix
        )
        self._policy_record = PolicyRecord(
            client, self._pool, place, lambda: self._policy.text, scheduler_names=options.scheduler_names
        )
        self._partial = PartialGangs(self.state, event_publisher, self.executor.evict, time.time)
        self._exceeded = RunTimeExceeded(
            self.state, event_publisher, self.telemetry.run_time_exceeded, self._publish_group, time.time
        )
        holds, knows_all, now = self._reservations.holds, self.observer.kinds.knows_all, time.time
        self._maintenance = MaintenanceWindows(
            client, endpoint, self._pool, self.state, self._intake, event_publisher, knows_all, now
        )
        self._advance = AdvanceReservationStatuses(
            endpoint, self._pool, self._intake, event_publisher, self._starts.advance_grants, holds, now
        )
        self._leftover_evictions = LeftoverEvictions(self.state, self.executor.evict, evictor.withdraw, time.time)
        keepers = (self._generated_pod_groups, self._queue_gates, self._hub_lease, self._leftover_evictions)
        self._pods_seen_by = [part.pod_seen for part in (self._refusals, self.executor, *keepers)]
        self._pods_gone_by = [part.pod_gone for part in (self.executor, self.telemetry, self._publisher, *keepers)]
        self._inspection = Inspection(
            *(client, self.state, lambda: self.scheduler, self._verdict, self.condition, self._checks),
            *(self._settings, self.telemetry, lambda: self.observer.reflectors, self._pool, self._recorder),
            self._failures,
        )

    @property
    def policy(self) -> Policy:
        return self._policy.policy

    def _pod_seen(self, pod: PodObject) -> None:
        for seen in self._pods_seen_by:
            seen(pod)
        if pod.spec.scheduler_name in self.options.scheduler_names:
            self.telemetry.pod_seen(pod)

    def _pod_gone(self, uid: str) -> None:
        for gone in self._pods_gone_by:
            gone(uid)

    def _distrust(self, key: str, namespace: str, name: str) -> None:
        self.telemetry.distrusted(key)
        # One line a namespace: whoever copies a thousand pods need not fill the log.
        if (key, namespace) not in self._distrusted and len(self._distrusted) < _MOST_COMPLAINTS:
            self._distrusted.add((key, namespace))
            log.warning("pod %s/%s: annotation %s was not written for it by us: ignored", namespace, name, key)

    def _refused(self, node: str, reason: str) -> None:
        self.telemetry.refused_by_kubelet(reason)
        if (nodes := self.scheduler.features.get(RejectingNodes)) is not None:
            nodes.rejected(node, time.time())

    def _minds_load(self) -> bool:
        """Whether it matters to the policy what nodes really use."""
        return any(entry.plugin.needs_node_usage for entry in self.policy.plugins)

    def condition(self) -> str:
        """What a readiness probe may know: "" while it is not ready, else one word.

        A standby is ready once it has seen the cluster: one that may not read it must not replace one that can.
        An outage of the API server (`fresh`) changes nothing about it: no restart would help against that.
        """
        if self._stopping.is_set() or (self.ready.is_set() and not self.leadership.holds()):
            return STOPPING
        able = "scheduling" if self.ready.is_set() else "standby"
        return able if self._has_synced() else ""

    def _has_synced(self) -> bool:
        return self.ready.is_set() or (self.observer.complete and not self.leadership.holds())

    def _checks(self) -> dict[str, bool]:
        """What is told with the condition. Only `synced` has a part in it, and says the same."""
        return {
            "leader": self.leadership.holds(),
            "synced": self._has_synced(),
            "fresh": self.observer.fresh,
            "policy": not self._policy.problem,
        }

    def _settings(self) -> tuple[SchedulerOptions, str]:
        """What it was started with, and the text of the policy in force."""
        return self.options, self._policy.text

    def stop(self) -> None:
        """Ends `run` after the writes under way have been drained."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Raises ServiceError when a part of the service fails; logged with its cause, but for plain mistakes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks)
        except BaseExceptionGroup as failures:
            cause = first_failure(failures)
            if isinstance(cause, ConfigError | EndpointError):
                raise ServiceError(str(cause)) from cause
            log.critical("the scheduler stops: %s: %s", type(cause).__name__, cause, exc_info=cause)
            raise ServiceError(f"{type(cause).__name__}: {cause}") from cause

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        keep_running = self._failures.keep_running
        parts = [
            keep_running("event recorder", self._recorder.run),
            keep_running("policy file", self._reload_policy),
            self.telemetry.serve(self._inspection),
            keep_running("verdict publisher", self._verdict_publisher.run),
        ]
        background = [tasks.create_task(part) for part in parts]
        try:
            # Whoever is not reachable need not be asked by ten watchers, each with a log line of its own.
            if not await unless_stopped(self._stopping, until_reachable(self._client)):
                return
            background.append(tasks.create_task(self.leadership.run(self.stop)))
            standby = Standby(
                self._client,
                self.options.lease_namespace,
                self.leadership,
                self.observer,
                self.scheduler,
                self._signer,
                patience=self.options.retry_seconds,
            )
            if not await unless_stopped(self._stopping, standby.leads(tasks, background)):
                return
            if not await unless_stopped(self._stopping, self._load_memory()):
                return
            background += [
                tasks.create_task(keep_running("usage record", self._usage.run)),
                tasks.create_task(keep_running("node loads", self._node_loads.run)),
                tasks.create_task(keep_running("hub lease", self._hub_lease.run)),
                tasks.create_task(keep_running("timeouts", self._watch_timeouts)),
                tasks.create_task(keep_running("account statuses", self._publish_all)),
            ]
            if self.options.self_check:
                background.append(tasks.create_task(self._check_ledger()))
            await self._schedule()
        finally:
            self.ready.clear()
            await self._drain()
            for task in background:
                task.cancel()

    async def _load_memory(self) -> None:
        """What an earlier process, or the leader before us, has counted, promised and held goes on."""
        self.state.pods.load_nominations()
        await self._usage.load()
        self._starts.load(*await self._reservations.load())
        await self._defragmentation.load()
        await self._policy_record.load()

    async def _schedule(self) -> None:
        """Plans whenever something has changed."""
        log.info(
            "synced: %d nodes, %d pods, %d gangs",
            len(self.state.nodes),
            len(self.state.pods),
            len(self.state.gangs),
        )
        self.ready.set()
        backoff, healthy = Backoff(base=0.5, cap=30.0), True
        while not self._stopping.is_set():
            await self._woken()
            self._wake.clear()
            await asyncio.sleep(_GATHER)
            try:
                await self._plan()
                healthy = True
            except Exception as error:
                # Whatever it is, it must not end what can go on; what waits is looked at anew, but in no hurry.
                self._failures.record_failure("cycle", "the cycle", error)
                self.scheduler.queue.activate_everything()
                backoff = backoff if not healthy else Backoff(base=0.5, cap=30.0)
                healthy = False
                await asyncio.sleep(backoff.next())
                self._wake.set()
            self._planned.set()

    async def _publish_all(self) -> None:
        """Compares what all objects say with the truth, behind the first cycle: who waits is bound first."""
        await self._planned.wait()
        self._policy_record.save()
        await self.observer.publish_gangs()
        await self._accounts.run()

    async def _plan(self) -> None:
        """Plans until there is nothing more to do."""
        self.scheduler.observe(time.time())
        self.scheduler.activate_due(time.time())
        news = [*self._network_faults.new_warnings(), *self._distrusted_devices.new_warnings()]
        self._publisher.publish_warnings([*self._intake.drain_warnings(), *news])
        while not self._stopping.is_set() and not self.scheduler.idle:
            if self.observer.fresh:
                self._cycle()
                self._planned.set()
                await asyncio.sleep(0)
            else:
                # Nothing is planned on stale knowledge.
                await asyncio.sleep(_STALE_PERIOD)

    async def _check_ledger(self) -> None:
        """Ends the service when the books do not agree with the pods."""
        checked = -1
        while True:
            await asyncio.sleep(_CHECK_PERIOD)
            if checked == self.state.version:
                continue
            checked = self.state.version
            wrong = list(self.state.ledger.discrepancies(self.state.pods.values()))
            for sentence in wrong:
                log.critical("self-check: %s", sentence)
            self.telemetry.self_check_failed(len(wrong))
            if wrong:
                raise ServiceError(f"self-check: {len(wrong)} accounts differ from what their pods say")

    async def _woken(self) -> None:
        """Returns when something has changed, or when something that waits for a time must be looked at."""
        alarm = self.scheduler.next_recheck
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, alarm - time.time()) if alarm is not None else None):
                await self._wake.wait()

    def _cycle(self) -> None:
        started = time.perf_counter()
        deadline = started + self.policy.cycle_budget
        asked = False

        def should_stop() -> bool:
            # The first unit has its turn even where ordering took all the time: each cycle gets on.
            nonlocal asked
            first, asked = not asked, True
            return not first and time.perf_counter() >= deadline

        plan = self.scheduler.cycle(time.time(), should_stop, self.telemetry.stages.begin_cycle())
        self.telemetry.stages.begin("execute")
        for failure in plan.failures:
            self._failures.record_failure(
                "plugin" if failure.plugin else "planning", failure.what, failure.why, failure.trace
            )
        self._reservations.save()
        self._defragmentation.save()
        self.executor.carry_out(plan)
        self._publisher.publish_warnings(ignored_protection(self.state, plan.binds, self.policy.self_protection))
        self._publisher.publish_warnings(ignored_quota_labels(self.state, plan.binds))
        self.telemetry.cycle(plan, time.perf_counter() - started, self.state, time.time())

    async def _drain(self) -> None:
        """Bindings that were posted get their answers and events are flushed; then the pool is closed."""
        if self.leadership.holds():
            self._usage.save(last=True)
        with contextlib.suppress(TimeoutError):
            self._preparations.stop()
            await asyncio.wait_for(self._pool.finish(), self.options.drain_seconds)
        if self.leadership.holds():
            await self._recorder.drain(_FLUSH_SECONDS)
        left = len(self._pool) + self._pool.dropped
        if left:
            log.warning("stopped with %d writes left undone; the next start makes up for them", left)
        await self._pool.close()

    def _changed(self) -> None:
        self._wake.set()
        self._accounts.touch()

    def _publish_group(self, key: GangKey) -> None:
        """Looks again at what the objects say that a gang and its composites come from."""
        for tell in (*self._groups_told, self._inspection.gang_told):
            tell(key)

    def _gang_touched(self, key: GangKey) -> None:
        self._publisher.gang_touched(key)
        self._groups_told[1](key)
        self._accounts.gang_touched(key)
        self._generated_pod_groups.touch(key)
        self._lost_members.touch(key)

    def _verdict(self, key: GangKey) -> Verdict | None:
        return self._verdict_publisher.told_verdict(key)

    def _bound(self, result: BindResult) -> None:
        self.state.pods.stories.now = time.time()
        self.telemetry.bound(result)
        self.executor.bound(result)

    def _evicted(self, result: EvictResult) -> None:
        self.state.pods.stories.now = time.time()
        self.telemetry.evicted(result)
        self.executor.evicted(result)

    def _use(self, policy: Policy) -> None:
        connect_extenders(policy)
        self.scheduler.use(policy)
        for event in self._intake.enforce_run_times(policy.exceeded_run_times == KILL):
            self.observer.apply_event(event)
        self._wake.set()

    async def _reload_policy(self) -> None:
        while self.options.config:
            await asyncio.sleep(_POLICY_PERIOD)
            self._policy.reload_if_changed()

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(_TIMEOUT_PERIOD)
            if self.leadership.holds():
                guard = self._failures.guard
                guard("task", "partial gangs", lambda: self._partial.check(self.policy.partial_gang))
                guard("task", "run times", lambda: self._exceeded.check(self.policy.exceeded_run_times))
                guard("task", "maintenance", self._maintenance.check)
                guard("task", "advance reservations", self._advance.check)
                guard("task", "leftover evictions", self._leftover_evictions.check)
                guard("task", "built-in queues", self._builtin_queues.check)
                guard("task", "PodGroups for labels", self._generated_pod_groups.check)
                guard("task", "queue allocation gates", self._queue_gates.check)
                guard("task", "policy record", self._policy_record.save)
