"""Job of a cluster, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Literal, Unpack, overload

from phalanx.sdk.errors import JobFailedError

if TYPE_CHECKING:
    from phalanx.reports.jobs.entries import EventEntry, PodEntry
    from phalanx.sdk.async_job import AsyncJob, LogOptions
    from phalanx.sdk.entry_list import EntryList
    from phalanx.sdk.explanation import Explanation, StartEstimate
    from phalanx.sdk.loop import LoopThread
    from phalanx.views.gang_state import GangState


class Job:
    """Job of any kind: a Volcano Job, a native Job, a JobSet, or a gang without a job.

    It refers to one object: a later job with the same name is another job.
    """

    def __init__(self, loop: LoopThread, job: AsyncJob) -> None:
        self._loop = loop
        self._job = job

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def kind(self) -> str:
        """Kind of the job: vcjob, job, jobset or gang."""
        return self._job.kind

    @property
    def target(self) -> str:
        """Name of the job as an argument of `phalanx why` and other commands."""
        return self._job.target

    @property
    def state(self) -> GangState:
        """Current state, read now: Pending, Running, Completed, Failed and others (docs/gang-states.md)."""
        return self.refresh()._job.entry.state

    def refresh(self) -> Job:
        """Read the job again and return it. Raises JobNotFoundError if it was deleted."""
        self._loop.run(self._job.refresh())
        return self

    def done(self) -> bool:
        """Return whether the job has ended: completed, failed or cancelled."""
        return self._loop.run(self._job.done())

    def wait(self, timeout: float | None = None, state: str = "finished") -> Job:
        """Wait until the job is in `state` and return the job.

        `state` is finished (ended with any result), running (the minimum of pods runs), completed, failed,
        suspended or deleted. Raises WaitTimeoutError after `timeout` seconds, JobFailedError if the job ends in
        another state.
        """
        self._loop.run(self._job.wait(timeout, state))
        return self

    def result(self, timeout: float | None = None) -> str:
        """Wait for the end and return the log of the job. Raises JobFailedError, WaitTimeoutError."""
        return self._loop.run(self._job.result(timeout))

    def exception(self, timeout: float | None = None) -> JobFailedError | None:
        """Wait for the end and return the failure of the job; None if it completed. Raises WaitTimeoutError."""
        return self._loop.run(self._job.exception(timeout))

    def explain(self) -> Explanation:
        """Return why the job waits and the smallest change that would start it, as `phalanx why`."""
        return self._loop.run(self._job.explain())

    def start_estimate(self) -> StartEstimate | None:
        """Return the promised or expected start; None if the job does not wait."""
        return self._loop.run(self._job.start_estimate())

    @overload
    def logs(self, *, follow: Literal[False] = False, **selection: Unpack[LogOptions]) -> str: ...

    @overload
    def logs(self, *, follow: Literal[True], **selection: Unpack[LogOptions]) -> Iterator[str]: ...

    def logs(self, *, follow: bool = False, **selection: Unpack[LogOptions]) -> str | Iterator[str]:
        """Return the logs of the pods; with `follow` their lines, to iterate over until the job ends.

        With several pods, each line begins with the name of its pod. See LogOptions for the selection.
        """
        if follow:
            return self._lines(self._job.logs(follow=True, **selection))
        return self._loop.run(_awaited(self._job.logs(**selection)))

    def _lines(self, lines: AsyncIterator[str]) -> Iterator[str]:
        try:
            while (line := self._loop.run(_next(lines))) is not None:
                yield line
        finally:
            self._loop.run(_close(lines))

    def pods(self) -> EntryList[PodEntry]:
        """Return the pods of the job."""
        return self._loop.run(self._job.pods())

    def events(self) -> EntryList[EventEntry]:
        """Return the latest Events of the job and its PodGroup, oldest first."""
        return self._loop.run(self._job.events())

    def cancel(self) -> str:
        """Delete the job and its pods. Return a message."""
        return self._loop.run(self._job.cancel())

    def hold(self) -> str:
        """Hold the waiting job: it does not start until it is released. Return a message."""
        return self._loop.run(self._job.hold())

    def release(self) -> str:
        """Release the held job. Return a message."""
        return self._loop.run(self._job.release())

    def suspend(self) -> str:
        """Suspend the job, also a running one: its pods end, the job remains until it is resumed. Return a
        message."""
        return self._loop.run(self._job.suspend())

    def resume(self) -> str:
        """Resume the suspended job. Return a message."""
        return self._loop.run(self._job.resume())

    def scale(self, replicas: int, task: str = "") -> str:
        """Set the number of pods, of one task of a job with several. Return a message."""
        return self._loop.run(self._job.scale(replicas, task))

    def __repr__(self) -> str:
        return repr(self._job).replace("AsyncJob", "Job", 1)

    def _repr_html_(self) -> str:
        from phalanx.sdk.errors import PhalanxError
        from phalanx.sdk.html import job

        start = ""
        try:
            state = self.state
            if state.waits and (estimate := self.start_estimate()) is not None:
                start = str(estimate)
        except PhalanxError as error:
            # A notebook shows the last known state rather than a traceback.
            start = error.message
        return job(self._job.entry, start)


async def _awaited(text: Awaitable[str]) -> str:
    return await text


async def _next(lines: AsyncIterator[str]) -> str | None:
    return await anext(lines, None)


async def _close(lines: AsyncIterator[str]) -> None:
    if isinstance(lines, AsyncGenerator):
        await lines.aclose()
