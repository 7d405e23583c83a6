"""Enricher for run times: limits and estimates from a pod, its group, its owners and its queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from phalanx.dialects.core import OwnerReference, PodObject
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.reader import MAX_WHOLE, Document, is_whole, show
from phalanx.dialects.run_times.owners import (
    BY_KIND,
    BY_PLURAL,
    KUEUE_LABEL,
    KUEUE_WORKLOADS,
    OWNER_KINDS,
    OwnerTime,
    read_owner,
)
from phalanx.dialects.run_times.queue_limits import Most, QueueLimits
from phalanx.dialects.run_times.stated import KEYS, stated_run_time
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings, pod_ref
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.run_time import NO_RUN_TIME, NOTHING_STATED, RunTime, StatedRunTime

KindKey = tuple[str, str]
Address = tuple[ServedKind, str, str]

# Limit for pairs of a class and its counterpart with a limit; a cache with more entries is cleared.
_CACHE_SIZE = 10_000
# Maximum depth of owners (Pod, Job, JobSet, TrainJob); it also bounds forged cycles.
_MOST_OWNERS = 5
_OWNER_NAMES = frozenset(name for _, name in BY_KIND)


class _PodTime(msgspec.Struct, frozen=True):
    """Run times in the pod's own spec and annotations, and faults for unreadable ones."""

    limit: int = 0
    stated: StatedRunTime = NOTHING_STATED
    faults: tuple[DecodingFault, ...] = ()


_NO_POD_TIME = _PodTime()
_ANY_TIME: Most = (0, "")


