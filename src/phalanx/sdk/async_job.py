"""Job of a cluster, for callers with an event loop of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from phalanx.sdk.entry_list import EntryList
from phalanx.sdk.errors import (
    JobFailedError,
    JobNotFoundError,
    PhalanxError,
    RequestRejectedError,
    WaitTimeoutError,
    translated,
)
from phalanx.sdk.explanation import Explanation, StartEstimate

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target
    from phalanx.reports.jobs.entries import EventEntry, JobEntry, PodEntry
    from phalanx.reports.jobs.job_report import FoundJob
    from phalanx.sdk.async_cluster import AsyncCluster
    from phalanx.views.gang_state import GangState

_SHOWN_FAILURES = 3

#: States that `wait` accepts.
STATES = ("finished", "running", "completed", "failed", "suspended", "deleted")


class LogOptions(TypedDict, total=False):
    """Selection of log lines: pods by task and index, a container, the last `tail` lines. `prefix` adds the pod."""

    task: str
    index: int
    container: str
    tail: int
    prefix: bool


class AsyncJob:
    """Job of any kind: a Volcano Job, a native Job, a JobSet, or a gang without a job.

    It refers to one object, by its uid: a later job with the same name is another job. `entry` has the fields that
    were last read.
    """

    def __init__(self, cluster: AsyncCluster, entry: JobEntry) -> None:
        self.cluster = cluster
        self.entry = entry

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def namespace(self) -> str:
        return self.entry.namespace

    @property
    def kind(self) -> str:
        return self.entry.kind

    @property
    def target(self) -> str:
        """Name of the job as an argument of `phalanx why` and other commands."""
        return self.entry.target

    @property
    def _client(self) -> KubeClient:
        return self.cluster.client

    # state

    async def refresh(self) -> AsyncJob:
        """Read the job again. Raises JobNotFoundError if it was deleted."""
        self.entry = (await self._found()).entry
        return self

    async def _found(self) -> FoundJob:
        from phalanx.reports.jobs.job_report import JobReader

        entry = self.entry
        with translated(self.target):
            found = await JobReader(self._client).job(entry.kind, entry.namespace, entry.name, time.time())
        if found is None or (entry.uid and found.entry.uid != entry.uid):
            raise JobNotFoundError(
                f"{self.target} in namespace {self.namespace!r} does not exist any more", about=self.target
            )
        return found

    @property
    def state(self) -> Awaitable[GangState]:
        """Current state, as `phalanx jobs` shows it (docs/gang-states.md); await it."""
        return self._read_state()

    async def _read_state(self) -> GangState:
        return (await self.refresh()).entry.state

    async def done(self) -> bool:
        """Return whether the job has ended: completed, failed or cancelled."""
        return (await self._read_state()).over

    async def wait(self, timeout: float | None = None, state: str = "finished") -> AsyncJob:  # noqa: ASYNC109
        """Wait until the job is in `state` (one of STATES) and return the job.

        Raises WaitTimeoutError after `timeout` seconds, JobFailedError if the job ends without reaching the state.
        """
        from phalanx.orders.job_wait import REACHED, wait_for_job
        from phalanx.sdk.errors import InvalidArgumentError

        if state not in STATES:
            raise InvalidArgumentError(
                f"unknown state {state!r}; expected one of {', '.join(STATES)}",
                about=self.target,
                field="state",
            )
        entry = self.entry
        try:
            with translated(self.target):
                async with asyncio.timeout(timeout):
                    code, last = await wait_for_job(
                        self._client, (entry.kind, entry.namespace, entry.name), state, self._saw
                    )
        except TimeoutError as error:
            raise WaitTimeoutError(
                f"{self.target} is {self.entry.state}, not {state}, after {timeout:g} s{self._why()}",
                about=self.target,
            ) from error
        if code != REACHED:
            ended = f"is {last.state}" if last is not None else "was deleted"
            raise JobFailedError(
                f"{self.target} {ended}, not {state}{self._why()}",
                about=self.target,
                state=str(last.state) if last is not None else "Deleted",
            )
        return self

    def sentence(self) -> str:
        """Return name, state and reason that were last read, for messages."""
        return f"{self.target} is {self.entry.state}{self._why()}"

    def _saw(self, entry: JobEntry | None) -> None:
        if entry is not None and entry.uid == self.entry.uid:
            self.entry = entry

    def _why(self) -> str:
        reason, message = self.entry.reason, self.entry.message
        return f" ({reason}: {message})" if reason and message else f" ({reason})" if reason else ""

    async def result(self, timeout: float | None = None) -> str:  # noqa: ASYNC109
        """Wait for the end and return the log of the job. Raises JobFailedError, WaitTimeoutError."""
        failure = await self.exception(timeout)
        if failure is not None:
            raise failure
        return await self.logs()

    async def exception(self, timeout: float | None = None) -> JobFailedError | None:  # noqa: ASYNC109
        """Wait for the end and return the failure of the job; None if it completed. Raises WaitTimeoutError."""
        from phalanx.views.gang_state import GangState

        try:
            await self.wait(timeout)
        except JobFailedError as error:
            return error
        if self.entry.state is GangState.COMPLETED:
            return None
        pods = await self.pods()
        codes = {pod.name: pod.exit_code for pod in pods if pod.exit_code}
        exits = "; exit codes: " + ", ".join(f"{name} {code}" for name, code in codes.items()) if codes else ""
        return JobFailedError(
            f"{self.target} is {self.entry.state}{self._why()}{exits}",
            about=self.target,
            state=str(self.entry.state),
            exit_codes=codes,
        )

    async def pods(self) -> EntryList[PodEntry]:
        """Return the pods of the job."""
        return EntryList((await self._found()).pods, ("name", "phase", "node", "exit_code", "reason"))

    async def events(self) -> EntryList[EventEntry]:
        """Return the latest Events of the job and its PodGroup, oldest first."""
        from phalanx.reports.jobs.job_report import JobReader

        found = await self._found()
        with translated(self.target):
            description = await JobReader(self._client).describe(found)
        return EntryList(description.events, ("seen", "type", "reason", "about", "message", "count"))

    async def explain(self) -> Explanation:
        """Return why the job waits and the smallest change that would start it, as `phalanx why`.

        The answer is a dry run, which needs rights to read the whole cluster. Without them it is the reason that
        the scheduler has published.
        """
        try:
            return await self._dry_run()
        except RequestRejectedError as error:
            if error.status != 403:
                raise
            return await self._published(error)

    async def _published(self, cause: RequestRejectedError) -> Explanation:
        from phalanx.reports.why_answer import WhyAnswer
        from phalanx.views.promises import PromisedStart

        entry = (await self.refresh()).entry
        listed = [gang for gang in await self.cluster.jobs(namespace=self.namespace) if gang.uid == entry.uid]
        answer = WhyAnswer("Gang", f"{self.namespace}/{self.name}", entry.state, entry.message, reason=entry.reason)
        answer.warnings = [f"the reason is the published one, because no dry run is possible: {cause.message}"]
        if entry.state.waits and listed:
            answer.start = PromisedStart(no_later_than=listed[0].start, expected=listed[0].expected)
        return Explanation(answer)

    async def _dry_run(self) -> Explanation:
        from phalanx.reports.verdict_report import read_verdict
        from phalanx.reports.why_target import TargetError

        with translated(self.target):
            policy, names = await self.cluster.read_policy()
            try:
                answer = await read_verdict(
                    self._client,
                    policy,
                    names,
                    self.cluster.lease_namespace,
                    (self.namespace, self.kind, self.name),
                )
            except TargetError as error:
                raise JobNotFoundError(str(error), about=self.target) from error
        return Explanation(answer)

    async def start_estimate(self) -> StartEstimate | None:
        """Return the promised or expected start; None if the job does not wait."""
        return (await self.explain()).start

    # logs

    @overload
    def logs(self, *, follow: Literal[False] = False, **selection: Unpack[LogOptions]) -> Awaitable[str]: ...

    @overload
    def logs(self, *, follow: Literal[True], **selection: Unpack[LogOptions]) -> AsyncIterator[str]: ...

    def logs(self, *, follow: bool = False, **selection: Unpack[LogOptions]) -> Awaitable[str] | AsyncIterator[str]:
        """Return the logs of the pods as a text to await; with `follow` the lines, to iterate over until the end.

        With several pods, each line begins with the name of its pod. Raises JobNotFoundError if no pod is selected,
        PhalanxError if no log can be read.
        """
        return self._lines(True, selection) if follow else self._text(selection)

    async def _text(self, selection: LogOptions) -> str:
        return "".join([f"{line}\n" async for line in self._lines(False, selection)])

    async def _lines(self, follow: bool, options: LogOptions) -> AsyncIterator[str]:
        from phalanx.reports.jobs.job_report import JobReader
        from phalanx.reports.jobs.pod_logs import LogReader, LogSelection, NoPodsError

        found = await self._found()
        prefix = options.get("prefix")
        several = found.entry.total > 1 and options.get("index") is None if prefix is None else prefix
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        failures: list[str] = []

        def line(pod: PodEntry, name: str, text: bytes) -> None:
            head = f"[{pod.name}{f'/{name}' if len(pod.containers) > 1 else ''}] " if several else ""
            lines.put_nowait(head + text.decode("utf-8", "replace"))

        def unreadable(pod: PodEntry, cause: str) -> None:
            failures.append(f"{pod.name}: {cause}")

        selection = LogSelection(
            task=options.get("task"),
            index=options.get("index"),
            container=options.get("container"),
            tail=options.get("tail"),
            follow=follow,
        )
        reader = LogReader(self._client, JobReader(self._client), found, selection, line, unreadable)
        reading = asyncio.create_task(reader.run())
        reading.add_done_callback(lambda finished: lines.put_nowait(None))
        seen = False
        try:
            while (text := await lines.get()) is not None:
                seen = True
                yield text
            with translated(self.target):
                await reading
        except NoPodsError as error:
            raise JobNotFoundError(error.message, about=self.target) from error
        finally:
            reading.cancel()
        if failures and not seen:
            more = f"; and {len(failures) - _SHOWN_FAILURES} more pods" if len(failures) > _SHOWN_FAILURES else ""
            raise PhalanxError(
                f"cannot read the logs of {self.target}: {'; '.join(failures[:_SHOWN_FAILURES])}{more}",
                about=self.target,
            )

    # orders

    async def cancel(self) -> str:
        """Delete the job and its pods. Return a message."""
        from phalanx.orders.cancelling import cancel

        return await self._order(cancel)

    async def hold(self) -> str:
        """Hold the waiting job: it does not start until it is released. Return a message."""
        from phalanx.orders.holding import hold

        return await self._order(hold)

    async def release(self) -> str:
        """Release the held job. Return a message."""
        from phalanx.orders.holding import release

        return await self._order(release)

    async def suspend(self) -> str:
        """Suspend the job, also a running one: its pods end, the job remains until it is resumed. Return a
        message."""
        from phalanx.orders.holding import suspend

        return await self._order(suspend)

    async def resume(self) -> str:
        """Resume the suspended job. Return a message."""
        return await self.release()

    async def scale(self, replicas: int, task: str = "") -> str:
        """Set the number of pods, of one task of a job with several. Return a message."""
        from phalanx.orders.scaling import scale
        from phalanx.sdk.errors import InvalidArgumentError

        if not isinstance(replicas, int):
            raise InvalidArgumentError(
                f"invalid replicas {replicas!r}: must be a whole number", about=self.target, field="replicas"
            )

        async def order(client: KubeClient, target: Target) -> str:
            return await scale(client, target, replicas, task)

        return await self._order(order)

    async def _order(self, order: Callable[[KubeClient, Target], Awaitable[str]]) -> str:
        from phalanx.orders.target import TargetFinder

        # A later job with the same name must not be affected.
        await self._found()
        with translated(self.target):
            return await order(
                self._client, await TargetFinder(self._client, self.namespace).find(f"{self.kind}/{self.name}")
            )

    def __repr__(self) -> str:
        entry = self.entry
        reason = f" ({entry.reason})" if entry.reason else ""
        return f"<{type(self).__name__} {entry.target} in {entry.namespace}: {entry.state}{reason}>"

    def _repr_html_(self) -> str:
        from phalanx.sdk.html import job

        return job(self.entry)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the job that were last read."""
        import msgspec

        return {**msgspec.structs.asdict(self.entry), "state": str(self.entry.state)}
