"""Watches of kinds whose definitions can be added and removed: the kinds are discovered, and watched while they are
served."""

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

#: Seconds between discoveries; and delays of the discoveries after a definition has changed.
PERIOD = 60.0
_RECHECKS = (0.1, 0.4, 1.0, 3.0)
_RETRY_SECONDS = 1.0

_Selected = tuple[Resource, str | None]
_Running = tuple[tuple[Sink[bytes], ...], Reflector[bytes], asyncio.Task[None]]


class _Watcher(Protocol):
    @property
    def watches(self) -> Sequence[WatchedKind]: ...


class ServedWatches:
    """One reflector per served kind, shared by all its watchers.

    Of several versions of a kind, each watcher gets the first of its own versions that is served.
    """

    def __init__(self, client: KubeClient, watchers: Iterable[_Watcher], failures: Failures) -> None:
        self._client = client
        self._watches = [list(watcher.watches) for watcher in watchers]
        self._failures = failures
        self._running: dict[_Selected, _Running] = {}
        self._definitions = DefinitionWatch(client, failures)
        self._absent: frozenset[str] = frozenset()
        self._discovered = asyncio.Event()

    async def synced(self) -> None:
        """Wait until all objects of the served and listable kinds have been delivered once.

        Does not return while no kind is listable.
        """
        await self._discovered.wait()
        for _, reflector, _ in list(self._running.values()):
            await reflector.synced.wait()
        logged = False
        while self._running and all(
            reflector.state is ReflectorState.FORBIDDEN for _, reflector, _ in self._running.values()
        ):
            if not logged:
                log.error("this account cannot list any of the watched kinds: install its roles (phalanx install)")
            logged = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def run(self) -> None:
        """Discover and watch kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._definitions.reflector.run())
            await self._definitions.first_list()
            while not await self._discover(tasks):  # noqa: ASYNC110 - there is no event for the API server's recovery
                await asyncio.sleep(_RETRY_SECONDS)
            self._discovered.set()
            while True:
                try:
                    async with asyncio.timeout(PERIOD):
                        await self._definitions.changed.wait()
                except TimeoutError:
                    await self._discover(tasks)
                    continue
                for pause in _RECHECKS:
                    self._definitions.changed.clear()
                    await asyncio.sleep(pause)
                    await self._discover(tasks)

    async def _discover(self, tasks: asyncio.TaskGroup) -> bool:
        """Discover the served kinds and start their watches. Return whether the API server answered."""
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
                # The reflector ends after it has reported the deletion of its objects.
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
                    self._fan_out(sinks),
                    label_selector=selected[1],
                    failures=self._failures,
                    optional=True,
                )
                self._running[selected] = (sinks, reflector, tasks.create_task(reflector.run()))
        self._log_absent(served)

    def _end(self, selected: _Selected, task: asyncio.Task[None]) -> None:
        task.cancel()
        del self._running[selected]

    def _wanted(self, served: Discovery) -> dict[_Selected, tuple[Sink[bytes], ...]]:
        selected_sinks: dict[_Selected, tuple[Sink[bytes], ...]] = {}
        for watches in self._watches:
            chosen: dict[tuple[str, str, str | None], str] = {}
            for watch in watches:
                resource = watch.resource
                if all(
                    served_kind.version != resource.version
                    for served_kind in served.find(resource.group, resource.plural)
                ):
                    continue
                kind = (resource.group, resource.plural, watch.label_selector)
                if chosen.setdefault(kind, resource.version) == resource.version:
                    selected = (resource, watch.label_selector)
                    selected_sinks[selected] = (*selected_sinks.get(selected, ()), watch.sink)
        return selected_sinks

    def _fan_out(self, sinks: tuple[Sink[bytes], ...]) -> Sink[bytes]:
        def sink(change: Change[bytes]) -> None:
            for deliver in sinks:
                # An unreadable object of one controller must not block the other controllers.
                self._failures.guard("intake", type(change).__name__, lambda: deliver(change))  # noqa: B023

        return sink

    def _log_absent(self, served: Discovery) -> None:
        """Log kinds that are not served in one line, and each later change."""
        resources = {watch.resource for watches in self._watches for watch in watches}
        watched = {(resource.group, resource.plural) for resource, _ in self._running}
        absent = frozenset(
            f"{resource.plural}.{resource.group}".rstrip(".")
            for resource in resources
            if (resource.group, resource.plural) not in watched
        )
        for name in sorted(self._absent - absent):
            log.info("%s is served now, and watched", name)
        if gone := sorted(absent - self._absent):
            log.info("not served, so not watched until it is: %s", ", ".join(gone))
        self._absent = absent