class RunTimes(PodEnricher):
    """Adds run times to pods. Owners are known by uid, so that another object of the same name is not confused with
    one.

    A kind is `wanted` once a pod, or an owner of one, has a controller of it; `on_wanted` is called for each new
    kind. Limits that only this scheduler enforces (the annotation for a pod's maximum, a queue's maximum) apply
    only with `enforced`, and only to pods of our own `schedulers`.
    """

    kinds = tuple(kind.wanted for kind in OWNER_KINDS)

    def __init__(self, warnings: ObjectWarnings, schedulers: Collection[str], enforced: bool) -> None:
        self.on_wanted: Callable[[], None] = lambda: None
        self._warnings = warnings
        self._schedulers = schedulers
        self._enforced = enforced
        self._wanted: set[KindKey] = set()
        # Kinds by the apiVersion and kind of an owner.
        self._kinds: dict[tuple[str, str], KindKey | None] = {}
        self._pod_times: dict[str, _PodTime] = {}
        self._controllers: dict[str, str] = {}
        # Pod uids by owner uid; None until an owner states a run time, so that other clusters do not pay for the
        # index.
        self._pods_of_owner: dict[str, set[str]] | None = None
        self._owners: dict[str, OwnerTime] = {}
        self._children: dict[str, set[str]] = {}  # owner uids by the uid of their own controller
        self._attached: dict[str, set[str]] = {}  # uids of attached objects by the uid of a pod or owner
        self._uids: dict[Address, str] = {}
        self._faults: dict[str, str] = {}
        self._queues = QueueLimits()
        self._queue_maxima: dict[str, Most] = {}  # by queue, as published with its pods
        self._twins: dict[tuple[PodClass, int], PodClass] = {}
        self._made: dict[RunTime, RunTime] = {}

    @property
    def wanted(self) -> tuple[WantedKind, ...]:
        return tuple(kind.wanted for kind in OWNER_KINDS if kind.key in self._wanted)

    def enforce(self, enforced: bool) -> set[str]:
        """Set whether the scheduler enforces run-time limits; return the queues with possibly changed limits."""
        changed, self._enforced = self._enforced != enforced, enforced
        return set(self._queue_maxima) if changed else set()

    # -- pods -----------------------------------------------------------------------------------------------------

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        metadata = pod.metadata
        return (
            pod.spec.active_deadline_seconds is not None
            or not KEYS.isdisjoint(metadata.annotations)
            or KUEUE_LABEL in metadata.labels
            or any(owner.controller and owner.kind in _OWNER_NAMES for owner in metadata.owner_references)
        )

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        uid, metadata = spec.uid, pod.metadata
        owned = False
        for owner in metadata.owner_references:
            if owner.controller and owner.kind in _OWNER_NAMES:
                owned = True
                if uid not in self._controllers or self._controllers[uid] != owner.uid:
                    self._set_owner(uid, owner)
        if not owned and uid in self._controllers:
            self._clear_owner(uid)
        if KUEUE_LABEL in metadata.labels:
            self._want(KUEUE_WORKLOADS.key)
        notes = metadata.annotations
        if pod.spec.active_deadline_seconds is None and (not notes or KEYS.isdisjoint(notes)):
            if uid not in self._pod_times:
                return no_changes()
            del self._pod_times[uid]
            return [], {uid}
        pod_time, last = _read_pod(pod), self._pod_times.get(spec.uid, _NO_POD_TIME)
        if pod_time == last:
            return no_changes()
        self._pod_times[spec.uid] = pod_time
        fresh = [fault for fault in pod_time.faults if fault not in last.faults]
        if fresh:
            about = pod_ref(spec.namespace, spec.name, spec.uid)
            self._warn(about, "; ".join(map(str, fresh)), lambda: self._pod_times.get(spec.uid) == pod_time)
        return [], {spec.uid}

    def pod_gone(self, spec: Pod) -> Changes:
        self._pod_times.pop(spec.uid, None)
        self._clear_owner(spec.uid)
        return no_changes()

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        uid = spec.uid
        queue = gang.queue if gang is not None else spec.queue
        maximum = self._queue_maxima.get(queue)
        if maximum is None:
            maximum = self._queue_maxima[queue] = self._queues.most(queue) if self._queues.stated else _ANY_TIME
        pod_time = self._pod_times.get(uid, _NO_POD_TIME) if self._pod_times else _NO_POD_TIME
        group = gang.run_time if gang is not None else NOTHING_STATED
        above = self._owner_times(uid) if self._owners else ()
        if pod_time is _NO_POD_TIME and group is NOTHING_STATED and not above and not maximum[0]:
            return spec
        ours = self._enforced and spec.scheduler in self._schedulers
        run_time = _combined(pod_time, group, tuple(above), maximum, ours)
        if run_time == NO_RUN_TIME:
            return spec
        if len(self._made) >= _CACHE_SIZE:
            self._made.clear()
        run_time = self._made.setdefault(run_time, run_time)
        return msgspec.structs.replace(
            spec, run_time=run_time, pod_class=self._class_of(spec.pod_class, run_time.limit, spec.grace)
        )

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        """Process changed queues; return the queues whose maximum run time has changed."""
        if not self._queues.changed(events):
            return set()
        shown, self._queue_maxima = (
            self._queue_maxima,
            {queue: self._queues.most(queue) for queue in self._queue_maxima},
        )
        return {queue for queue, maximum in shown.items() if self._queue_maxima[queue] != maximum}

    def _class_of(self, pod_class: PodClass, limit: int, grace: int) -> PodClass:
        if not limit:
            return pod_class
        key = pod_class, limit + grace
        twin = self._twins.get(key)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[key] = msgspec.structs.replace(pod_class, run_limit=limit + grace)
        return twin

    # -- owners ---------------------------------------------------------------------------------------------------

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        metadata = document["metadata"]
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        uid = str(metadata.get("uid") or "")
        owner_time = read_owner(BY_PLURAL[kind.group, kind.plural], document)
        if owner_time.parent_kind in BY_KIND:
            self._want(BY_KIND[owner_time.parent_kind].key)
        elif owner_time.parent:
            owner_time = msgspec.structs.replace(owner_time, parent="")
        if owner_time.asks_kueue:
            self._want(KUEUE_WORKLOADS.key)
        if owner_time.fault != self._faults.get(uid, ""):
            self._faults[uid] = owner_time.fault
            about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
            if owner_time.fault:
                self._warn(about, owner_time.fault, lambda: self._faults.get(uid) == owner_time.fault)
            else:
                del self._faults[uid]
        touched: set[str] = set()
        last = self._uids.get((kind, namespace, name))
        if last is not None and last != uid:
            touched = self._replace(last, None)
        is_relevant = owner_time.limit or owner_time.parent
        if is_relevant:
            self._uids[kind, namespace, name] = uid
        else:
            self._uids.pop((kind, namespace, name), None)
        return [], touched | self._replace(uid, owner_time if is_relevant else None)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        uid = self._uids.pop((kind, namespace, name), None)
        if uid is None:
            return no_changes()
        self._faults.pop(uid, None)
        return [], self._replace(uid, None)

    def unserved(self, kind: ServedKind) -> Changes:
        touched: set[str] = set()
        for address in sorted(address for address in self._uids if address[0] == kind):
            touched |= self.removed(*address)[1]
        return [], touched

    def _set_owner(self, pod: str, owner: OwnerReference) -> None:
        name = owner.api_version, owner.kind
        if name not in self._kinds:
            if len(self._kinds) >= _CACHE_SIZE:
                self._kinds.clear()
            owner_kind = BY_KIND.get((owner.api_version.rpartition("/")[0], owner.kind))
            self._kinds[name] = owner_kind.key if owner_kind is not None else None
        kind = self._kinds[name]
        if kind is None or not owner.uid:
            return
        if kind not in self._wanted:
            self._want(kind)
        if self._pods_of_owner is not None:
            self._clear_owner(pod)
            self._pods_of_owner.setdefault(owner.uid, set()).add(pod)
        self._controllers[pod] = owner.uid

    def _clear_owner(self, pod: str) -> None:
        owner = self._controllers.pop(pod, None)
        if owner is not None and self._pods_of_owner is not None:
            _drop(self._pods_of_owner, owner, pod)

    def _pod_index(self) -> dict[str, set[str]]:
        if self._pods_of_owner is None:
            self._pods_of_owner = {}
            for pod, owner in self._controllers.items():
                self._pods_of_owner.setdefault(owner, set()).add(pod)
        return self._pods_of_owner

    def _want(self, kind: KindKey) -> None:
        if kind not in self._wanted:
            self._wanted.add(kind)
            self.on_wanted()

    def _replace(self, uid: str, owner_time: OwnerTime | None) -> set[str]:
        """Replace the run times that an owner defines; return the pods that they affect."""
        last = self._owners.pop(uid, None)
        if last == owner_time:
            if owner_time is not None:
                self._owners[uid] = owner_time
            return set()
        touched: set[str] = set()
        for state in (last, owner_time):
            if state is not None:
                touched |= self._affected_pods(uid, state)
        if last is not None:
            _drop(self._children, last.parent, uid)
            for other in last.beside:
                _drop(self._attached, other, uid)
        if owner_time is not None:
            self._owners[uid] = owner_time
            if owner_time.parent:
                self._children.setdefault(owner_time.parent, set()).add(uid)
            for other in owner_time.beside:
                self._attached.setdefault(other, set()).add(uid)
        return touched

    def _affected_pods(self, uid: str, owner: OwnerTime) -> set[str]:
        """Return the uids of the pods below an owner; for an attached object, those below the objects that it
        refers to."""
        below = self._pod_index()
        queue, seen = [uid, *owner.beside], set[str]()
        while queue:
            reached_uid = queue.pop()
            if reached_uid not in seen:
                seen.add(reached_uid)
                queue += [*self._children.get(reached_uid, ()), *below.get(reached_uid, ())]
        return seen

    def _owner_times(self, pod: str) -> list[OwnerTime]:
        """Return the run times that the pod's owners define, and objects attached to the pod or its owners."""
        owner_times: list[OwnerTime] = []
        uid = pod
        for _ in range(_MOST_OWNERS):
            owner_times += [
                self._owners[owner_uid]
                for owner_uid in sorted(self._attached.get(uid, ()))
                if owner_uid in self._owners
            ]
            owner = self._owners.get(uid)
            if owner is not None and owner.limit:
                owner_times.append(owner)
            uid = self._controllers.get(pod, "") if uid == pod else owner.parent if owner is not None else ""
            if not uid:
                break
        return [owner_uid for owner_uid in owner_times if owner_uid.limit]

    def _warn(self, about: ObjectRef, message: str, still_true: Callable[[], bool]) -> None:
        self._warnings.add(ObjectWarning(about, "Warning", "InvalidRunTime", message), still_true)


