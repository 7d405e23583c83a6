"""Feed of API objects into the cluster state; an object that fails affects only itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from phalanx.cluster.state import ClusterState
from phalanx.daemon.decision_log import Arrivals
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.warnings import ObjectRef
from phalanx.kube.changes import Change, Delete, Malformed, Upsert
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
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
from phalanx.model.pod import MemberState, Pod, PodClass
from phalanx.model.text.decoding import quoted

Events = list[ClusterEvent]
T = TypeVar("T")

_PUBLISHED_AT_ONCE = 200
# Seconds in which the changes of a gang are gathered: its members arrive and are bound one by one.
_GATHER = 0.05
# Minimum number of pod events that are charged to their nodes in one step.
_CHARGED_TOGETHER = 100
# Maximum number of remembered gangs that are unknown to the state. Groups are listed before gangs are made of them.
_MOST_GONE = 200_000


class ObjectFeed:
    """Feed of changed API objects through the decoders into the cluster state.

    `changed` is called after each change of the state. `touched` is called with each gang whose members,
    declaration or status have changed, after `publish_gangs` only: before everything is listed, a gang can look
    incomplete. `arrivals` record each object that has changed the state. An object for which the intake raises
    counts as unreadable. `now` is in seconds since the epoch.
    """

    def __init__(
        self,
        intake: Intake,
        state: ClusterState,
        changed: Callable[[], None],
        touched: Callable[[GangKey], None],
        failures: Failures,
        arrivals: Arrivals | None = None,
        now: Callable[[], float] = time.time,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Create the feed. `later` calls a function after so many seconds; None for the event loop's."""
        self._later = later or _later
        self._arrivals = arrivals or Arrivals()
        self._intake = intake
        self._state = state
        self._touched = touched
        self._seen_all = False
        # Gangs that objects named before everything was listed; some of them are deleted since.
        self._early: dict[GangKey, None] = {}
        self._now = now
        # Gangs that are not published yet; None once all were.
        self._unpublished: dict[GangKey, None] | None = None
        # Gangs that have changed since they were published, and whether a timer will publish them.
        self._gathered: dict[GangKey, None] = {}
        self._is_gathering = False
        self.changed = changed
        self.failures = failures

    async def publish_gangs(self) -> None:
        """Report all gangs to `touched` after the first list, and from then on each gang soon after its changes.

        Gangs are published in batches: planning and binding go first.
        """
        early, self._early = self._early, {}
        self._seen_all, self._unpublished = True, {**dict.fromkeys(self._state.gangs), **early}
        while self._unpublished:
            unpublished, self._unpublished = self._unpublished, {}
            for number, key in enumerate(unpublished, 1):
                self._publish_gang(key)
                if number % _PUBLISHED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._unpublished = None

    def _publish_gang(self, key: GangKey) -> None:
        self._gathered.pop(key, None)
        try:
            self._touched(key)
        except Exception as error:
            self.failures.record_failure("status", f"gang {key}", error)

    def gang_touched(self, key: GangKey) -> None:
        if not self._seen_all:
            self._early[key] = None
            if len(self._early) > 2 * len(self._state.gangs) + _MOST_GONE:
                # A standby sees many groups created and deleted over weeks.
                self._early = {known: None for known in self._early if known in self._state.gangs}
        elif self._unpublished is not None:
            self._unpublished[key] = None
        else:
            if not self._is_gathering:
                self._is_gathering = True
                self._later(_GATHER, self._publish_gathered)
            self._gathered[key] = None

    def _publish_gathered(self) -> None:
        self._is_gathering = False
        gathered, self._gathered = self._gathered, {}
        for key in gathered:
            self._publish_gang(key)

    def sink(
        self,
        kind: ServedKind | Resource,
        updated: Callable[[Any], Events],
        removed: Callable[[str, str], Events],
        malformed: Callable[[str, str, str, str], Events] | None = None,
        *,
        unreadable_is_gone: bool = False,
        always_changed: bool = False,
    ) -> Callable[[Change[Any]], None]:
        """Return a function that feeds changes of objects of one kind into the state.

        With `unreadable_is_gone` an object that fails counts as deleted. With `always_changed` a change wakes a
        cycle even if the intake returns no event.
        """

        def sink(change: Change[Any]) -> None:
            match change:
                case Upsert(document, _, (namespace, name), uid):
                    readers: list[Callable[[Exception], Events]] = [lambda _: updated(document)]
                    if malformed is not None:
                        readers.append(lambda error: malformed(namespace, name, uid, error_text(error)))
                    if unreadable_is_gone:
                        readers.append(lambda _: removed(namespace, name))
                    self.take_in(ObjectRef(kind.api_version, kind.kind, namespace, name, uid), *readers)
                case Delete((namespace, name), uid):
                    about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
                    self.take_in(about, lambda _: removed(namespace, name))
                case Malformed((namespace, name), uid, problem):
                    if name and malformed is not None:
                        about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
                        self.take_in(about, lambda _: malformed(namespace, name, uid, problem))
            if always_changed:
                self.changed()

        return sink

    def take_in(
        self, about: ObjectRef, *ways: Callable[[Exception], Events], error: Exception | None = None
    ) -> None:
        """Apply the events of the first decoder in `ways` that does not raise; each receives the last exception."""
        error = error or Exception()
        for way in ways:
            try:
                events = way(error)
            except Exception as problem:
                error = problem
                self._record_unprocessed(about, error)
            else:
                if events:
                    self._arrivals.note(about)
                self.apply(events)
                return

    def take_in_all(
        self,
        changes: Sequence[Upsert[T]],
        about: Callable[[Upsert[T]], ObjectRef],
        read: Callable[[T], Events],
        otherwise: Sequence[Callable[[Upsert[T], Exception], Events]],
    ) -> None:
        """Feed many changed objects into the state; `otherwise` are the further decoders of an object for which
        `read` raises.

        All objects are read first and applied afterwards: two short loops are faster than a long one.
        """
        events: Events = []
        first: Upsert[T] | None = None
        effective = 0
        for change in changes:
            try:
                object_events = read(change.object)
            except Exception as error:
                self._record_unprocessed(about(change), error)
                self.apply(events)
                events = []
                self.take_in(about(change), *(partial(way, change) for way in otherwise), error=error)
            else:
                if object_events:
                    first = first or change
                    effective += 1
                    events += object_events
        if first is not None:
            self._arrivals.note(about(first), effective)
        self.apply(events)

    def _record_unprocessed(self, about: ObjectRef, problem: Exception) -> None:
        name = object_name(about)
        if self.failures.record_failure("intake", f"{about.kind} {name}", problem):
            self._intake.warn(about, "NotTakenIn", f"{name} cannot be processed: {error_text(problem)}")

    def apply(self, events: Events) -> None:
        # A standby sees pods created and deleted without a cycle that would set the time.
        self._state.pods.stories.now = self._now()
        if len(events) >= _CHARGED_TOGETHER and all(type(event) is PodUpdated for event in events):
            with self._state.nodes.charged_together():
                self._apply_each(events)
        else:
            self._apply_each(events)
        if events:
            self.changed()

    def _apply_each(self, events: Events) -> None:
        # Gangs that the growing events touch, with whether they had started before: the members of a gang arrive
        # and are bound together, so they are published once.
        grown: dict[GangKey, bool] = {}
        for event in events:
            try:
                if not self._seen_all:
                    self._state.apply(event)
                elif _grows(event):
                    self._grow(grown, event)
                else:
                    self._publish_started(grown)
                    grown = {}
                    self._end(event)
            except Exception as error:
                self.failures.record_failure("state", _described(event), error)
                if isinstance(event, PodUpdated):
                    self._occupy(event.pod)
        self._publish_started(grown)

    def _grow(self, grown: dict[GangKey, bool], event: ClusterEvent) -> None:
        """Apply an event that adds or starts a member, and note its gangs in `grown`."""
        keys = gangs_of(self._state, event)
        for key in keys:
            if key not in grown:
                grown[key] = _has_started(self._state, key)
        self._state.apply(event)
        for key in keys:
            self.gang_touched(key)

    def _publish_started(self, grown: dict[GangKey, bool]) -> None:
        """Publish at once the gangs that have started with the last events."""
        for key, had_started in grown.items():
            if not had_started and key in self._gathered and _has_started(self._state, key):
                self._publish_gang(key)

    def _end(self, event: ClusterEvent) -> None:
        """Apply an event with which a gang can shrink."""
        keys = gangs_of(self._state, event)
        # A gang is published before one of its members ends: then it has placed the most members.
        for key in keys:
            if key in self._gathered:
                self._publish_gang(key)
        self._state.apply(event)
        for key in keys:
            if self._unpublished is None:
                self._publish_gang(key)
            else:
                self._unpublished[key] = None

    def _occupy(self, pod: Pod) -> None:
        """Replace a pod that fails by a minimal one that still charges its node."""
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
            problem="the pod cannot be processed",
        )
        for event in (PodRemoved(pod.uid), PodUpdated(bare)):
            self.failures.guard("state", _described(event), partial(self._replaced, event))

    def _replaced(self, event: ClusterEvent) -> None:
        if self._seen_all:
            self._end(event)
        else:
            self._state.apply(event)


