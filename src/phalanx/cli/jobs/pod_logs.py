"""The output of many pods at once, line by line."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.jobs.entries import PodEntry
    from phalanx.reports.jobs.job_report import FoundJob, JobReader

_PERIOD = 1.0
# A job may be silent for long; that a server is gone is seen by its other answers.
_SILENCE = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class PodLogArguments:
    """`index` and `task` choose pods, None for all. `prefix` is None for "if there are several"."""

    task: str | None
    index: int | None
    container: str | None
    follow: bool
    tail: int | None
    previous: bool
    timestamps: bool
    prefix: bool | None

    def choose(self, pod: PodEntry) -> bool:
        return self.task in (None, pod.task) and self.index in (None, pod.index)


class LogPrinter:
    """Prints what the chosen pods say, those that begin later too while it follows."""

    def __init__(self, client: KubeClient, reader: JobReader, job: FoundJob, options: PodLogArguments) -> None:
        self._client = client
        self._reader = reader
        self._job = job
        self._options = options
        self._begun: set[tuple[str, str]] = set()
        several = job.entry.total > 1 and options.index is None
        self._prefix = several if options.prefix is None else options.prefix

    async def run(self) -> None:
        """Raises click.ClickException where no pod is chosen."""
        job = self._job
        chosen = [pod for pod in job.pods if self._options.choose(pod)]
        if not chosen and not self._options.follow:
            raise click.ClickException(self._nothing())
        if not self._options.follow:
            # One after the other, so that the lines of a pod stay together.
            for pod in chosen:
                for container in self._containers(pod):
                    await self._print(pod, container)
            return
        async with asyncio.TaskGroup() as tasks:
            while True:
                for pod in job.pods:
                    if self._options.choose(pod) and pod.phase != "Pending":
                        for container in self._containers(pod):
                            if (pod.uid, container) not in self._begun:
                                self._begun.add((pod.uid, container))
                                tasks.create_task(self._follow(pod, container))
                if job.entry.over:
                    return
                await asyncio.sleep(_PERIOD)
                entry = job.entry
                found = await self._reader.job(entry.kind, entry.namespace, entry.name, time.time())
                if found is None or found.entry.uid != entry.uid:
                    return
                job = found

    def _nothing(self) -> str:
        entry, options = self._job.entry, self._options
        if not self._job.pods:
            why = f": {entry.reason}" if entry.reason else ""
            return f"{entry.target} has no pods yet{why}; see `phalanx job describe {entry.target}`"
        tasks = sorted({pod.task for pod in self._job.pods if pod.task})
        asked = [f"task {options.task!r}"] if options.task is not None else []
        asked += [f"index {options.index}"] if options.index is not None else []
        known = f"; its tasks are {', '.join(tasks)}" if tasks else ""
        return f"{entry.target} has no pod with {' and '.join(asked)}{known}"

    def _containers(self, pod: PodEntry) -> list[str]:
        return [name for name in pod.containers if self._options.container in (None, name)]

    def _path(self, pod: PodEntry) -> str:
        from phalanx.kube.core_resources import PODS

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

    async def _print(self, pod: PodEntry, container: str) -> None:
        from phalanx.kube.errors import ApiError

        try:
            answer = await self._client.request(
                "GET", self._path(pod), params=self._query(container), accept="*/*", timeout=300
            )
        except ApiError as error:
            self._complain(pod, error.message)
            return
        for line in answer.splitlines():
            self._line(pod, container, line)

    async def _follow(self, pod: PodEntry, container: str) -> None:
        from phalanx.kube.errors import ApiError, ConnectionLost

        try:
            async with aclosing(
                self._client.stream(self._path(pod), self._query(container), read_timeout=_SILENCE)
            ) as lines:
                async for line in lines:
                    self._line(pod, container, line)
        except ApiError as error:
            self._complain(pod, error.message)
        except ConnectionLost as error:
            self._complain(pod, str(error))

    def _line(self, pod: PodEntry, container: str, line: bytes) -> None:
        several = len(pod.containers) > 1
        head = f"[{pod.name}{f'/{container}' if several else ''}] " if self._prefix else ""
        sys.stdout.buffer.write(head.encode() + line + b"\n")
        sys.stdout.buffer.flush()

    def _complain(self, pod: PodEntry, text: str) -> None:
        click.echo(f"{pod.name}: no output: {text}", err=True)
