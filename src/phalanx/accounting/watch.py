"""Watches the pods and gangs of a cluster, and gathers what the recorder has not been told yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

import msgspec

from phalanx.accounting.facts import GangFact, PodFact, ReadPod, gang_fact, gone, key_of, plain, pod_fact, read_pod
from phalanx.accounting.recorder import GangChange
from phalanx.accounting.records import Lost
from phalanx.cluster.state import ClusterState
from phalanx.daemon.custom_kinds import CustomKinds
from phalanx.daemon.object_feed import ObjectFeed, error_text
from phalanx.dialects.core import decode_namespace
from phalanx.dialects.devices.claims import ClaimEnricher
from phalanx.dialects.enricher import PodEnrichers
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.dialects.warnings import pod_ref
from phalanx.kube.changes import Change, Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NAMESPACES, PODS
from phalanx.kube.failures import Failures
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod


class AccountingWatch:
    """`changed` is called after each change. Pods count that are for one of `scheduler_names`, and those that are
    `adopted`: recorded, and not known to have ended. `clock` gives seconds since the epoch.

    Gangs are keyed by names that are clean (`plain`).
    """

    def __init__(
        self,
        client: KubeClient,
        scheduler_names: Collection[str],
        options: DialectOptions,
        *,
        changed: Callable[[], None],
        clock: Callable[[], float],
        failures: Failures,
        discovery_period: float = 30.0,
    ) -> None:
        self.adopted: frozenset[str] = frozenset()
        #: Until when nothing was missed: seconds since the epoch, 0 before the first list.
        self.watched_until = 0
        self._schedulers = frozenset(scheduler_names)
        self._changed = changed
        self._clock = clock
        self._failures = failures
        self._state = ClusterState(scheduler_names)
        # Where pods may run is none of our business; what claims for devices they hold is.
        intake = self._intake = Intake(
            scheduler_names, options, Signer(unchecked=True), dialects=installed_dialects()
        )
        intake.enrichers = PodEnrichers((ClaimEnricher(), intake.composites))
        self._feed = ObjectFeed(intake, self._state, changed, self._touched, failures)
        self._kinds = CustomKinds(client, intake, self._feed, lambda served: None, discovery_period)
        self._reflector = Reflector(client, PODS, read_pod, self._pod, failures=failures)
        namespaces = self._feed.sink(
            NAMESPACES, intake.namespace, lambda _, name: intake.namespace_removed(name), always_changed=True
        )
        self._namespaces = Reflector(
            client, NAMESPACES, decode_namespace, namespaces, optional=True, failures=failures
        )
        self._pods: dict[str, PodFact] = {}
        self._gone: set[str] = set()
        self._members: dict[GangKey, set[str]] = {}
        self._queues: dict[GangKey, str] = {}
        self._dirty: dict[GangKey, set[str]] = {}
        self._lost: dict[GangKey, list[Lost]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            self._kinds.start(tasks)
            # Pods come last: each is then seen with its gang.
            await self._kinds.synced()
            tasks.create_task(self._reflector.run())

    async def synced(self) -> None:
        """Returns when everything has been seen once."""
        await self._namespaces.synced.wait()
        await self._kinds.synced()
        await self._reflector.synced.wait()
        await self._feed.publish_gangs()

    def look(self) -> bool:
        """Whether all pods are known as they are. In the midst of a list those that are gone are not."""
        self._settle()
        fresh = self._reflector.synced.is_set() and self._reflector.state is ReflectorState.WATCHING
        if fresh:
            self.watched_until = int(self._clock())
        return fresh

    def uids(self) -> set[str]:
        """Of all pods, whoever's they are, and of what declares gangs."""
        gangs = (self._gang(key) for key in self._state.gangs)
        return {*self._state.pods, *(gang.run_uid for gang in gangs if gang is not None)}

    def declared(self, key: GangKey) -> bool:
        """Whether there is a gang of that name, or a pod of it."""
        return self._gang(key) is not None or bool(self._members.get(key))

    # what the recorder has not been told

    def note_lost(self, uid: str, key: GangKey, since: int) -> None:
        """A pod is gone that was there at `since`."""
        self._lost.setdefault(key, []).append(Lost(uid, since, int(self._clock())))
        self._dirty.setdefault(key, set())

    def note_gang(self, key: GangKey) -> None:
        self._dirty.setdefault(key, set())

    def take(self, pods: int) -> list[GangChange]:
        """Whole gangs, until that makes so many pods."""
        taken: list[GangChange] = []
        count = 0
        while self._dirty and count < pods:
            key, uids = next(iter(self._dirty.items()))
            del self._dirty[key]
            gang = self._gang(key)
            facts = [self._pods[uid] for uid in sorted(uids) if uid in self._pods]
            taken.append(GangChange(key, gang, facts, self._lost.pop(key, [])))
            count += len(facts) + 1
        return taken

    def put_back(self, changes: Iterable[GangChange]) -> None:
        """They could not be recorded."""
        for change in changes:
            self._dirty.setdefault(change.key, set()).update(each.uid for each in change.pods)
            if change.lost:
                self._lost.setdefault(change.key, []).extend(change.lost)

    def done(self, changes: Iterable[GangChange]) -> None:
        """They are recorded; what is gone need not be known any longer."""
        for change in changes:
            pending = self._dirty.get(change.key, ())
            for uid in [each.uid for each in change.pods if each.uid in self._gone and each.uid not in pending]:
                self._drop(uid)

    @property
    def waiting(self) -> bool:
        return bool(self._dirty)

    # what comes

    def _pod(self, change: Change[ReadPod]) -> None:
        intake = self._intake
        match change:
            case Upsert(read, raw, (namespace, name), uid):
                self._feed.take_in(
                    pod_ref(namespace, name, uid),
                    lambda _: intake.pod(read.pod),
                    lambda error: intake.malformed_pod(namespace, name, uid, error_text(error), raw),
                )
                self._note(uid, read)
            case Delete((namespace, name), uid, last):
                if last is not None:
                    self._feed.take_in(pod_ref(namespace, name, uid), lambda _: intake.pod(last.pod))
                    self._note(uid, last)
                self._feed.take_in(
                    pod_ref(namespace, name, uid), lambda _: intake.pod_removed(namespace, name, uid)
                )
                self._note_gone(uid, seen=last is not None)
            case Malformed((namespace, name), uid, problem, raw):
                if name:
                    self._feed.take_in(
                        pod_ref(namespace, name, uid),
                        lambda _: intake.malformed_pod(namespace, name, uid, problem, raw),
                    )
            case Synced():
                self._changed()

    def _note(self, uid: str, read: ReadPod) -> None:
        record = self._state.pods.get(uid)
        if record is None or not self._counts(record.pod):
            return
        spec = record.pod
        gang = self._state.gangs.get(GangKey(spec.namespace, spec.gang)) if spec.gang else None
        queue = gang.spec.queue if gang is not None and gang.spec is not None else spec.queue
        fact, last = pod_fact(read, spec, queue), self._pods.get(uid)
        if fact == last:
            return
        self._pods[uid] = fact
        key = key_of(fact)
        if last is not None and key_of(last) != key:
            # It says that it is in another gang now; what is recorded stays.
            self._leave(key_of(last), uid)
        self._members.setdefault(key, set()).add(uid)
        self._mark(key, uid)

    def _counts(self, pod: Pod) -> bool:
        return not pod.placeholder and (pod.scheduler in self._schedulers or pod.uid in self.adopted)

    def _note_gone(self, uid: str, *, seen: bool) -> None:
        fact = self._pods.get(uid)
        if fact is None:
            return
        key = key_of(fact)
        self._gone.add(uid)
        if seen or fact.outcome:
            self._pods[uid] = gone(fact, int(self._clock()))
            self._mark(key, uid)
        else:
            # Found missing by a new list. What it was when it was last seen is recorded first.
            self._mark(key, uid)
            self.note_lost(uid, key, self.watched_until)

    def _mark(self, key: GangKey, uid: str) -> None:
        self._dirty.setdefault(key, set()).add(uid)
        self._changed()

    def _drop(self, uid: str) -> None:
        self._gone.discard(uid)
        self._leave(key_of(self._pods.pop(uid)), uid)

    def _leave(self, key: GangKey, uid: str) -> None:
        members = self._members[key]
        members.discard(uid)
        if not members:
            del self._members[key]

    def _touched(self, key: GangKey) -> None:
        """A gang's declaration may be another; its members that have no node yet are in its queue."""
        clean = GangKey(key.namespace, plain(key.name))
        gang = self._gang(clean)
        if gang is None and clean not in self._members and clean not in self._queues:
            return
        dirty = self._dirty.setdefault(clean, set())
        if gang is None:
            self._queues.pop(clean, None)
        elif self._queues.get(clean) != gang.queue:
            self._queues[clean] = gang.queue
            for uid in self._members.get(clean, ()):
                fact = self._pods[uid]
                if not fact.placed and fact.queue != gang.queue:
                    self._pods[uid] = msgspec.structs.replace(fact, queue=gang.queue)
                    dirty.add(uid)
        self._changed()

    def _settle(self) -> None:
        """What only a scheduler's cycle would take note of must not pile up."""
        self._intake.drain_warnings()
        state = self._state
        state.pop_changed()
        state.ledger.refresh_sums()
        state.gangs.inqueue.total()
        state.gangs.composites.gangs(GangKey("", ""))

    def _gang(self, key: GangKey) -> GangFact | None:
        """Not those of other schedulers."""
        record = self._state.gangs.get(key)
        if record is None or record.spec is None:
            return None
        ours = key in self._members or self._intake.is_ours(key)
        return gang_fact(record.spec) if ours else None
