"""Watches the API and keeps a `ClusterState` current: reflectors in, nouns out, applied as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from phalanx.cluster.state import ClusterState
from phalanx.daemon.served import has_native_groups, served_accounts, served_enricher_kinds, served_groups
from phalanx.dialects.core import (
    NamespaceObject,
    NodeObject,
    PodObject,
    PriorityClassObject,
    ResourceQuotaObject,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.gangs.unnamed_members import NOT_SERVED
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import decode_object
from phalanx.dialects.warnings import ObjectRef, node_ref, pod_ref
from phalanx.kube.changes import Change, Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import (
    DEFINITIONS,
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from phalanx.kube.discovery import Discovery, discover
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.model.decoding import quoted
from phalanx.model.events import (
    ClusterEvent,
    CompositeRemoved,
    CompositeUpdated,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod, PodClass

log = logging.getLogger(__name__)

# After a CRD changed, its kind is served within moments; these are the looks that find it, in seconds.
_DISCOVERY_LOOKS = (0.1, 0.4, 1.0, 3.0)


class Observer:
    """Feeds every object that matters through the intake into the state.

    `changed` is called after each change that the state took in. `pod_seen` and `pod_gone` see each pod object
    as it came (for what the executor must compare its writes with), `gang_touched` learns whose members,
    declaration or status have changed. Kinds of groups, queues and quotas come and go with their CRDs: discovery is
    repeated every `discovery_period` seconds and whenever a CRD changes. An object that the intake stumbles over
    counts as one that cannot be read: it harms itself alone. `discovered` is told each answer of discovery.
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
        discovered: Callable[[Discovery], None] = lambda served: None,
        discovery_period: float = 30.0,
    ) -> None:
        self._failures = failures or Failures()
        self._client = client
        self._intake = intake
        self._state = state
        self._changed = changed
        self._pod_seen = pod_seen
        self._pod_gone = pod_gone
        self._tell_touched = gang_touched
        self._discovered = discovered
        # Until everything has been seen a gang may look as if it lacked members: nobody is told of it before.
        self._early: dict[GangKey, None] | None = {}
        self._discovery_period = discovery_period
        self._definitions_changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._kinds: dict[ServedKind, tuple[Reflector[Any], asyncio.Task[None]]] = {}
        self._kinds_known = asyncio.Event()
        self._lacks_native = False
        self.pods = self._reflector(PODS, decode_pod, self._pod)
        self.nodes = self._reflector(NODES, decode_node, self._node)
        self.classes = self._reflector(PRIORITY_CLASSES, decode_priority_class, self._priority_class, optional=True)
        self.namespaces = self._reflector(NAMESPACES, decode_namespace, self._namespace, optional=True)
        self.quotas = self._reflector(RESOURCE_QUOTAS, decode_resource_quota, self._resource_quota, optional=True)
        self.budgets = self._reflector(DISRUPTION_BUDGETS, decode_object, self._disruption_budget, optional=True)
        self.definitions = self._reflector(DEFINITIONS, bytes, self._definition, optional=True)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reflector in (*self._core(), self.definitions):
                tasks.create_task(reflector.run())
            tasks.create_task(self._discover_kinds())

    async def synced(self) -> None:
        """Returns when everything that exists has been seen once; from then on `gang_touched` is called."""
        await self._kinds_known.wait()
        for reflector in (*self._core(), *(reflector for reflector, _ in self._kinds.values())):
            await reflector.synced.wait()
        early, self._early = self._early, None
        for key in early or ():
            self._gang_touched(key)

    def _core(self) -> tuple[Reflector[Any], ...]:
        return self.pods, self.nodes, self.classes, self.namespaces, self.quotas, self.budgets

    def _gang_touched(self, key: GangKey) -> None:
        if self._early is None:
            self._failures.guard("status", f"gang {key}", partial(self._tell_touched, key))
        else:
            self._early[key] = None

    @property
    def fresh(self) -> bool:
        """Whether pods and nodes are being watched right now: nothing is bound on stale knowledge."""
        return all(reflector.state is ReflectorState.WATCHING for reflector in (self.pods, self.nodes))

    @property
    def knows_budgets(self) -> bool:
        """Whether we may read PodDisruptionBudgets; where we may not, only the Eviction API keeps to them."""
        return self.budgets.state is not ReflectorState.FORBIDDEN

    def served_kinds(self) -> list[ServedKind]:
        return sorted(self._kinds, key=lambda kind: (kind.group, kind.plural))

    def known_kinds(self, plural: str) -> list[ServedKind]:
        """The kinds of a plural that are served and whose objects have all been seen."""
        return [kind for kind in self._kinds if kind.plural == plural and self.knows_all(kind.group, plural)]

    def knows_all(self, group: str, plural: str) -> bool:
        """Whether a kind is served and all its objects have been seen."""
        return any(
            reflector.synced.is_set() and reflector.state is ReflectorState.WATCHING
            for kind, (reflector, _) in self._kinds.items()
            if (kind.group, kind.plural) == (group, plural)
        )

    def _reflector(self, resource: Resource, decode: Any, sink: Any, optional: bool = False) -> Reflector[Any]:
        return Reflector(self._client, resource, decode, sink, optional=optional, failures=self._failures)

    def _take(self, about: ObjectRef, *ways: Callable[[Exception], list[ClusterEvent]]) -> None:
        """Takes in what the first way gives that does not raise; each is told what the one before raised."""
        error = Exception()
        for way in ways:
            try:
                events = way(error)
            except Exception as problem:
                error = problem
                if self._failures.record_failure("intake", f"{about.kind} {_name(about)}", problem):
                    self._intake.warn(about, "NotTakenIn", f"{_name(about)} cannot be taken in: {_text(problem)}")
            else:
                self._apply(events)
                return

    # core kinds

    def _pod(self, change: Change[PodObject]) -> None:
        intake = self._intake
        match change:
            case Upsert(pod, raw, (namespace, name), uid):
                about = pod_ref(namespace, name, uid)
                self._failures.guard("executor", f"Pod {_name(about)}", partial(self._pod_seen, pod))
                self._take(
                    about,
                    lambda _: intake.pod(pod),
                    lambda error: intake.malformed_pod(namespace, name, uid, _text(error), raw),
                )
            case Delete((namespace, name), uid):
                about = pod_ref(namespace, name, uid)
                self._take(about, lambda _: intake.pod_removed(namespace, name, uid), lambda _: [PodRemoved(uid)])
                self._failures.guard("executor", f"Pod {_name(about)}", partial(self._pod_gone, uid))
            case Malformed((namespace, name), uid, problem, raw):
                if name:
                    about = pod_ref(namespace, name, uid)
                    self._take(about, lambda _: intake.malformed_pod(namespace, name, uid, problem, raw))
            case Synced():
                self._changed()

    def _node(self, change: Change[NodeObject]) -> None:
        intake = self._intake
        match change:
            case Upsert(node, _, (_, name), uid):
                # A node that cannot be read offers nothing; its pods stay known.
                self._take(
                    node_ref(name, uid),
                    lambda _: intake.node(node),
                    lambda _: intake.node_removed(name),
                    lambda _: [NodeRemoved(name)],
                )
            case Delete((_, name), uid) | Malformed((_, name), uid):
                self._take(node_ref(name, uid), lambda _: intake.node_removed(name), lambda _: [NodeRemoved(name)])
            case Synced():
                self._changed()

    def _priority_class(self, change: Change[PriorityClassObject]) -> None:
        match change:
            case Upsert(entry, _, (_, name), uid):
                self._take(_ref(PRIORITY_CLASSES, "", name, uid), lambda _: self._intake.priority_class(entry))
            case Delete((_, name), uid):
                removed = self._intake.priority_class_removed
                self._take(_ref(PRIORITY_CLASSES, "", name, uid), lambda _: removed(name))

    def _namespace(self, change: Change[NamespaceObject]) -> None:
        match change:
            case Upsert(namespace, _, (_, name), uid):
                self._take(_ref(NAMESPACES, "", name, uid), lambda _: self._intake.namespace(namespace))
            case Delete((_, name), uid):
                self._take(_ref(NAMESPACES, "", name, uid), lambda _: self._intake.namespace_removed(name))
        self._changed()

    def _resource_quota(self, change: Change[ResourceQuotaObject]) -> None:
        match change:
            case Upsert(quota, _, (namespace, name), uid):
                self._take(
                    _ref(RESOURCE_QUOTAS, namespace, name, uid), lambda _: self._intake.resource_quota(quota)
                )
            case Delete((namespace, name), uid):
                removed = self._intake.resource_quota_removed
                self._take(_ref(RESOURCE_QUOTAS, namespace, name, uid), lambda _: removed(namespace, name))
        self._changed()

    def _disruption_budget(self, change: Change[dict[str, Any]]) -> None:
        intake = self._intake
        match change:
            case Upsert(document, _, (namespace, name), uid):
                self._take(
                    _ref(DISRUPTION_BUDGETS, namespace, name, uid),
                    lambda _: intake.disruption_budget(document),
                    lambda error: intake.malformed_disruption_budget(namespace, name, uid, _text(error)),
                )
            case Delete((namespace, name), uid):
                removed = intake.disruption_budget_removed
                self._take(_ref(DISRUPTION_BUDGETS, namespace, name, uid), lambda _: removed(namespace, name))
            case Malformed((namespace, name), uid, problem):
                if name:
                    self._take(
                        _ref(DISRUPTION_BUDGETS, namespace, name, uid),
                        lambda _: intake.malformed_disruption_budget(namespace, name, uid, problem),
                    )

    def _definition(self, change: Change[bytes]) -> None:
        self._definitions_changed.set()

    def rediscover(self) -> None:
        """What is served may have changed, without that a definition has."""
        self._definitions_changed.set()

    def apply_event(self, event: ClusterEvent) -> None:
        """A fact that no watch brings."""
        self._apply([event])

    def _apply(self, events: list[ClusterEvent]) -> None:
        for event in events:
            try:
                self._apply_one(event)
            except Exception as error:
                self._failures.record_failure("state", _what(event), error)
                if isinstance(event, PodUpdated):
                    self._occupy(event.pod)
        if events:
            self._changed()

    def _apply_one(self, event: ClusterEvent) -> None:
        touched = gangs_of(self._state, event)
        self._state.apply(event)
        for key in touched:
            self._gang_touched(key)

    def _occupy(self, pod: Pod) -> None:
        """Keeps of a pod that cannot be known as it is what it takes from its node."""
        bare = Pod(
            pod.namespace,
            pod.name,
            pod.uid,
            PodClass(requests=pod.usage or pod.pod_class.requests),
            usage=pod.usage,
            node=pod.node,
            scheduler=pod.scheduler,
            phase=pod.phase,
            terminating=pod.terminating,
            preemptable=False,
            problem="the pod cannot be taken in",
        )
        for event in (PodRemoved(pod.uid), PodUpdated(bare)):
            self._failures.guard("state", _what(event), partial(self._apply_one, event))

    # kinds of groups, queues and quotas

    async def _discover_kinds(self) -> None:
        while True:
            try:
                self._follow(await discover(self._client))
                self._kinds_known.set()
            except (ApiError, ConnectionLost, ConfigError) as error:
                log.warning("discovery failed: %s", error)
                await asyncio.sleep(1.0)
                continue
            except Exception as error:
                self._failures.record_failure("discovery", "what the API server serves", error)
                await asyncio.sleep(1.0)
                continue
            try:
                await asyncio.wait_for(self._definitions_changed.wait(), self._discovery_period)
            except TimeoutError:
                continue
            for pause in _DISCOVERY_LOOKS:
                self._definitions_changed.clear()
                await asyncio.sleep(pause)
                try:
                    self._follow(await discover(self._client))
                except (ApiError, ConnectionLost, ConfigError) as error:
                    log.warning("discovery failed: %s", error)
                except Exception as error:
                    self._failures.record_failure("discovery", "what the API server serves", error)

    def _follow(self, served: Discovery) -> None:
        """Starts a reflector for each kind that is served now and ends those of kinds that are not any more."""
        self._discovered(served)
        groups = dict(served_groups(served, self._intake))
        accounts = dict(served_accounts(served, self._intake))
        wanted = {**groups, **accounts, **dict(served_enricher_kinds(served, self._intake))}
        for kind in [kind for kind in self._kinds if kind not in wanted]:
            if f"{kind.group}/{kind.version}" in served.degraded:
                continue
            _, task = self._kinds.pop(kind)
            task.cancel()
            log.info("%s.%s/%s is no longer served", kind.plural, kind.group, kind.version)
            if kind in self._intake.enrichers:
                self._apply(self._intake.apply(self._intake.enrichers.unserved(kind)))
                continue
            self._apply(self._intake.group_kind_removed(kind))
            self._apply(self._intake.account_kind_removed(kind))
        self._apply(self._intake.serves_native(self._has_native_groups(served)))
        assert self._tasks is not None
        for kind, resource in wanted.items():
            if kind not in self._kinds:
                sink = (
                    self._group_sink(kind)
                    if kind in groups
                    else self._account_sink(kind)
                    if kind in accounts
                    else self._facet_sink(kind)
                )
                reflector = self._reflector(resource, decode_object, sink, optional=True)
                self._kinds[kind] = (reflector, self._tasks.create_task(reflector.run()))
                log.info("watching %s.%s/%s", kind.plural, kind.group, kind.version)

    def _has_native_groups(self, served: Discovery) -> bool:
        """Whether pods can name groups of Kubernetes' own; says so once where they cannot."""
        has = has_native_groups(served, self._intake)
        if not has and not self._lacks_native:
            log.info("%s", NOT_SERVED)
        self._lacks_native = not has
        return has

    def _group_sink(self, kind: ServedKind) -> Callable[[Change[dict[str, Any]]], None]:
        intake = self._intake
        # Whoever wrote a group's status, it is compared with the truth again.
        return self._sink(
            kind,
            intake.group,
            intake.malformed_group,
            intake.group_removed,
            lambda namespace, name: self._gang_touched(GangKey(namespace, name)),
        )

    def _account_sink(self, kind: ServedKind) -> Callable[[Change[dict[str, Any]]], None]:
        intake = self._intake
        sink = self._sink(kind, intake.account, intake.malformed_account, intake.account_removed)

        def noticed(change: Change[dict[str, Any]]) -> None:
            sink(change)
            # Even where nothing comes of it: its status may have been changed, or there is something to tell.
            self._changed()

        return noticed

    def _facet_sink(self, kind: ServedKind) -> Callable[[Change[dict[str, Any]]], None]:
        enrichers, apply = self._intake.enrichers, self._intake.apply
        return self._sink(
            kind,
            lambda kind, document: apply(enrichers.updated(kind, document)),
            lambda kind, namespace, name, uid, error: apply(enrichers.malformed(kind, namespace, name, uid, error)),
            lambda kind, namespace, name: apply(enrichers.removed(kind, namespace, name)),
        )

    def _sink(
        self,
        kind: ServedKind,
        take: Callable[[ServedKind, dict[str, Any]], list[ClusterEvent]],
        malformed: Callable[[ServedKind, str, str, str, str], list[ClusterEvent]],
        removed: Callable[[ServedKind, str, str], list[ClusterEvent]],
        taken: Callable[[str, str], None] = lambda namespace, name: None,
    ) -> Callable[[Change[dict[str, Any]]], None]:
        """Takes in custom objects of one kind; one that cannot be read harms only itself."""

        def sink(change: Change[dict[str, Any]]) -> None:
            match change:
                case Upsert(document, _, (namespace, name), uid):
                    self._take(
                        ObjectRef(kind.api_version, kind.kind, namespace, name, uid),
                        lambda _: take(kind, document),
                        lambda error: malformed(kind, namespace, name, uid, _text(error)),
                        lambda _: removed(kind, namespace, name),
                    )
                    taken(namespace, name)
                case Delete((namespace, name), uid):
                    about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
                    self._take(about, lambda _: removed(kind, namespace, name))
                case Malformed((namespace, name), uid, problem):
                    if name:
                        about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
                        self._take(about, lambda _: malformed(kind, namespace, name, uid, problem))
                case Synced():
                    watched = self._kinds.get(kind)
                    if watched is not None and watched[0].state is ReflectorState.ABSENT:
                        self._definitions_changed.set()  # it may be served in another version now

        return sink


