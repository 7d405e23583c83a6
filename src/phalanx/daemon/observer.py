"""Observation of the cluster: reflectors feed a `ClusterState` with the API objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.custom_kinds import CustomKinds
from phalanx.daemon.decision_log import Arrivals
from phalanx.daemon.object_feed import ObjectFeed, error_text, object_name
from phalanx.dialects.core import (
    NodeObject,
    PodObject,
    decode_namespace,
    decode_node,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.pod_reader import PodForm, PodReader
from phalanx.dialects.reader import decode_object
from phalanx.dialects.warnings import ObjectRef, node_ref, pod_ref
from phalanx.kube.changes import Change, Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from phalanx.kube.discovery import Discovery
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.kube.wire import ItemForm, ObjectHead
from phalanx.model.events import ClusterEvent, NodeRemoved, PodRemoved
from phalanx.model.gang import GangKey


class Observer:
    """Observer of all objects that scheduling needs.

    `changed` is called after each change of the state. `pod_seen` and `pod_gone` receive each pod object as it
    arrived, so that the executor compares its writes with it. `gang_touched` receives each gang whose members,
    declaration or status have changed. `discovered` receives each answer of discovery.
    """

    def __init__(
        self,
        client: KubeClient,
        intake: Intake,
        state: ClusterState,
        *,
        changed: Callable[[], None],
        pod_seen: Callable[[PodObject], None],
        pod_gone: Callable[[str], None],
        gang_touched: Callable[[GangKey], None],
        failures: Failures | None = None,
        arrivals: Arrivals | None = None,
        discovered: Callable[[Discovery], None] = lambda served: None,
        discovery_period: float = 30.0,
    ) -> None:
        self._client = client
        self._intake = intake
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[Reflector[Any], asyncio.Task[None]] = {}
        self._pod_seen = pod_seen
        self._pod_gone = pod_gone
        feed = self._feed = ObjectFeed(intake, state, changed, gang_touched, failures or Failures(), arrivals)
        self.kinds = CustomKinds(client, intake, feed, discovered, discovery_period)
        self.nodes = self._reflector(NODES, decode_node, self._node)
        reader = PodReader()
        self.pods = Reflector(
            client,
            PODS,
            reader.pod,
            self._pod,
            identify=_head,
            failures=feed.failures,
            sink_all=self._pods,
            form=ItemForm(PodForm, reader.of_form),
            after=self.nodes.synced,  # pods are charged to nodes
        )
        self._caught_up = asyncio.Event()
        intake.group_objects.postpone()
        self._others = [
            self._reflector(resource, decode, sink, optional=True)
            for resource, decode, sink in (
                (
                    PRIORITY_CLASSES,
                    decode_priority_class,
                    feed.sink(
                        PRIORITY_CLASSES,
                        intake.priority_class,
                        lambda _, name: intake.priority_class_removed(name),
                    ),
                ),
                (
                    NAMESPACES,
                    decode_namespace,
                    feed.sink(
                        NAMESPACES,
                        intake.namespace,
                        lambda _, name: intake.namespace_removed(name),
                        always_changed=True,
                    ),
                ),
                (
                    RESOURCE_QUOTAS,
                    decode_resource_quota,
                    feed.sink(
                        RESOURCE_QUOTAS,
                        intake.resource_quota,
                        intake.resource_quota_removed,
                        always_changed=True,
                    ),
                ),
                (
                    DISRUPTION_BUDGETS,
                    decode_object,
                    feed.sink(
                        DISRUPTION_BUDGETS,
                        intake.disruption_budget,
                        intake.disruption_budget_removed,
                        intake.malformed_disruption_budget,
                    ),
                ),
            )
        ]

    async def run(self) -> None:
        """Watch all objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reflector in (self.nodes, *self._others):
                self._running[reflector] = tasks.create_task(reflector.run())
            # The groups are started early: their list takes the API server long.
            self.kinds.start(tasks)
            self._running[self.pods] = tasks.create_task(self.pods.run())
            tasks.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        await self.kinds.synced()
        await self.pods.synced.wait()
        self._feed.apply(self._intake.catch_up())
        self._caught_up.set()

    def list_again(self, *, redeliver: bool = False) -> None:
        """List pods and nodes once more and make `synced` wait for it; with `redeliver` process unchanged objects
        as well.
        """
        for reflector in (self.pods, self.nodes):
            reflector.list_anew(redeliver=redeliver)
            running = self._running.get(reflector)
            if running is not None and self._tasks is not None:
                running.cancel()
                self._running[reflector] = self._tasks.create_task(self._after(running, reflector))

    async def _after(self, running: asyncio.Task[None], reflector: Reflector[Any]) -> None:
        """Start a reflector after its last run has ended: two at a time would deliver the same objects."""
        await asyncio.wait({running})
        reflector.list_anew()
        await reflector.run()

    async def synced(self) -> None:
        """Return when all observed objects have been listed once."""
        await self.kinds.synced()
        for reflector in (self.pods, self.nodes, *self._others):
            await reflector.synced.wait()
        await self._caught_up.wait()

    async def publish_gangs(self) -> None:
        """Report all gangs to the parts, and from then on each that changes. Must be called after `synced`."""
        await self._feed.publish_gangs()

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Active reflectors of the observer."""
        return [self.pods, self.nodes, *self._others, *self.kinds.reflectors]

    @property
    def complete(self) -> bool:
        """Whether all observed objects have been listed once; it stays true."""
        return self._caught_up.is_set() and all(reflector.synced.is_set() for reflector in self._others)

    @property
    def fresh(self) -> bool:
        """Whether pods and nodes are watched right now and groups, queues and quotas are known.

        Nothing is bound on a stale state.
        """
        watching = all(reflector.state is ReflectorState.WATCHING for reflector in (self.pods, self.nodes))
        return watching and self.kinds.listed

    def apply_event(self, event: ClusterEvent) -> None:
        """Apply an event to the state that comes from no watch."""
        self._feed.apply([event])

    def _reflector(self, resource: Resource, decode: Any, sink: Any, optional: bool = False) -> Reflector[Any]:
        return Reflector(self._client, resource, decode, sink, optional=optional, failures=self._feed.failures)

    def _pod(self, change: Change[PodObject]) -> None:
        intake = self._intake
        match change:
            case Upsert():
                self._pods((change,))
            case Delete((namespace, name), uid):
                about = pod_ref(namespace, name, uid)
                self._feed.take_in(
                    about, lambda _: intake.pod_removed(namespace, name, uid), lambda _: [PodRemoved(uid)]
                )
                self._feed.failures.guard("executor", f"Pod {object_name(about)}", partial(self._pod_gone, uid))
            case Malformed((namespace, name), uid, problem, raw):
                if name:
                    about = pod_ref(namespace, name, uid)
                    self._feed.take_in(about, lambda _: intake.malformed_pod(namespace, name, uid, problem, raw))
            case Synced():
                self._feed.changed()

    def _pods(self, changes: Sequence[Upsert[PodObject]]) -> None:
        for change in changes:
            try:
                self._pod_seen(change.object)
            except Exception as error:
                self._feed.failures.record_failure("executor", f"Pod {object_name(_about(change))}", error)
        self._feed.take_in_all(changes, _about, self._intake.pod, (self._unreadable,))

    def _unreadable(self, change: Upsert[PodObject], error: Exception) -> list[ClusterEvent]:
        namespace, name = change.key
        raw = change.raw or msgspec.json.encode(change.object)
        return self._intake.malformed_pod(namespace, name, change.uid, error_text(error), raw)

    def _node(self, change: Change[NodeObject]) -> None:
        intake = self._intake
        match change:
            case Upsert(node, _, (_, name), uid):
                # An unreadable node has no capacity; its pods stay known.
                self._feed.take_in(
                    node_ref(name, uid),
                    lambda _: intake.node(node),
                    lambda _: intake.node_removed(name),
                    lambda _: [NodeRemoved(name)],
                )
            case Delete((_, name), uid) | Malformed((_, name), uid):
                self._feed.take_in(
                    node_ref(name, uid), lambda _: intake.node_removed(name), lambda _: [NodeRemoved(name)]
                )
            case Synced():
                self._feed.changed()


def _head(pod: PodObject) -> ObjectHead:
    metadata = pod.metadata
    return ObjectHead((metadata.namespace, metadata.name), metadata.uid, metadata.resource_version)


def _about(change: Upsert[PodObject]) -> ObjectRef:
    namespace, name = change.key
    return pod_ref(namespace, name, change.uid)
