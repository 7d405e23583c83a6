"""Preparations of bindings: volumes and devices are assigned first, for a whole gang or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Protocol

from phalanx.execution.binder import Binder, BindOutcome, BindResult, Guard, no_objection
from phalanx.model.decisions import Bind
from phalanx.model.preparations import Preparation
from phalanx.model.text.counts import count_of

log = logging.getLogger(__name__)

# Time limit of all preparations of a decision, in seconds (kube-scheduler's bindTimeoutSeconds).
TIMEOUT = 600.0
# Seconds after which the conditions of the pods say what a decision waits for.
PATIENCE = 20.0
# Seconds between two calls of the guard: a node or pod can be deleted during the preparations.
_ROUNDS = 2.0


class PreparationError(Exception):
    """Failure of a preparation for a binding; the text is the reason for users."""


class Handler(Protocol):
    """Executor of one kind of preparation for bindings."""

    async def prepare(self, bind: Bind, preparation: Preparation) -> None:
        """Execute the preparation and wait until the API shows it. Idempotent, also after a restart. Wait for an
        unreachable server; raise PreparationError."""
        ...

    async def undo(self, bind: Bind, preparation: Preparation) -> None:
        """Undo the preparation of a pod that is not bound, except for the parts that other pods use."""
        ...

    async def awaited(self, preparation: Preparation) -> str:
        """Return what an unfinished preparation waits for, as an object of "waits for"; "" if that is unknown."""
        ...


class Preparations:
    """Stage before the binder: the bindings of a decision are posted when all its preparations are complete.

    If a preparation fails, or takes longer than `timeout` seconds, no pod of the decision is bound, and completed
    preparations are undone; so they are if a binding is rejected later. The guard is also called during the
    preparations. Every binding is reported exactly once. `delayed(bind, text)` is called for each pod of a decision
    that waits for longer than `patience` seconds.
    """

    def __init__(
        self,
        binder: Callable[[Callable[[BindResult], None]], Binder],
        report: Callable[[BindResult], None],
        handlers: Mapping[type[Preparation], Handler],
        *,
        timeout: float = TIMEOUT,
        rounds: float = _ROUNDS,
        patience: float = PATIENCE,
        delayed: Callable[[Bind, str], None] = lambda bind, text: None,
    ) -> None:
        self._binder = binder(self._answered)
        self._report = report
        self._handlers = handlers
        self._timeout = timeout
        self._rounds = rounds
        self._patience = patience
        self._delayed = delayed
        self._tasks: set[asyncio.Task[None]] = set()
        self._prepared: dict[str, Bind] = {}

    @property
    def in_flight(self) -> int:
        """Number of decisions under preparation and of bindings in progress."""
        return len(self._tasks) + self._binder.in_flight

    def submit(self, binds: Iterable[Bind], guard: Guard = no_objection) -> None:
        at_once: list[Bind] = []
        decisions: dict[str, list[Bind]] = {}
        for bind in binds:
            decisions.setdefault(bind.together or bind.uid, []).append(bind)
        for decision in decisions.values():
            if any(bind.preparations for bind in decision):
                self._start(self._prepare(decision, guard))
            else:
                at_once += decision
        self._binder.submit(at_once, guard)

    def stop(self) -> None:
        """Cancel all preparations, as a crash would: the next start continues from the state of the API."""
        for task in self._tasks:
            task.cancel()

    async def _prepare(self, binds: Sequence[Bind], guard: Guard) -> None:
        why = await self._failure(binds, guard)
        if why:
            await self._fail(binds, why)
            return
        self._prepared.update({bind.uid: bind for bind in binds if bind.preparations})
        self._binder.submit(binds, guard)

    async def _failure(self, binds: Sequence[Bind], guard: Guard) -> str:
        """Execute all preparations of a decision. Return the reason of a failure, or ""."""
        try:
            async with asyncio.timeout(self._timeout), asyncio.TaskGroup() as tasks:
                running = {
                    tasks.create_task(self._handler(preparation).prepare(bind, preparation)): preparation
                    for bind in binds
                    for preparation in bind.preparations
                }
                watch = tasks.create_task(self._watch(binds, guard))
                report = tasks.create_task(self._report_delay(binds, running))
                await asyncio.wait(running)
                watch.cancel()
                report.cancel()
        except TimeoutError:
            return f"its volumes or devices were not ready within {self._timeout:.0f} s"
        except ExceptionGroup as group:
            first = group.exceptions[0]
            if isinstance(first, PreparationError):
                return str(first)
            log.error("preparing %s/%s failed unexpectedly", binds[0].namespace, binds[0].name, exc_info=first)
            return f"{type(first).__name__}: {first}"
        return ""

    async def _watch(self, binds: Sequence[Bind], guard: Guard) -> None:
        """Raise PreparationError, which cancels the preparations, once the guard objects to a binding."""
        while True:
            await asyncio.sleep(self._rounds)
            for bind in binds:
                objection = guard(bind)
                if isinstance(objection, str):
                    raise PreparationError(objection)

    async def _report_delay(self, binds: Sequence[Bind], running: Mapping[asyncio.Task[None], Preparation]) -> None:
        """Report what the decision waits for, once it has waited for some time."""
        await asyncio.sleep(self._patience)
        awaited = {await self._handler(entry).awaited(entry) for task, entry in running.items() if not task.done()}
        first, *more = sorted(filter(None, awaited)) or [""]
        if first:
            text = f"waits for {first}"
            if more:
                text += f" (and {count_of(len(more), 'more claim')} of its gang)"
            for bind in binds:
                self._delayed(bind, text)

    async def _fail(self, binds: Sequence[Bind], why: str) -> None:
        for bind in binds:
            await self._undo(bind)
        for bind in binds:
            self._report(BindResult(bind, BindOutcome.REFUSED, why))

    async def _undo(self, bind: Bind) -> None:
        for preparation in reversed(bind.preparations):
            try:
                await self._handler(preparation).undo(bind, preparation)
            except Exception as error:
                log.warning("undoing the preparation of %s/%s: %s", bind.namespace, bind.name, error)

    def _answered(self, result: BindResult) -> None:
        bind = self._prepared.pop(result.bind.uid, None)
        if bind is not None and result.outcome is not BindOutcome.BOUND:
            self._start(self._undo_late(result))
        else:
            self._report(result)

    async def _undo_late(self, result: BindResult) -> None:
        await self._undo(result.bind)
        self._report(result)

    def _handler(self, preparation: Preparation) -> Handler:
        return self._handlers[type(preparation)]

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
