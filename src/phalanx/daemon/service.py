"""The scheduler as a service: observe, plan, act, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable
from pathlib import Path

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.executor import Executor
from phalanx.daemon.group_status import GroupStatuses
from phalanx.daemon.leadership import Leadership
from phalanx.daemon.narrator import Narrator
from phalanx.daemon.observer import Observer
from phalanx.daemon.partial import PartialGangs
from phalanx.daemon.telemetry import Telemetry
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.execution.binder import Binder, BindResult
from phalanx.execution.conditions import PodConditions
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.events import EventRecorder
from phalanx.model.decisions import Bind
from phalanx.scheduling.errors import PolicyError
from phalanx.scheduling.policy import Policy, load_policy
from phalanx.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

# Events that arrive together are planned together: a gang's pods come in one burst.
_GATHER = 0.01
_POLICY_PERIOD = 1.0
_TIMEOUT_PERIOD = 1.0


class ServiceOptions(msgspec.Struct, frozen=True):
    """`config` is the path of a policy file, "" for the built-in policy."""

    scheduler_names: tuple[str, ...] = ("phalanx",)
    config: str = ""
    concurrency: int = 64
    leader_elect: bool = False
    lease_namespace: str = "kube-system"
    lease_name: str = "phalanx-scheduler"
    metrics_address: str = ""
    drain_seconds: float = 10.0


class SchedulerService:
    """One scheduler over one API server. `run` ends when `stop` is called or leadership is lost."""

    def __init__(self, client: KubeClient, options: ServiceOptions) -> None:
        self.options = options
        self._client = client
        self._policy_text, self.policy = read_policy(options.config)
        for sentence in self.policy.inactive:
            log.warning("policy: %s", sentence)
        self.state = ClusterState(options.scheduler_names)
        self.scheduler = Scheduler(self.state, self.policy)
        self.telemetry = Telemetry(options.metrics_address)
        self._intake = Intake(options.scheduler_names, dialect_options(self.policy))
        self._pool = WritePool(options.concurrency)
        name = options.scheduler_names[0]
        self._recorder = EventRecorder(client, controller=name, instance=f"{name}-{socket.gethostname()}")
        lease = options.lease_name if options.leader_elect else ""
        self._leadership = Leadership(client.config, options.lease_namespace, lease)
        self._binder = Binder(client, self._pool, self._bound, guard=self._guard)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        narrator = Narrator(self._recorder, self.state)
        self.executor = Executor(self.state, self._binder, PodConditions(client, self._pool, time.time), narrator)
        self.executor.statuses = GroupStatuses(
            client,
            self._pool,
            self.state,
            self._intake,
            self.executor.verdict,
            time.time,
            dialect_options(self.policy),
            self._leadership.holds,
        )
        self.executor.wake = self._wake.set
        self.observer = Observer(
            client,
            self._intake,
            self.state,
            changed=self._wake.set,
            pod_seen=self.executor.pod_seen,
            pod_gone=self.executor.pod_gone,
            gang_touched=self.executor.gang_touched,
        )
        self._partial = PartialGangs(client, self._pool, self.state, narrator, time.time)
        self.ready = asyncio.Event()
        self.lost_leadership = False

    def pending(self) -> tuple[int, int]:
        """(gangs, pods on their own) that wait."""
        return sum(1 for gang in self.state.gangs.values() if gang.pending), len(self.state.lone)

    def stop(self) -> None:
        """Ends `run` after the writes under way have been drained."""
        self._stopping.set()
        self._wake.set()

    def _lost(self) -> None:
        self.lost_leadership = True
        self.stop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self.observer.run()),
                tasks.create_task(self._recorder.run()),
                tasks.create_task(self._leadership.run(self._lost)),
                tasks.create_task(self._follow_policy()),
                tasks.create_task(self._watch_timeouts()),
                tasks.create_task(self.telemetry.serve(self)),
            ]
            try:
                await self._schedule()
            finally:
                await self._drain()
                for task in background:
                    task.cancel()

    async def _schedule(self) -> None:
        """Plans whenever something has changed, once everything is known."""
        await self._first(self.observer.synced())
        await self._first(self._leadership.acquired())
        if self._stopping.is_set():
            return
        self.ready.set()
        log.info(
            "synced: %d nodes, %d pods, %d gangs",
            len(self.state.nodes),
            len(self.state.pods),
            len(self.state.gangs),
        )
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(_GATHER)
            self.executor.tell(self._intake.drain_notices())
            while not self._stopping.is_set() and self.observer.fresh and not self.scheduler.idle:
                self._cycle()
                await asyncio.sleep(0)
            if not self.observer.fresh and not self.scheduler.idle:
                # Nothing is planned on stale knowledge; look again soon.
                asyncio.get_running_loop().call_later(0.5, self._wake.set)

    def _cycle(self) -> None:
        started = time.perf_counter()
        deadline = started + self.policy.cycle_budget
        plan = self.scheduler.cycle(time.time(), lambda: time.perf_counter() >= deadline)
        self.executor.carry_out(plan)
        self.telemetry.cycle(plan, time.perf_counter() - started)

    async def _first(self, wanted: Awaitable[object]) -> None:
        """Waits for something or for the order to stop, whichever comes first."""
        waiting = [asyncio.ensure_future(wanted), asyncio.ensure_future(self._stopping.wait())]
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    async def _drain(self) -> None:
        """Bindings that were posted get their answers; then the pool is closed and events flushed."""
        try:
            await asyncio.wait_for(self._pool.drained(), self.options.drain_seconds)
        except TimeoutError:
            log.warning("stopped with %d writes left undone", len(self._pool))
        await self._pool.close()
        await self._recorder.drain(2.0)

    def _bound(self, result: BindResult) -> None:
        self.telemetry.bound(result)
        self.executor.bound(result)

    def _guard(self, bind: Bind) -> str | None:
        if not self._leadership.holds():
            return "leadership was lost"
        row = self.state.nodes.row(bind.node)
        if row < 0:
            return f"node {bind.node} is gone"
        return None

    async def _follow_policy(self) -> None:
        """Takes a changed policy file at once; a bad one is reported and the old policy stays."""
        if not self.options.config:
            return
        while True:
            await asyncio.sleep(_POLICY_PERIOD)
            try:
                text, policy = read_policy(self.options.config)
            except PolicyError as error:
                if (broken := str(error)) != self.telemetry.policy_error:
                    log.error("the policy file is not used, the old policy stays:\n%s", broken)
                    self.telemetry.policy_error = broken
                continue
            self.telemetry.policy_error = ""
            if text != self._policy_text:
                self._policy_text, self.policy = text, policy
                self.scheduler.use(policy)
                for sentence in policy.inactive:
                    log.warning("policy: %s", sentence)
                log.info("policy reloaded from %s", self.options.config)
                self._wake.set()

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(_TIMEOUT_PERIOD)
            if self.ready.is_set() and self._leadership.holds():
                self._partial.check(self.policy.partial_gang)


def read_policy(path: str) -> tuple[str, Policy]:
    """(text, policy) of a file, or of the built-in policy for "". Raises PolicyError."""
    if not path:
        return "", load_policy()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {error}") from error
    policy = load_policy(text, path)
    dialect_options(policy)
    return text, policy


def dialect_options(policy: Policy) -> DialectOptions:
    try:
        return msgspec.convert(dict(policy.dialects), DialectOptions)
    except msgspec.ValidationError as error:
        raise PolicyError(f"phalanx.dialects: {error}") from error
