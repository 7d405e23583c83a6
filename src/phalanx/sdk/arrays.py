"""Many similar jobs: one per item, and iteration in the order in which jobs end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from phalanx.sdk.async_job import AsyncJob
from phalanx.sdk.errors import InvalidArgumentError, WaitTimeoutError, translated
from phalanx.sdk.job import Job
from phalanx.sdk.requests import generated_name

if TYPE_CHECKING:
    from phalanx.sdk.async_cluster import AsyncCluster
    from phalanx.sdk.loop import LoopThread
    from phalanx.sdk.requests import SubmitOptions

_PERIOD = 0.5


class AsyncJobArray:
    """Jobs of one command, one per item. With a limit, a job is submitted when an earlier one has ended."""

    def __init__(
        self,
        cluster: AsyncCluster,
        command: Sequence[str] | Callable[[Any], Sequence[str]],
        items: Sequence[Any],
        name: str | None,
        limit: int | None,
        namespace: str | None,
        options: SubmitOptions,
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidArgumentError(f"invalid limit {limit}: must be at least 1", field="limit")
        self._cluster = cluster
        self._command = command
        self._items = items
        self._name = name or generated_name("array")
        self._limit = limit or len(items)
        self._namespace = namespace
        self._options = options
        self._submitting: asyncio.Task[None] | None = None
        #: Submitted jobs, in the order of the items.
        self.jobs: list[AsyncJob] = []

    def __len__(self) -> int:
        return len(self._items)

    async def start(self) -> None:
        """Submit the first jobs. Raises the errors of `submit`."""
        for _ in range(min(self._limit, len(self._items))):
            await self._submit_next()
        if len(self.jobs) < len(self._items):
            self._submitting = asyncio.create_task(self._submit_others())

    async def _submit_others(self) -> None:
        ended: set[str] = set()
        while len(self.jobs) < len(self._items):
            await asyncio.sleep(_PERIOD)
            ended |= {job.entry.uid for job in await _ended(self.jobs, ended)}
            while len(self.jobs) - len(ended) < self._limit and len(self.jobs) < len(self._items):
                await self._submit_next()

    async def _submit_next(self) -> None:
        index = len(self.jobs)
        item = self._items[index]
        words = (
            self._command(item)
            if callable(self._command)
            else [str(word).replace("{}", str(item)) for word in self._command]
        )
        name = f"{self._name}-{index}"
        job = await self._cluster.submit(words, name=name, namespace=self._namespace, **self._options)
        self.jobs.append(job)

    async def as_completed(self, timeout: float | None = None) -> AsyncIterator[AsyncJob]:  # noqa: ASYNC109
        """Yield the jobs in the order in which they end. Raises WaitTimeoutError, and the errors of `submit`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: set[str] = set()
        while len(ended) < len(self._items):
            if self._submitting is not None and self._submitting.done():
                self._submitting.result()
            for job in await _ended(self.jobs, ended):
                ended.add(job.entry.uid)
                yield job
            if len(ended) < len(self._items):
                await _pause(deadline, len(self._items) - len(ended))

    async def results(self, timeout: float | None = None) -> list[str]:  # noqa: ASYNC109
        """Wait for all jobs and return their logs in the order of the items. Raises JobFailedError for the first
        failed job."""
        async for _ in self.as_completed(timeout):
            pass
        return [await job.result() for job in self.jobs]

    def __repr__(self) -> str:
        counts = Counter(str(job.entry.state) for job in self.jobs)
        states = [f"{number} {state}" for state, number in sorted(counts.items())]
        if missing := len(self._items) - len(self.jobs):
            states.append(f"{missing} not submitted")
        return f"<{type(self).__name__} {self._name} of {len(self._items)} jobs: {', '.join(states) or 'empty'}>"

    async def cancel(self) -> None:
        """Submit no further job and delete the submitted ones."""
        if self._submitting is not None:
            self._submitting.cancel()
        self._items = self._items[: len(self.jobs)]
        await asyncio.gather(*(job.cancel() for job in self.jobs))