def gangs_of(state: ClusterState, event: ClusterEvent) -> Sequence[GangKey]:
    """Return the gangs whose members or declaration an event changes; must be called before it is applied."""
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


def _later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


def _grows(event: ClusterEvent) -> bool:
    """Return whether an event adds or starts a member, or declares a gang, so that its publication can wait for
    further ones."""
    if type(event) is PodUpdated:
        return not (event.pod.terminating or event.pod.finished)
    return type(event) is GangUpdated


def _has_started(state: ClusterState, key: GangKey) -> bool:
    """Return whether the API shows the minimum of a gang on nodes: the next change can be an eviction."""
    gang = state.gangs.get(key)
    if gang is None or gang.spec is None:
        return False
    return gang.count(MemberState.BOUND) + gang.count(MemberState.RUNNING) >= max(1, gang.spec.min_member)


def _below(state: ClusterState, key: GangKey) -> list[GangKey]:
    """Return the gangs below a CompositePodGroup."""
    composites = state.gangs.composites
    return [gang.key for gang in composites.gangs(composites.root_of(key))]


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {quoted(str(error))}"


def object_name(about: ObjectRef) -> str:
    return f"{about.namespace}/{about.name}" if about.namespace else about.name


def _described(event: ClusterEvent) -> str:
    """Return a short description of an event for logs."""
    match event:
        case PodUpdated(pod):
            return f"Pod {pod.key}"
        case PodRemoved(name) | NodeRemoved(name):
            return f"{type(event).__name__} {name}"
    return type(event).__name__
