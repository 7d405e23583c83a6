"""Scheduler process: observe, plan, execute, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence

from phalanx.daemon.assembly.assemble import Assembly, assemble
from phalanx.daemon.assembly.registry import service_parts
from phalanx.daemon.endpoint import EndpointError
from phalanx.daemon.scheduler_options import SchedulerOptions as SchedulerOptions
from phalanx.daemon.service_part import Runs, ServicePart
from phalanx.daemon.service_part import ServiceError as ServiceError
from phalanx.daemon.standby import Standby
from phalanx.daemon.telemetry import Telemetry
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ConfigError
from phalanx.kube.failures import first_failure
from phalanx.kube.process import LeadingService
from phalanx.kube.retry import Backoff

log = logging.getLogger(__name__)

_STALE_PERIOD = 0.1
_FLUSH_SECONDS = 2.0

Registry = Callable[[Assembly], Sequence[ServicePart]]


class SchedulerService(LeadingService):
    """One scheduler over one API server. `run` returns after `stop`, or when the lease is lost.

    The service is the loop: wait for changes, plan, save, carry out. All else is a part of the `registry`, called
    at the hooks of `ServicePart`. `ready` is set while the loop runs.

    Raises PolicyError for a policy that cannot be used.
    """

    def __init__(
        self,
        client: KubeClient,
        options: SchedulerOptions,
        telemetry: Telemetry | None = None,
        registry: Registry = service_parts,
    ) -> None:
        self.assembly = assemble(client, options, telemetry or Telemetry())
        core, writes = self.assembly.core, self.assembly.writes
        super().__init__(writes.leadership)
        self.ready, self._stopping = core.lifecycle.ready, core.lifecycle.stopping
        self.options = options
        self.state, self.scheduler, self.telemetry = core.state, core.scheduler, core.telemetry
        self.observer = self.assembly.observation.observer
        self._lifecycle, self._failures, self._parts = core.lifecycle, core.failures, core.parts
        self._pool, self._recorder = writes.pool, writes.recorder
        self._executor = self.assembly.execution.executor
        self._publisher = self.assembly.status.plan_publisher
        self._parts.use(registry(self.assembly))
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

    def condition(self) -> str:
        """Return the readiness of the process in one word, "" before it is ready."""
        return self.assembly.observation.readiness.condition()

    def stop(self) -> None:
        """End `run` once the submitted writes are finished."""
        self._lifecycle.stop()

    async def run(self) -> None:
        """Serve until stopped. Raises ServiceError when a vital part fails; mistakes of the user are not logged."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start(Runs.ALWAYS)
                try:
                    await super().run()
                finally:
                    self._end_tasks()
        except BaseExceptionGroup as failures:
            cause = first_failure(failures)
            if isinstance(cause, ConfigError | EndpointError):
                raise ServiceError(str(cause)) from cause
            log.critical("the scheduler stops: %s: %s", type(cause).__name__, cause, exc_info=cause)
            raise ServiceError(f"{type(cause).__name__}: {cause}") from cause

    async def stand_by(self) -> None:
        """Return when this replica holds the lease and knows the whole cluster."""
        standby = Standby(
            self.assembly.writes.client,
            self.options.lease_namespace,
            self.leadership,
            self.observer,
            self.scheduler,
            self.assembly.core.signer,
            patience=self.options.retry_seconds,
        )
        await standby.leads(lambda: self._start(Runs.STANDBY))

    async def serve(self) -> None:
        """Load the stored state, start the parts of a leader, and schedule."""
        await self._parts.load()
        self._start(Runs.LEADING)
        checks = self._failures.keep_running("checks", lambda: self._parts.run_checks(self.leadership.holds))
        self._running += [self._tasks.create_task(checks), self._tasks.create_task(self._start_after_first_plan())]
        await self._schedule()

    def _start(self, runs: Runs) -> None:
        """Start the parts of the process that run from this time on."""
        self._running += self._parts.start(runs, self._tasks)

    async def _start_after_first_plan(self) -> None:
        await self._lifecycle.planned.wait()
        self._start(Runs.AFTER_FIRST_PLAN)

    def _end_tasks(self) -> None:
        for task in self._running:
            task.cancel()

    async def _schedule(self) -> None:
        """Run scheduling cycles whenever something has changed, until the process is stopped."""
        log.info(
            "synced: %d nodes, %d pods, %d gangs",
            len(self.state.nodes),
            len(self.state.pods),
            len(self.state.gangs),
        )
        self.ready.set()
        backoff, healthy = Backoff(base=0.5, cap=30.0), True
        while not self._lifecycle.stopping.is_set():
            await self._woken()
            await self._lifecycle.events_gathered()
            try:
                await self._plan()
                healthy = True
            except Exception as error:
                # A failed cycle does not end the process: all units are requeued, and the next cycle is delayed.
                self._failures.record_failure("cycle", "the cycle", error)
                self.scheduler.queue.activate_everything()
                backoff = backoff if not healthy else Backoff(base=0.5, cap=30.0)
                healthy = False
                await asyncio.sleep(backoff.next())
                self._lifecycle.wake.set()
            self._lifecycle.planned.set()

    async def _plan(self) -> None:
        """Run scheduling cycles until no gang or pod is left that a cycle could place."""
        self.scheduler.observe(time.time())
        self.scheduler.activate_due(time.time())
        self._publisher.publish_warnings(self._parts.warnings())
        while not self._lifecycle.stopping.is_set() and not self.scheduler.idle:
            if self.observer.fresh:
                self._cycle()
                self._lifecycle.planned.set()
                await asyncio.sleep(0)
            else:
                # A plan on a stale state could bind to nodes that are gone.
                await asyncio.sleep(_STALE_PERIOD)

    async def _woken(self) -> None:
        """Return when something has changed, or when the time of the next recheck has come."""
        alarm = self.scheduler.next_recheck
        # The core counts whole seconds: before the next one, a fractional alarm would find nothing due.
        alarm = math.ceil(alarm) if alarm is not None else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, alarm - time.time()) if alarm is not None else None):
                await self._lifecycle.wake.wait()

    def _cycle(self) -> None:
        """Plan one cycle, save the state of the parts, execute the plan, and record it."""
        started = time.perf_counter()
        deadline = started + self.scheduler.policy.cycle_budget
        asked = False

        def should_stop() -> bool:
            # The first unit is always tried, even if ordering has used up the budget: each cycle makes progress.
            nonlocal asked
            first, asked = not asked, True
            return not first and time.perf_counter() >= deadline

        plan = self.scheduler.cycle(time.time(), should_stop, self.telemetry.stages.begin_cycle())
        self.telemetry.stages.begin("execute")
        for failure in plan.failures:
            self._failures.record_failure(
                "plugin" if failure.plugin else "planning", failure.what, failure.why, failure.trace
            )
        # Before the plan is carried out: a restart in between must find the promises that the plan rests on.
        self._parts.save()
        self._executor.carry_out(plan)
        self._publisher.publish_warnings(self._parts.bind_warnings(plan.binds))
        self.telemetry.cycle(plan, time.perf_counter() - started, self.state, time.time())

    async def drain(self) -> None:
        """Finish the submitted writes, send the remaining events, and end the parts."""
        try:
            if self.leadership.holds():
                self._parts.save(last=True)
            self._parts.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pool.finish(), self.options.drain_seconds)
            if self.leadership.holds():
                await self._recorder.drain(_FLUSH_SECONDS)
            unfinished = len(self._pool) + self._pool.dropped
            if unfinished:
                log.warning("stopped with %d unfinished writes; the next start repeats them", unfinished)
        finally:
            self._end_tasks()

    async def close(self) -> None:
        await self._pool.close()

    def lease_lost(self) -> None:
        self._parts.lease_lost()
        self.stop()