async def as_jobs_end(jobs: Sequence[AsyncJob], timeout: float | None = None) -> AsyncIterator[AsyncJob]:  # noqa: ASYNC109
    """Yield jobs of one cluster in the order in which they end. Raises WaitTimeoutError."""
    deadline = None if timeout is None else time.monotonic() + timeout
    ended: set[str] = set()
    while True:
        for job in await _ended(jobs, ended):
            ended.add(job.entry.uid)
            yield job
        if len(ended) >= len({job.entry.uid for job in jobs}):
            return
        await _pause(deadline, len(jobs) - len(ended))


async def _pause(deadline: float | None, open_jobs: int) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise WaitTimeoutError(f"{open_jobs} jobs have not ended at the timeout")
    await asyncio.sleep(_PERIOD)


async def _ended(jobs: Sequence[AsyncJob], known: set[str]) -> list[AsyncJob]:
    """Return the jobs that have ended or were deleted, without those in `known`; one list per namespace."""
    from phalanx.reports.jobs.job_report import JobReader

    unknown = [job for job in jobs if job.entry.uid not in known]
    ended: list[AsyncJob] = []
    for namespace in sorted({job.namespace for job in unknown}):
        of_namespace = [job for job in unknown if job.namespace == namespace]
        with translated():
            listed = await JobReader(of_namespace[0].cluster.client).jobs(namespace, time.time())
        current = {found.entry.uid: found.entry for found in listed}
        for job in of_namespace:
            entry = current.get(job.entry.uid)
            job.entry = entry or job.entry
            if entry is None or entry.over:
                ended.append(job)
    return ended


class JobArray:
    """Jobs of one command, one per item. Iterate over `as_completed()`, or wait for all with `results()`."""

    def __init__(self, loop: LoopThread, array: AsyncJobArray) -> None:
        self._loop = loop
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @property
    def jobs(self) -> list[Job]:
        """Submitted jobs, in the order of the items; with a limit, some are submitted later."""
        return [Job(self._loop, job) for job in list(self._array.jobs)]

    def as_completed(self, timeout: float | None = None) -> Iterator[Job]:
        """Yield the jobs in the order in which they end. Raises WaitTimeoutError."""
        return _iterate(self._loop, self._array.as_completed(timeout))

    def results(self, timeout: float | None = None) -> list[str]:
        """Wait for all jobs and return their logs in the order of the items. Raises JobFailedError for the first
        failed job."""
        return self._loop.run(self._array.results(timeout))

    def __repr__(self) -> str:
        return repr(self._array).replace("AsyncJobArray", "JobArray", 1)

    def cancel(self) -> None:
        """Submit no further job and delete the submitted ones."""
        self._loop.run(self._array.cancel())


@overload
def as_completed(jobs: Iterable[Job] | JobArray, timeout: float | None = None) -> Iterator[Job]: ...


@overload
def as_completed(
    jobs: Iterable[AsyncJob] | AsyncJobArray, timeout: float | None = None
) -> AsyncIterator[AsyncJob]: ...


def as_completed(
    jobs: Iterable[Job] | JobArray | Iterable[AsyncJob] | AsyncJobArray, timeout: float | None = None
) -> Iterator[Job] | AsyncIterator[AsyncJob]:
    """Yield jobs of one cluster in the order in which they end: `for`, or `async for` with jobs of an AsyncCluster.

    Raises WaitTimeoutError after `timeout` seconds.
    """
    if isinstance(jobs, JobArray | AsyncJobArray):
        return jobs.as_completed(timeout)
    several = list(jobs)
    waited = [job for job in several if isinstance(job, AsyncJob)]
    if waited:
        return as_jobs_end(waited, timeout)
    plain = [job for job in several if isinstance(job, Job)]
    return _iterate(plain[0]._loop, as_jobs_end([job._job for job in plain], timeout)) if plain else iter(())


def _iterate(loop: LoopThread, jobs: AsyncIterator[AsyncJob]) -> Iterator[Job]:
    while (job := loop.run(_next(jobs))) is not None:
        yield Job(loop, job)


async def _next(jobs: AsyncIterator[AsyncJob]) -> AsyncJob | None:
    return await anext(jobs, None)
