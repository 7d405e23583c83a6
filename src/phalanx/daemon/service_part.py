"""Parts of the scheduler process: the hooks of one part, and the calls of all parts in their order."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.warnings import ObjectWarning
from phalanx.kube.failures import Failures
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey
from phalanx.scheduling.framework.policy import Policy

# Seconds between two calls of the `check` hooks.
_CHECK_PERIOD = 1.0


class ServiceError(Exception):
    """Failure of a part without which the scheduler process cannot continue."""


class Runs(enum.Enum):
    """Time from which the task of a part runs; every task ends with the process."""

    #: From the start of the process, also while the API server is unreachable.
    ALWAYS = "always"
    #: From the first read of the cluster, with or without the lease. The signing keys are known by then.
    STANDBY = "standby"
    #: From the time when this replica holds the lease, knows the whole cluster and has called every `load`.
    LEADING = "leading"
    #: From the end of the first cycle: bindings are written before anything that can wait.
    AFTER_FIRST_PLAN = "after the first plan"


class ServicePart(msgspec.Struct, frozen=True, eq=False):
    """Hooks of one part of the scheduler process; None for a hook that the part does not need.

    The fields are in the order in which a process first calls them. For each hook, parts are called in the order of
    `daemon/assembly/registry.py`. A hook that raises is logged once, counted, and harms only its own part, except
    `load` and `policy_changed`. A part holds its own state; the process knows nothing of it but these hooks.
    """

    #: Name in the log, unique in the process.
    name: str
    runs: Runs = Runs.LEADING
    #: Task of the part, from `runs` until it returns or is cancelled. It is started again after a failure.
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    #: A failure of `run` ends the process.
    vital: bool = False
    #: Called with each version of a pod before the state takes it in, on a standby too.
    pod_seen: Callable[[PodObject], None] | None = None
    #: Called with the uid of a deleted pod after the state has removed it, on a standby too.
    pod_gone: Callable[[str], None] | None = None
    #: Restore what an earlier leader has stored, before the first cycle. A failure ends the process: a plan without
    #: the promises of the earlier leader would break them.
    load: Callable[[], Awaitable[None]] | None = None
    #: Return new warnings about objects, when something has changed, before the cycles that follow from it.
    warnings: Callable[[], Iterable[ObjectWarning]] | None = None
    #: Submit the writes of changed state, before each plan is carried out. The argument is True in the last call,
    #: when the process ends and still holds the lease. Nothing is saved before everything is loaded.
    save: Callable[[bool], None] | None = None
    #: Return warnings about the pods of a plan that has been carried out.
    bind_warnings: Callable[[Sequence[Bind]], Iterable[ObjectWarning]] | None = None
    #: Called when members, declaration or status of a gang have changed; after the first plan once with every gang.
    gang_touched: Callable[[GangKey], None] | None = None
    #: Called when the verdict that is published about a gang has changed.
    verdict_published: Callable[[GangKey], None] | None = None
    #: Called once a second while this replica leads.
    check: Callable[[], None] | None = None
    #: Adapt to a policy. An exception rejects it: the policy file puts the last policy back in force.
    policy_changed: Callable[[Policy], None] | None = None
    #: Called when the lease is lost, before the process ends. No write is sent any more.
    lease_lost: Callable[[], None] | None = None
    #: Cancel the tasks that a restart resumes, when the process ends and before the submitted writes are finished.
    drain: Callable[[], None] | None = None


class ServiceParts:
    """Caller of the hooks of all parts. Builders pass its methods as callbacks before the parts are known."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._parts: tuple[ServicePart, ...] = ()
        # The hooks that are called for each pod and gang of the cluster.
        self._pod_seen: list[tuple[str, Callable[[PodObject], None]]] = []
        self._pod_gone: list[tuple[str, Callable[[str], None]]] = []
        self._gang_touched: list[tuple[str, Callable[[GangKey], None]]] = []
        self._verdict_published: list[tuple[str, Callable[[GangKey], None]]] = []
        self._loaded = False

    def use(self, parts: Sequence[ServicePart]) -> None:
        """Set the parts of the process, in the order in which they are called."""
        if len({part.name for part in parts}) < len(parts):
            raise ValueError("two parts have the same name")
        self._parts = tuple(parts)
        self._pod_seen = [(part.name, part.pod_seen) for part in parts if part.pod_seen is not None]
        self._pod_gone = [(part.name, part.pod_gone) for part in parts if part.pod_gone is not None]
        self._gang_touched = [(part.name, part.gang_touched) for part in parts if part.gang_touched is not None]
        self._verdict_published = [
            (part.name, part.verdict_published) for part in parts if part.verdict_published is not None
        ]

    def start(self, runs: Runs, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the tasks of the parts that run from this time on."""
        started = []
        for part in self._parts:
            if part.run is not None and part.runs is runs:
                running = part.run() if part.vital else self._failures.keep_running(part.name, part.run)
                started.append(tasks.create_task(running))
        return started

    async def load(self) -> None:
        """Call the `load` hooks, which load stored state, one after the other. An exception of a part is raised."""
        for part in self._parts:
            if part.load is not None:
                await part.load()
        self._loaded = True

    def pod_seen(self, pod: PodObject) -> None:
        for name, call in self._pod_seen:
            try:
                call(pod)
            except Exception as error:
                about = f"{name}: Pod {pod.metadata.namespace}/{pod.metadata.name}"
                self._failures.record_failure("executor", about, error)

    def pod_gone(self, uid: str) -> None:
        for name, call in self._pod_gone:
            try:
                call(uid)
            except Exception as error:
                self._failures.record_failure("executor", f"{name}: Pod {uid}", error)

    def gang_touched(self, key: GangKey) -> None:
        for name, call in self._gang_touched:
            try:
                call(key)
            except Exception as error:
                self._failures.record_failure("status", f"{name}: gang {key}", error)

    def verdict_published(self, key: GangKey) -> None:
        for name, call in self._verdict_published:
            self._guard("status", f"{name}: gang {key}", call, key)

    def policy_changed(self, policy: Policy) -> None:
        """Call the `policy_changed` hooks with a policy that comes into force. An exception of a part is raised."""
        for part in self._parts:
            if part.policy_changed is not None:
                part.policy_changed(policy)

    def warnings(self) -> list[ObjectWarning]:
        """Return the new warnings of all parts about objects."""
        warnings: list[ObjectWarning] = []
        for part in self._parts:
            if part.warnings is not None:
                try:
                    warnings += part.warnings()
                except Exception as error:
                    self._failures.record_failure("status", part.name, error)
        return warnings

    def bind_warnings(self, binds: Sequence[Bind]) -> list[ObjectWarning]:
        """Return the warnings of all parts about pods that a plan binds."""
        warnings: list[ObjectWarning] = []
        for part in self._parts:
            if part.bind_warnings is not None:
                try:
                    warnings += part.bind_warnings(binds)
                except Exception as error:
                    self._failures.record_failure("status", part.name, error)
        return warnings

    def save(self, *, last: bool = False) -> None:
        """Call the `save` hooks; do nothing before `load` has returned, or empty state would replace the stored."""
        for part in self._parts if self._loaded else ():
            if part.save is not None:
                self._guard("task", part.name, part.save, last)

    async def run_checks(self, leads: Callable[[], bool]) -> None:
        """Call the `check` hooks once a second while this replica `leads`, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_PERIOD)
            if leads():
                self.check()

    def check(self) -> None:
        for part in self._parts:
            if part.check is not None:
                self._guard("task", part.name, part.check)

    def lease_lost(self) -> None:
        for part in self._parts:
            if part.lease_lost is not None:
                self._guard("task", part.name, part.lease_lost)

    def drain(self) -> None:
        for part in self._parts:
            if part.drain is not None:
                self._guard("task", part.name, part.drain)

    def _guard(self, label: str, what: str, call: Callable[..., None], *arguments: object) -> None:
        """Call a hook; record its exception under the `label` of the metric."""
        try:
            call(*arguments)
        except Exception as error:
            self._failures.record_failure(label, what, error)
