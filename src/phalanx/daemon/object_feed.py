"""API objects go in one by one, facts reach the state; an object that cannot be taken in harms only itself."""

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
from phalanx.model.pod import Pod, PodClass
from phalanx.model.text.decoding import quoted

Events = list[ClusterEvent]
T = TypeVar("T")

_TOLD_AT_ONCE = 200
# Pods whose news are charged to their nodes at once.
_MANY = 100
# Gangs that may be kept in mind although they are gone. (Groups are listed before anything makes gangs of them.)
_MOST_GONE = 200_000


class ObjectFeed:
    """`changed` is called after each change that the state took in, `touched` learns whose members, declaration or
    status have changed: not before `tell_of_gangs`, for until everything has been seen a gang may look as if it
    lacked members. `arrivals` are told of each object that has changed something. An object that the intake
    stumbles over counts as one that cannot be read. `now` is in seconds since the epoch.
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
    ) -> None:
        self._arrivals = arrivals or Arrivals()
        self._intake = intake
        self._state = state
        self._touched = touched
        self._seen_all = False
        # Of whom objects have spoken before everything was seen: there need not be a gang any more.
        self._early: dict[GangKey, None] = {}
        self._now = now
        # Of whom is still to be told; None where each is told of at once.
        self._waiting: dict[GangKey, None] | None = None
        self.changed = changed
        self.failures = failures

    async def publish_gangs(self) -> None:
        """Everything has been seen once: tells of all gangs, and from then on of each that changes.

        A few at a time: what is planned and bound meanwhile goes first.
        """
        early, self._early = self._early, {}
        self._seen_all, self._waiting = True, {**dict.fromkeys(self._state.gangs), **early}
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            for number, key in enumerate(waiting, 1):
                self._publish_gang(key)
                if number % _TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._waiting = None

    def _publish_gang(self, key: GangKey) -> None:
        try:
            self._touched(key)
        except Exception as error:
            self.failures.record_failure("status", f"gang {key}", error)

    def gang_touched(self, key: GangKey) -> None:
        if not self._seen_all:
            self._early[key] = None
            if len(self._early) > 2 * len(self._state.gangs) + _MOST_GONE:
                # A standby sees groups come and go for weeks.
                self._early = {known: None for known in self._early if known in self._state.gangs}
        elif self._waiting is None:
            self._publish_gang(key)
        else:
            self._waiting[key] = None

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
        """Takes in the objects of one kind. With `unreadable_is_gone` one of which nothing else can be made is
        treated as if it were gone. With `always_changed` something may depend on an object even where the intake
        has nothing to say about it."""

        def sink(change: Change[Any]) -> None:
            match change:
                case Upsert(document, _, (namespace, name), uid):
                    ways: list[Callable[[Exception], Events]] = [lambda _: updated(document)]
                    if malformed is not None:
                        ways.append(lambda error: malformed(namespace, name, uid, error_text(error)))
                    if unreadable_is_gone:
                        ways.append(lambda _: removed(namespace, name))
                    self.take_in(ObjectRef(kind.api_version, kind.kind, namespace, name, uid), *ways)
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
        """Takes in what the first way gives that does not raise; each is told what the one before raised."""
        error = error or Exception()
        for way in ways:
            try:
                events = way(error)
            except Exception as problem:
                error = problem
                self._not_taken_in(about, error)
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
        """`take_in` for many, `otherwise` being the further ways.

        First all are read, then what came of it reaches the state: a loop that stays with one thing is faster than
        one that does everything for each object.
        """
        events: Events = []
        first: Upsert[T] | None = None
        effective = 0
        for change in changes:
            try:
                found = read(change.object)
            except Exception as error:
                self._not_taken_in(about(change), error)
                self.apply(events)
                events = []
                self.take_in(about(change), *(partial(way, change) for way in otherwise), error=error)
            else:
                if found:
                    first = first or change
                    effective += 1
                    events += found
        if first is not None:
            self._arrivals.note(about(first), effective)
        self.apply(events)

    def _not_taken_in(self, about: ObjectRef, problem: Exception) -> None:
        name = object_name(about)
        if self.failures.record_failure("intake", f"{about.kind} {name}", problem):
            self._intake.warn(about, "NotTakenIn", f"{name} cannot be taken in: {error_text(problem)}")

    def apply(self, events: Events) -> None:
        # A standby sees pods come and go, and has no cycle that would say what time it is.
        self._state.pods.stories.now = self._now()
        if len(events) >= _MANY and all(type(event) is PodUpdated for event in events):
            with self._state.nodes.charged_together():
                self._apply_each(events)
        else:
            self._apply_each(events)
        if events:
            self.changed()

    def _apply_each(self, events: Events) -> None:
        for event in events:
            try:
                self._apply_one(event)
            except Exception as error:
                self.failures.record_failure("state", _what(event), error)
                if isinstance(event, PodUpdated):
                    self._occupy(event.pod)

    def _apply_one(self, event: ClusterEvent) -> None:
        if not self._seen_all:
            self._state.apply(event)
            return
        touched = gangs_of(self._state, event)
        self._state.apply(event)
        for key in touched:
            self.gang_touched(key)

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
            self.failures.guard("state", _what(event), partial(self._apply_one, event))


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


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {quoted(str(error))}"


def object_name(about: ObjectRef) -> str:
    return f"{about.namespace}/{about.name}" if about.namespace else about.name


def _what(event: ClusterEvent) -> str:
    """An event in a few words."""
    match event:
        case PodUpdated(pod):
            return f"Pod {pod.key}"
        case PodRemoved(name) | NodeRemoved(name):
            return f"{type(event).__name__} {name}"
    return type(event).__name__