def gangs_of(state: ClusterState, event: ClusterEvent) -> Sequence[GangKey]:
    """The gangs whose members or declaration an event changes; to be asked before it is applied."""
    match event:
        case PodUpdated(pod):
            record = state.pods.get(pod.uid)
            last = record.gang if record is not None else None
            if not pod.gang:
                return (last.key,) if last is not None else ()
            if last is not None and last.key.name == pod.gang:
                return (last.key,)
            key = GangKey(pod.namespace, pod.gang)
            return (last.key, key) if last is not None else (key,)
        case PodRemoved(uid):
            record = state.pods.get(uid)
            return (record.gang.key,) if record is not None and record.gang is not None else ()
        case GangUpdated(gang):
            return (gang.key,)
        case GangRemoved(key):
            return (key,)
        case CompositeUpdated(composite):
            return _below(state, composite.key)
        case CompositeRemoved(key):
            return _below(state, key)
    return ()


def _below(state: ClusterState, key: GangKey) -> list[GangKey]:
    """The gangs of the tree that a composite is in."""
    composites = state.gangs.composites
    return [gang.key for gang in composites.gangs(composites.root_of(key))]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {quoted(str(error))}"


def _ref(resource: Resource, namespace: str, name: str, uid: str) -> ObjectRef:
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return ObjectRef(version, resource.kind, namespace, name, uid)


def _name(about: ObjectRef) -> str:
    return f"{about.namespace}/{about.name}" if about.namespace else about.name


def _what(event: ClusterEvent) -> str:
    """An event in a few words."""
    match event:
        case PodUpdated(pod):
            return f"Pod {pod.key}"
        case PodRemoved(name) | NodeRemoved(name):
            return f"{type(event).__name__} {name}"
    return type(event).__name__
