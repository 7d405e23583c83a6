"""Kinds that may come and go with their definitions: found by discovery, watched while they are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from phalanx.controllers.controller import WatchedKind
from phalanx.kube.changes import Change, Sink
from phalanx.kube.client import KubeClient
from phalanx.kube.definitions import DefinitionWatch
from phalanx.kube.discovery import Discovery
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector, ReflectorState

log = logging.getLogger(__name__)

#: Seconds between looks at what is served, and, after a definition has changed, until those that find its kind.
PERIOD = 60.0
_LOOKS = (0.1, 0.4, 1.0, 3.0)
_AGAIN = 1.0

_Selected = tuple[Resource, str | None]
_Running = tuple[tuple[Sink[bytes], ...], Reflector[bytes], asyncio.Task[None]]


class _Watcher(Protocol):
    @property
    def watches(self) -> Sequence[WatchedKind]: ...


class ServedWatches:
    """One reflector for each kind that is served, however many watch it. Of several versions of a kind each watcher
    gets the first of its own that is served."""

    def __init__(self, client: KubeClient, watchers: Iterable[_Watcher], failures: Failures) -> None:
        self._client = client
        self._watches = [list(watcher.watches) for watcher in watchers]
        self._failures = failures
        self._running: dict[_Selected, _Running] = {}
        self._definitions = DefinitionWatch(client, failures)
        self._absent: frozenset[str] = frozenset()
        self._looked = asyncio.Event()

    async def synced(self) -> None:
        """Returns when all objects of the kinds that are served, and that may be listed, have been told once: not
        while none of them may."""
        await self._looked.wait()
        for _, reflector, _ in list(self._running.values()):
            await reflector.synced.wait()
        said = False
        while self._running and all(
            reflector.state is ReflectorState.FORBIDDEN for _, reflector, _ in self._running.values()
        ):
            if not said:
                log.error("this account may list nothing that is needed here: give it its rights (phalanx install)")
            said = True
            await asyncio.sleep(_AGAIN)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._definitions.reflector.run())
            await self._definitions.first_list()
            while not await self._look(tasks):  # noqa: ASYNC110 - nothing tells when it answers
                await asyncio.sleep(_AGAIN)
            self._looked.set()
            while True:
                try:
                    async with asyncio.timeout(PERIOD):
                        await self._definitions.changed.wait()
                except TimeoutError:
                    await self._look(tasks)
                    continue
                for pause in _LOOKS:
                    self._definitions.changed.clear()
                    await asyncio.sleep(pause)
                    await self._look(tasks)

    async def _look(self, tasks: asyncio.TaskGroup) -> bool:
        """Whether the API server has said what it serves."""
        try:
            self._update(await self._definitions.discovered(), tasks)
        except (ApiError, ConnectionLost, ConfigError) as error:
            log.log(self._client.contact.level, "discovery failed: %s", error)
            return False
        except Exception as error:
            self._failures.record_failure("discovery", "what the API server serves", error)
            return False
        return True

    def _update(self, served: Discovery, tasks: asyncio.TaskGroup) -> None:
        wanted = self._wanted(served)
        for selected, (sinks, reflector, task) in list(self._running.items()):
            resource = selected[0]
            if selected not in wanted:
                # It ends when it has told that its objects are gone.
                if reflector.state is ReflectorState.ABSENT and resource.api_version not in served.degraded:
                    self._end(selected, task)
            elif wanted[selected] != sinks:
                self._end(selected, task)
        for selected, sinks in wanted.items():
            if selected not in self._running:
                reflector = Reflector(
                    self._client,
                    selected[0],
                    bytes,
                    self._teller(sinks),
                    label_selector=selected[1],
                    failures=self._failures,
                    optional=True,
                )
                self._running[selected] = (sinks, reflector, tasks.create_task(reflector.run()))
        self._tell_absent(served)

    def _end(self, selected: _Selected, task: asyncio.Task[None]) -> None:
        task.cancel()
        del self._running[selected]

    def _wanted(self, served: Discovery) -> dict[_Selected, tuple[Sink[bytes], ...]]:
        found: dict[_Selected, tuple[Sink[bytes], ...]] = {}
        for watches in self._watches:
            chosen: dict[tuple[str, str, str | None], str] = {}
            for watch in watches:
                resource = watch.resource
                if all(each.version != resource.version for each in served.find(resource.group, resource.plural)):
                    continue
                kind = (resource.group, resource.plural, watch.label_selector)
                if chosen.setdefault(kind, resource.version) == resource.version:
                    selected = (resource, watch.label_selector)
                    found[selected] = (*found.get(selected, ()), watch.sink)
        return found

    def _teller(self, sinks: tuple[Sink[bytes], ...]) -> Sink[bytes]:
        def sink(change: Change[bytes]) -> None:
            for each in sinks:
                # What one controller cannot read is no reason to keep it from the others.
                self._failures.guard("intake", type(change).__name__, lambda: each(change))  # noqa: B023

        return sink

    def _tell_absent(self, served: Discovery) -> None:
        """One line, and another where a kind comes or goes."""
        resources = {watch.resource for watches in self._watches for watch in watches}
        there = {(resource.group, resource.plural) for resource, _ in self._running}
        absent = frozenset(
            f"{resource.plural}.{resource.group}".rstrip(".")
            for resource in resources
            if (resource.group, resource.plural) not in there
        )
        for name in sorted(self._absent - absent):
            log.info("%s is served now, and watched", name)
        if gone := sorted(absent - self._absent):
            log.info("not served, so not watched until it is: %s", ", ".join(gone))
        self._absent = absent
