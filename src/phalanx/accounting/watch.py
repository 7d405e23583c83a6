"""Watch of the pods and gangs of a cluster, with the changes that the usage recorder has not written yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

import msgspec

from phalanx.accounting.facts import (
    GangFact,
    PodFact,
    ReadPod,
    deleted_fact,
    gang_fact,
    key_of,
    plain,
    pod_fact,
    read_pod,
)
from phalanx.accounting.recorder import GangChange
from phalanx.accounting.records import Lost
from phalanx.cluster.state import ClusterState
from phalanx.daemon.custom_kinds import CustomKinds
from phalanx.daemon.object_feed import ObjectFeed, error_text
from phalanx.dialects.core import decode_namespace
from phalanx.dialects.devices.claims import ClaimEnricher
from phalanx.dialects.enricher import PodEnrichers
from phalanx.dialects.gangs.declaration import job_queue
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
    """Watch of a cluster for the usage recorder; `changed` is called after each change. `clock` returns seconds
    since the epoch.

    It covers pods for one of `scheduler_names` and `adopted` pods: recorded ones without a known end.

    Gangs are keyed by clean names (`plain`).
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
        #: Time until which no change was missed: seconds since the epoch, 0 before the first list.
        self.watched_until = 0
        self._schedulers = frozenset(scheduler_names)
        self._changed = changed
        self._clock = clock
        self._failures = failures
        self._state = ClusterState(scheduler_names)
        # Accounting needs no placement rules, only claims, because of the devices that they hold, and the
        # limits of run times, because a pod that is deleted at its limit has failed.
        intake = self._intake = Intake(
            scheduler_names, options, Signer(unchecked=True), dialects=installed_dialects()
        )
        intake.enrichers = PodEnrichers((ClaimEnricher(), intake.composites, intake.run_times))
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
        """Watch pods and gangs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            self._kinds.start(tasks)
            # Pods are listed last, so that each is seen together with its gang.
            await self._kinds.synced()
            tasks.create_task(self._reflector.run())

    async def synced(self) -> None:
        """Wait until all watched objects have been listed once."""
        await self._namespaces.synced.wait()
        await self._kinds.synced()
        await self._reflector.synced.wait()
        await self._feed.publish_gangs()

    def refresh(self) -> bool:
        """Update `watched_until`. Return whether all pods are known; during a list, deleted pods are still
        included."""
        self._drop_scheduler_backlog()
        fresh = self._reflector.synced.is_set() and self._reflector.state is ReflectorState.WATCHING
        if fresh:
            self.watched_until = int(self._clock())
        return fresh

    def uids(self) -> set[str]:
        """Return the uids of all pods, of every scheduler, and of the runs of all declared gangs."""
        gangs = (self._gang(key) for key in self._state.gangs)
        return {*self._state.pods, *(gang.run_uid for gang in gangs if gang is not None)}

    def declared(self, key: GangKey) -> bool:
        """Return whether a gang of that name is declared by an object or has a pod."""
        return self._gang(key) is not None or bool(self._members.get(key))

    # changes that are not recorded yet

    def note_lost(self, uid: str, key: GangKey, since: int) -> None:
        """Record that a pod's deletion was not observed; it existed at `since`."""
        self._lost.setdefault(key, []).append(Lost(uid, since, int(self._clock())))
        self._dirty.setdefault(key, set())

    def note_gang(self, key: GangKey) -> None:
        self._dirty.setdefault(key, set())

    def take(self, pods: int) -> list[GangChange]:
        """Remove and return the changes of whole gangs, until they contain at least `pods` pods."""
        changes: list[GangChange] = []
        count = 0
        while self._dirty and count < pods:
            key, uids = next(iter(self._dirty.items()))
            del self._dirty[key]
            gang = self._gang(key)
            facts = [self._pods[uid] for uid in sorted(uids) if uid in self._pods]
            changes.append(GangChange(key, gang, facts, self._lost.pop(key, [])))
            count += len(facts) + 1
        return changes

    def requeue(self, changes: Iterable[GangChange]) -> None:
        """Queue changes again that the recorder could not write."""
        for change in changes:
            self._dirty.setdefault(change.key, set()).update(pod.uid for pod in change.pods)
            if change.lost:
                self._lost.setdefault(change.key, []).extend(change.lost)

    def confirm(self, changes: Iterable[GangChange]) -> None:
        """Record that changes are stored in the database, and forget the deleted pods among them."""
        for change in changes:
            pending = self._dirty.get(change.key, ())
            for uid in [pod.uid for pod in change.pods if pod.uid in self._gone and pod.uid not in pending]:
                self._drop(uid)

    @property
    def waiting(self) -> bool:
        return bool(self._dirty)

    # watch events

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
        spec, last = record.pod, self._pods.get(uid)
        if last is not None and last.outcome:
            return  # an end that was observed does not change while the pod is deleted
        fact = pod_fact(read, spec, self._queue_of(read, spec))
        if fact == last:
            return
        self._pods[uid] = fact
        key = key_of(fact)
        if last is not None and key_of(last) != key:
            # The pod has changed its gang; the row that is recorded already stays with the old one.
            self._leave(key_of(last), uid)
        self._members.setdefault(key, set()).add(uid)
        self._mark(key, uid)

    def _queue_of(self, read: ReadPod, spec: Pod) -> str:
        """Return the queue to charge: that of the pod's group, or of its job where the group is gone. Volcano's
        controllers delete the group of a job that has ended."""
        record = self._state.gangs.get(GangKey(spec.namespace, spec.gang)) if spec.gang else None
        gang = record.spec if record is not None else None
        if (gang is None or gang.source is None) and (queue := job_queue(read.pod.metadata)):
            return queue
        return gang.queue if gang is not None else spec.queue

    def _counts(self, pod: Pod) -> bool:
        return not pod.placeholder and (pod.scheduler in self._schedulers or pod.uid in self.adopted)

    def _note_gone(self, uid: str, *, seen: bool) -> None:
        fact = self._pods.get(uid)
        if fact is None:
            return
        key = key_of(fact)
        self._gone.add(uid)
        if seen or fact.outcome:
            self._pods[uid] = deleted_fact(fact, int(self._clock()))
            self._mark(key, uid)
        else:
            # A new list found the deletion. The last known state of the pod is recorded first.
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
        """Mark a gang as changed. Its unplaced members are counted in its present queue."""
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

    def _drop_scheduler_backlog(self) -> None:
        """Drop changes in the cluster state that only a scheduling cycle consumes, so that they do not
        accumulate."""
        self._intake.drain_warnings()
        state = self._state
        state.pop_changed()
        state.ledger.refresh_sums()
        state.gangs.inqueue.total()
        state.gangs.composites.gangs(GangKey("", ""))

    def _gang(self, key: GangKey) -> GangFact | None:
        """Return the declaration of a gang for the recorder, None for a gang of another scheduler."""
        record = self._state.gangs.get(key)
        if record is None or record.spec is None:
            return None
        ours = key in self._members or self._intake.is_ours(key)
        return gang_fact(record.spec) if ours else None
