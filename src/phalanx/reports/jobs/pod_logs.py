"""Logs of many pods of a job, line by line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.text.decoding import quoted
from phalanx.reports.jobs.entries import PodEntry
from phalanx.reports.jobs.job_report import FoundJob, JobReader

_PERIOD = 1.0
# A job can be silent for long; a lost API server is detected by other requests.
_READ_TIMEOUT = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class LogSelection:
    """Selected lines of a job's logs. `index`, `task` and `container` None mean all; `tail` None all lines."""

    task: str | None = None
    index: int | None = None
    container: str | None = None
    follow: bool = False
    tail: int | None = None
    previous: bool = False
    timestamps: bool = False

    def choose(self, pod: PodEntry) -> bool:
        return self.task in (None, pod.task) and self.index in (None, pod.index)


class NoPodsError(Exception):
    """Missing pods of a selection; `message` is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class LogReader:
    """Reader of the logs of selected pods; while following, new pods are included.

    `line` receives a pod, a container and a line without its end, `unreadable` a pod and the cause.
    """

    def __init__(
        self,
        client: KubeClient,
        reader: JobReader,
        job: FoundJob,
        options: LogSelection,
        line: Callable[[PodEntry, str, bytes], None],
        unreadable: Callable[[PodEntry, str], None],
    ) -> None:
        self._client = client
        self._reader = reader
        self._job = job
        self._options = options
        self._line = line
        self._unreadable = unreadable
        self._followed: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Read the logs. Raises NoPodsError if no pod is selected."""
        job = self._job
        selected = [pod for pod in job.pods if self._options.choose(pod)]
        if not selected and not self._options.follow:
            raise NoPodsError(self._no_pods_message())
        if not self._options.follow:
            # Pods are read one after the other, so that the lines of a pod stay together.
            for pod in selected:
                for container in self._containers(pod):
                    await self._read(pod, container)
            return
        async with asyncio.TaskGroup() as tasks:
            while True:
                for pod in job.pods:
                    if self._options.choose(pod) and pod.phase != "Pending":
                        for container in self._containers(pod):
                            if (pod.uid, container) not in self._followed:
                                self._followed.add((pod.uid, container))
                                tasks.create_task(self._follow(pod, container))
                if job.entry.over:
                    return
                await asyncio.sleep(_PERIOD)
                entry = job.entry
                current = await self._reader.job(entry.kind, entry.namespace, entry.name, time.time())
                if current is None or current.entry.uid != entry.uid:
                    return
                job = current

    def _no_pods_message(self) -> str:
        entry, options = self._job.entry, self._options
        if not self._job.pods:
            reason = f": {entry.reason}" if entry.reason else ""
            return f"{entry.target} has no pods yet{reason}; see: phalanx job describe {entry.target}"
        tasks = sorted({pod.task for pod in self._job.pods if pod.task})
        criteria = [f"task {quoted(options.task)}"] if options.task is not None else []
        criteria += [f"index {options.index}"] if options.index is not None else []
        known = f"; its tasks are {', '.join(tasks)}" if tasks else ""
        return f"{entry.target} has no pod with {' and '.join(criteria)}{known}"

    def _containers(self, pod: PodEntry) -> list[str]:
        return [name for name in pod.containers if self._options.container in (None, name)]

    def _path(self, pod: PodEntry) -> str:
        return PODS.path(self._job.entry.namespace, pod.name, "log")

    def _query(self, container: str) -> dict[str, str | int | bool | None]:
        options = self._options
        return {
            "container": container,
            "follow": True if options.follow else None,
            "tailLines": options.tail,
            "previous": True if options.previous else None,
            "timestamps": True if options.timestamps else None,
        }

    async def _read(self, pod: PodEntry, container: str) -> None:
        try:
            answer = await self._client.request(
                "GET", self._path(pod), params=self._query(container), accept="*/*", timeout=300
            )
        except ApiError as error:
            self._unreadable(pod, error.message)
            return
        for line in answer.splitlines():
            self._line(pod, container, line)

    async def _follow(self, pod: PodEntry, container: str) -> None:
        try:
            async with aclosing(
                self._client.stream(self._path(pod), self._query(container), read_timeout=_READ_TIMEOUT)
            ) as lines:
                async for line in lines:
                    self._line(pod, container, line)
        except ApiError as error:
            self._unreadable(pod, error.message)
        except ConnectionLost as error:
            self._unreadable(pod, str(error))
