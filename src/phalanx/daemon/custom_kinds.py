"""Discovery and watches of the custom kinds: PodGroups, queues and quotas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from phalanx.daemon.object_feed import ObjectFeed, error_text
from phalanx.daemon.served import (
    has_native_groups,
    served_accounts,
    served_enricher_kinds,
    served_groups,
    served_owners,
)
from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.gangs.unnamed_members import NOT_SERVED
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document, decode_group, decode_object
from phalanx.dialects.warnings import ObjectRef
from phalanx.kube.changes import Change, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.definitions import DefinitionWatch
from phalanx.kube.discovery import Discovery
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey

log = logging.getLogger(__name__)

# Seconds between the discovery requests after a CRD change: its kind is served moments later.
_DISCOVERY_LOOKS = (0.1, 0.4, 1.0, 3.0)
# Seconds for which a kind without a CRD has to be missing before it counts as removed, and between two requests.
_GONE_AFTER = 10.0
_MISSING_PERIOD = 2.0
# Seconds for which planning waits for the first list of a kind that is new, or that fails at the start; and between
# two checks of that list.
_LIST_PATIENCE = 30.0
_LIST_PERIOD = 1.0

Sink = Callable[[Change[Document]], None]


class CustomKinds:
    """Custom kinds that the API server serves, one reflector for each.

    Discovery is repeated every `period` seconds and after each CRD change. `discovered` is called with each answer.
    """

    def __init__(
        self,
        client: KubeClient,
        intake: Intake,
        feed: ObjectFeed,
        discovered: Callable[[Discovery], None],
        period: float,
    ) -> None:
        self._client = client
        self._intake = intake
        self._feed = feed
        self._discovered = discovered
        self._period = period
        self._definitions = DefinitionWatch(client, feed.failures)
        self._tasks: asyncio.TaskGroup | None = None
        self._kinds: dict[ServedKind, tuple[Reflector[Any], asyncio.Task[None]]] = {}
        # Times since when a kind has been missing, and since when a new kind has been listed.
        self._missing: dict[ServedKind, float] = {}
        self._begun: dict[ServedKind, float] = {}
        # Kinds with a logged failure of their list.
        self._unlisted: set[ServedKind] = set()
        self._kinds_known = asyncio.Event()
        self._lacks_native = False
        intake.workloads.on_wanted = intake.run_times.on_wanted = self.rediscover

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        tasks.create_task(self._definitions.reflector.run())
        tasks.create_task(self._discover_kinds())

    async def synced(self) -> None:
        """Return when all objects of the served custom kinds have been listed once."""
        await self._kinds_known.wait()
        for kind, (reflector, _) in list(self._kinds.items()):
            await self._first_list(kind, reflector)

    async def _first_list(self, kind: ServedKind, reflector: Reflector[Any]) -> None:
        """Wait for the first list of a custom kind, at most `_LIST_PATIENCE` seconds if its list fails.

        A list fails when a conversion webhook is missing or an object is unreadable. Other units need not wait for
        such a group kind: pods that name its objects are not scheduled anyway. Queues and quotas are waited for
        without end: without their limits units would exceed their quota.
        """
        while not reflector.synced.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LIST_PERIOD):
                    await reflector.synced.wait()
            seconds, error = reflector.failing
            if seconds < _LIST_PATIENCE:
                continue
            limits = (kind.group, kind.plural) in self._intake.dialects.accounts
            if kind not in self._unlisted:
                effect = (
                    "scheduling waits for it: the kind sets quota limits"
                    if limits
                    else "scheduling continues without it"
                )
                log.error("%s.%s cannot be listed: %s: %s", kind.plural, kind.group, effect, error)
            self._unlisted.add(kind)
            if not limits:
                return

    @property
    def listed(self) -> bool:
        """Whether all objects of the served custom kinds have been listed once.

        A kind that is new and cannot be listed counts as listed after `_LIST_PATIENCE` seconds.
        """
        if self._begun:
            patient = asyncio.get_running_loop().time() - _LIST_PATIENCE
            waiting = {
                kind: since for kind, since in self._begun.items() if not self._kinds[kind][0].synced.is_set()
            }
            self._begun = {kind: since for kind, since in waiting.items() if since > patient}
            for kind in waiting.keys() - self._begun.keys():
                log.warning("%s.%s cannot be listed: scheduling continues without it", kind.plural, kind.group)
        return not self._begun

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Active reflectors of the custom kinds."""
        return [self._definitions.reflector, *(reflector for reflector, _ in self._kinds.values())]

    def rediscover(self) -> None:
        """Request a discovery, because the served kinds are possibly different."""
        self._definitions.changed.set()

    def readable(self, plural: str) -> dict[ServedKind, bool]:
        """Return the served and readable kinds with a plural name, with whether all objects of each are known."""
        return {
            kind: self.knows_all(kind.group, plural)
            for kind, (reflector, _) in self._kinds.items()
            if kind.plural == plural and reflector.state not in (ReflectorState.ABSENT, ReflectorState.FORBIDDEN)
        }

    def knows_all(self, group: str, plural: str) -> bool:
        """Return whether a kind is served and all its objects are known."""
        return any(
            reflector.synced.is_set() and reflector.state is ReflectorState.WATCHING
            for kind, (reflector, _) in self._kinds.items()
            if (kind.group, kind.plural) == (group, plural)
        )

    async def _discover_kinds(self) -> None:
        await self._definitions.first_list()
        while True:
            try:
                self._update(await self._definitions.discovered())
                self._kinds_known.set()
            except (ApiError, ConnectionLost, ConfigError) as error:
                log.log(self._client.contact.level, "discovery failed: %s", error)
                await asyncio.sleep(1.0)
                continue
            except Exception as error:
                self._feed.failures.record_failure("discovery", "served kinds", error)
                await asyncio.sleep(1.0)
                continue
            try:
                async with asyncio.timeout(_MISSING_PERIOD if self._missing else self._period):
                    await self._definitions.changed.wait()
            except TimeoutError:
                continue
            for pause in _DISCOVERY_LOOKS:
                self._definitions.changed.clear()
                await asyncio.sleep(pause)
                try:
                    self._update(await self._definitions.discovered())
                except (ApiError, ConnectionLost, ConfigError) as error:
                    log.log(self._client.contact.level, "discovery failed: %s", error)
                except Exception as error:
                    self._feed.failures.record_failure("discovery", "served kinds", error)

    def _update(self, served: Discovery) -> None:
        """Start a reflector for each new custom kind and cancel the reflectors of removed kinds."""
        self._discovered(served)
        groups = dict(served_groups(served, self._intake))
        accounts = dict(served_accounts(served, self._intake))
        owners = dict(served_owners(served, self._intake))
        wanted = {**owners, **groups, **accounts, **dict(served_enricher_kinds(served, self._intake))}
        missing = [kind for kind in self._kinds if kind not in wanted]
        self._missing = {kind: since for kind, since in self._missing.items() if kind in missing}
        for kind in missing:
            if f"{kind.group}/{kind.version}" in served.degraded or not self._has_gone(kind, wanted):
                continue
            self._missing.pop(kind, None)
            self._begun.pop(kind, None)
            _, task = self._kinds.pop(kind)
            task.cancel()
            log.info("%s.%s/%s is no longer served", kind.plural, kind.group, kind.version)
            if kind in self._intake.owners:
                self._feed.apply(self._intake.owners.readable((kind.group, kind.plural), False))
            if kind in self._intake.enrichers:
                self._feed.apply(self._intake.apply(self._intake.enrichers.unserved(kind)))
            if kind in self._intake.owners or kind in self._intake.enrichers:
                continue
            self._feed.apply(self._intake.group_kind_removed(kind))
            self._feed.apply(self._intake.account_kind_removed(kind))
        self._feed.apply(self._intake.serves_native(self._has_native_groups(served)))
        for group, plural in sorted(self._intake.workloads.wanted):
            if served.serves_group(group) is not None and not served.find(group, plural):
                self._feed.apply(self._intake.owners.readable((group, plural), False))
        assert self._tasks is not None
        begun: list[str] = []
        for kind, resource in wanted.items():
            if kind in self._kinds:
                # The CRD could have been deleted and created again between two requests.
                self._kinds[kind][0].look_again()
            else:
                make = self._account_sink if kind in accounts else self._enricher_sink
                of_group = kind in groups and kind not in self._intake.owners
                sink = self._group_sink(kind) if kind in groups else make(kind)
                sink = self._owner_sink(kind) if kind in self._intake.owners else sink
                reflector = Reflector(
                    self._client,
                    resource,
                    decode_group if of_group else decode_object,
                    partial(self._changed, kind, sink),
                    optional=True,
                    failures=self._feed.failures,
                    sink_all=partial(self._groups, kind) if of_group else None,
                )
                self._kinds[kind] = (reflector, self._tasks.create_task(reflector.run()))
                if self._kinds_known.is_set():
                    self._begun[kind] = asyncio.get_running_loop().time()
                begun.append(f"{kind.plural}.{kind.group}/{kind.version}")
        if begun:
            log.info("watching %s", ", ".join(begun))

    def _has_gone(self, kind: ServedKind, wanted: Collection[ServedKind]) -> bool:
        """Return whether a custom kind is removed, and not only omitted by an API server that is starting."""
        other_version = any((served.group, served.plural) == (kind.group, kind.plural) for served in wanted)
        if other_version or self._definitions.withdrawn(kind.group, kind.plural):
            return True
        now = asyncio.get_running_loop().time()
        return now - self._missing.setdefault(kind, now) >= _GONE_AFTER

    def _has_native_groups(self, served: Discovery) -> bool:
        """Return whether the API server serves Kubernetes' own PodGroup; log once if it does not."""
        has = has_native_groups(served, self._intake) or any(kind.group == NATIVE for kind in self._kinds)
        if not has and not self._lacks_native:
            log.info("%s", NOT_SERVED)
        self._lacks_native = not has
        return has

    def _changed(self, kind: ServedKind, sink: Sink, change: Change[Document]) -> None:
        sink(change)
        watched = self._kinds.get(kind) if isinstance(change, Synced) else None
        if watched is not None and kind in self._intake.owners:
            readable = watched[0].state not in (ReflectorState.ABSENT, ReflectorState.FORBIDDEN)
            self._feed.apply(self._intake.owners.readable((kind.group, kind.plural), readable))
        if watched is not None and watched[0].state is ReflectorState.ABSENT:
            self.rediscover()  # the API server could serve the kind in another version now

    def _group_sink(self, kind: ServedKind) -> Sink:
        intake = self._intake
        group, removed, malformed = intake.group, intake.group_removed, intake.malformed_group
        apply_other = self._feed.sink(kind, partial(group, kind), partial(removed, kind), partial(malformed, kind))

        def sink(change: Change[Document]) -> None:
            if isinstance(change, Upsert):
                self._groups(kind, (change,))
            else:
                apply_other(change)

        return sink

    def _groups(self, kind: ServedKind, changes: Sequence[Upsert[Document]]) -> None:
        intake = self._intake

        def about(change: Upsert[Document]) -> ObjectRef:
            return ObjectRef(kind.api_version, kind.kind, *change.key, change.uid)

        def malformed(change: Upsert[Document], error: Exception) -> list[ClusterEvent]:
            return intake.malformed_group(kind, *change.key, change.uid, error_text(error))

        def removed(change: Upsert[Document], error: Exception) -> list[ClusterEvent]:
            return intake.group_removed(kind, *change.key)

        self._feed.take_in_all(changes, about, partial(intake.group, kind), (malformed, removed))
        for change in changes:
            # The status of the group is checked again, whichever client has written the group.
            self._feed.gang_touched(GangKey(*change.key))

    def _owner_sink(self, kind: ServedKind) -> Sink:
        intake = self._intake
        sizes = self._feed.sink(
            kind,
            partial(intake.owners.updated, kind),
            partial(intake.owners.removed, kind),
            unreadable_is_gone=True,
        )
        if kind not in intake.enrichers:
            return sizes
        enrich = self._enricher_sink(kind)

        def both(change: Change[Document]) -> None:
            sizes(change)
            enrich(change)

        return both

    def _account_sink(self, kind: ServedKind) -> Sink:
        intake = self._intake
        return self._feed.sink(
            kind,
            partial(intake.account, kind),
            partial(intake.account_removed, kind),
            partial(intake.malformed_account, kind),
            unreadable_is_gone=True,
            # The status of the object is possibly different, or there is news to publish.
            always_changed=True,
        )

    def _enricher_sink(self, kind: ServedKind) -> Sink:
        enrichers, apply = self._intake.enrichers, self._intake.apply
        return self._feed.sink(
            kind,
            lambda document: apply(enrichers.updated(kind, document)),
            lambda namespace, name: apply(enrichers.removed(kind, namespace, name)),
            lambda namespace, name, uid, error: apply(enrichers.malformed(kind, namespace, name, uid, error)),
            unreadable_is_gone=True,
        )