def _read_pod(pod: PodObject) -> _PodTime:
    faults: list[DecodingFault] = []
    limit = pod.spec.active_deadline_seconds
    if limit is not None and not (is_whole(limit) and 0 < limit <= MAX_WHOLE):
        message = f"{show(limit)}: write whole seconds above 0; the value is ignored"
        faults.append(DecodingFault("spec.activeDeadlineSeconds", message))
        limit = None
    stated = stated_run_time(pod.metadata.annotations, faults)
    return _PodTime(limit or 0, stated, tuple(faults))


def _combined(
    pod_time: _PodTime, group: StatedRunTime, owners: tuple[OwnerTime, ...], maximum: tuple[int, str], ours: bool
) -> RunTime:
    """Return a pod's run time: the earliest of the limits, and the first of the estimates."""
    own = pod_time.stated
    allowed = min(
        (
            candidate
            for candidate in ((own.allowed, own.allowed_source), (group.allowed, group.allowed_source), maximum)
            if candidate[0]
        ),
        default=(0, ""),
        key=_seconds,
    )
    limit = min(_limits(pod_time, owners, allowed if ours else (0, "")), default=(0, ""), key=_seconds)
    deadline = min(
        ((owner.clock + owner.limit, owner.source) for owner in owners if owner.clock),
        default=(0, ""),
        key=_seconds,
    )
    estimates = [stated_time for stated_time in (own, group) if stated_time.estimate]
    best = min(estimates, key=lambda stated_time: stated_time.rank) if estimates else NOTHING_STATED
    return RunTime(
        limit[0], limit[1], deadline[0], best.estimate, best.estimate_source, deadline[1], allowed[0], allowed[1]
    )


def _limits(pod_time: _PodTime, owners: tuple[OwnerTime, ...], ours: tuple[int, str]) -> Iterator[tuple[int, str]]:
    if pod_time.limit:
        yield pod_time.limit, "spec.activeDeadlineSeconds"
    for owner in owners:
        yield owner.limit, owner.source
    if ours[0]:
        yield ours


def _seconds(entry: tuple[int, str]) -> int:
    return entry[0]


def _drop(index: dict[str, set[str]], key: str, uid: str) -> None:
    uids = index.get(key)
    if uids is not None:
        uids.discard(uid)
        if not uids:
            del index[key]
