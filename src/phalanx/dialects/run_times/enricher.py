"""Shows each pod with how long it runs: what it says, and what its group, its owners and its queue say."""

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

# Pairs of a class and its twin with a limit; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000
# So many stand above each other at most (Pod, Job, JobSet, TrainJob): whoever forges a circle gets no further.
_MOST_OWNERS = 5
_OWNER_NAMES = frozenset(name for _, name in BY_KIND)


class _PodTime(msgspec.Struct, frozen=True):
    """What a pod says itself: its activeDeadlineSeconds, its annotations, and what of them cannot be read."""

    limit: int = 0
    stated: StatedRunTime = NOTHING_STATED
    faults: tuple[DecodingFault, ...] = ()


_SILENT = _PodTime()
_ANY_TIME: Most = (0, "")


class RunTimes(PodEnricher):
    """Owners are known by their uids, so that whatever has the name of one is not taken for it.

    A kind is `wanted` once a pod, or an owner of one, has a controller of it; `on_wanted` is called for each new
    one. What only we see to (the annotation for a pod's most, a queue's most) is a limit only with `enforced`, and
    only for pods of our own `schedulers`.
    """

    kinds = tuple(kind.wanted for kind in OWNER_KINDS)

    def __init__(self, warnings: ObjectWarnings, schedulers: Collection[str], enforced: bool) -> None:
        self.on_wanted: Callable[[], None] = lambda: None
        self._warnings = warnings
        self._schedulers = schedulers
        self._enforced = enforced
        self._wanted: set[KindKey] = set()
        # By the apiVersion and kind of an owner.
        self._kinds: dict[tuple[str, str], KindKey | None] = {}
        self._said: dict[str, _PodTime] = {}
        self._controllers: dict[str, str] = {}
        # By the uid of an owner those of its pods; None until an owner says anything about them, so that nobody
        # pays for it before.
        self._below: dict[str, set[str]] | None = None
        self._owners: dict[str, OwnerTime] = {}
        self._children: dict[str, set[str]] = {}  # by the uid of an owner: those of the owners right below
        self._beside: dict[str, set[str]] = {}  # by the uid of a pod or owner: of what stands beside it
        self._uids: dict[Address, str] = {}
        self._faults: dict[str, str] = {}
        self._queues = QueueLimits()
        self._most: dict[str, Most] = {}  # by queue: what it allowed when its pods were shown
        self._twins: dict[tuple[PodClass, int], PodClass] = {}
        self._made: dict[RunTime, RunTime] = {}

    @property
    def wanted(self) -> tuple[WantedKind, ...]:
        return tuple(kind.wanted for kind in OWNER_KINDS if kind.key in self._wanted)

    def enforce(self, enforced: bool) -> set[str]:
        """The queues whose pods may have another limit than before."""
        changed, self._enforced = self._enforced != enforced, enforced
        return set(self._most) if changed else set()

    # -- pods -----------------------------------------------------------------------------------------------------

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        # (Every pod passes here, so what it says nothing about costs nothing.)
        uid, metadata = spec.uid, pod.metadata
        owned = False
        for owner in metadata.owner_references:
            if owner.controller and owner.kind in _OWNER_NAMES:
                owned = True
                if uid not in self._controllers or self._controllers[uid] != owner.uid:
                    self._owned(uid, owner)
        if not owned and uid in self._controllers:
            self._disown(uid)
        if KUEUE_LABEL in metadata.labels:
            self._want(KUEUE_WORKLOADS.key)
        notes = metadata.annotations
        if pod.spec.active_deadline_seconds is None and (not notes or KEYS.isdisjoint(notes)):
            if uid not in self._said:
                return no_changes()
            del self._said[uid]
            return [], {uid}
        said, last = _read_pod(pod), self._said.get(spec.uid, _SILENT)
        if said == last:
            return no_changes()
        self._said[spec.uid] = said
        fresh = [fault for fault in said.faults if fault not in last.faults]
        if fresh:
            about = pod_ref(spec.namespace, spec.name, spec.uid)
            self._warn(about, "; ".join(map(str, fresh)), lambda: self._said.get(spec.uid) == said)
        return [], {spec.uid}

    def pod_gone(self, spec: Pod) -> Changes:
        self._said.pop(spec.uid, None)
        self._disown(spec.uid)
        return no_changes()

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        uid = spec.uid
        queue = gang.queue if gang is not None else spec.queue
        most = self._most.get(queue)
        if most is None:
            most = self._most[queue] = self._queues.most(queue) if self._queues.stated else _ANY_TIME
        said = self._said.get(uid, _SILENT) if self._said else _SILENT
        group = gang.run_time if gang is not None else NOTHING_STATED
        above = self._owner_times(uid) if self._owners else ()
        if said is _SILENT and group is NOTHING_STATED and not above and not most[0]:
            return spec
        ours = self._enforced and spec.scheduler in self._schedulers
        run_time = _combined(said, group, tuple(above), most, ours)
        if run_time == NO_RUN_TIME:
            return spec
        if len(self._made) >= _CACHE_SIZE:
            self._made.clear()
        run_time = self._made.setdefault(run_time, run_time)
        return msgspec.structs.replace(
            spec, run_time=run_time, pod_class=self._class_of(spec.pod_class, run_time.limit, spec.grace)
        )

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        """Takes note of queues; those whose pods may run for another time than before."""
        if not self._queues.changed(events):
            return set()
        shown, self._most = self._most, {queue: self._queues.most(queue) for queue in self._most}
        return {queue for queue, most in shown.items() if self._most[queue] != most}

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
        found = read_owner(BY_PLURAL[kind.group, kind.plural], document)
        if found.parent_kind in BY_KIND:
            self._want(BY_KIND[found.parent_kind].key)
        elif found.parent:
            found = msgspec.structs.replace(found, parent="")
        if found.asks_kueue:
            self._want(KUEUE_WORKLOADS.key)
        if found.fault != self._faults.get(uid, ""):
            self._faults[uid] = found.fault
            about = ObjectRef(kind.api_version, kind.kind, namespace, name, uid)
            if found.fault:
                self._warn(about, found.fault, lambda: self._faults.get(uid) == found.fault)
            else:
                del self._faults[uid]
        touched: set[str] = set()
        last = self._uids.get((kind, namespace, name))
        if last is not None and last != uid:
            touched = self._replace(last, None)
        says = found.limit or found.parent
        if says:
            self._uids[kind, namespace, name] = uid
        else:
            self._uids.pop((kind, namespace, name), None)
        return [], touched | self._replace(uid, found if says else None)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        uid = self._uids.pop((kind, namespace, name), None)
        if uid is None:
            return no_changes()
        self._faults.pop(uid, None)
        return [], self._replace(uid, None)

    def unserved(self, kind: ServedKind) -> Changes:
        touched: set[str] = set()
        for address in sorted(each for each in self._uids if each[0] == kind):
            touched |= self.removed(*address)[1]
        return [], touched

    def _owned(self, pod: str, owner: OwnerReference) -> None:
        name = owner.api_version, owner.kind
        if name not in self._kinds:
            if len(self._kinds) >= _CACHE_SIZE:
                self._kinds.clear()
            found = BY_KIND.get((owner.api_version.rpartition("/")[0], owner.kind))
            self._kinds[name] = found.key if found is not None else None
        kind = self._kinds[name]
        if kind is None or not owner.uid:
            return
        if kind not in self._wanted:
            self._want(kind)
        if self._below is not None:
            self._disown(pod)
            self._below.setdefault(owner.uid, set()).add(pod)
        self._controllers[pod] = owner.uid

    def _disown(self, pod: str) -> None:
        owner = self._controllers.pop(pod, None)
        if owner is not None and self._below is not None:
            _drop(self._below, owner, pod)

    def _pods_below(self) -> dict[str, set[str]]:
        if self._below is None:
            self._below = {}
            for pod, owner in self._controllers.items():
                self._below.setdefault(owner, set()).add(pod)
        return self._below

    def _want(self, kind: KindKey) -> None:
        if kind not in self._wanted:
            self._wanted.add(kind)
            self.on_wanted()

    def _replace(self, uid: str, found: OwnerTime | None) -> set[str]:
        """The pods for which the owner's new word makes a difference."""
        last = self._owners.pop(uid, None)
        if last == found:
            if found is not None:
                self._owners[uid] = found
            return set()
        touched: set[str] = set()
        for each in (last, found):
            if each is not None:
                touched |= self._reached(uid, each)
        if last is not None:
            _drop(self._children, last.parent, uid)
            for other in last.beside:
                _drop(self._beside, other, uid)
        if found is not None:
            self._owners[uid] = found
            if found.parent:
                self._children.setdefault(found.parent, set()).add(uid)
            for other in found.beside:
                self._beside.setdefault(other, set()).add(uid)
        return touched

    def _reached(self, uid: str, owner: OwnerTime) -> set[str]:
        """The pods below an owner; of what stands beside others, theirs."""
        below = self._pods_below()
        ahead, seen = [uid, *owner.beside], set[str]()
        while ahead:
            each = ahead.pop()
            if each not in seen:
                seen.add(each)
                ahead += [*self._children.get(each, ()), *below.get(each, ())]
        return seen

    def _owner_times(self, pod: str) -> list[OwnerTime]:
        """What those above the pod say, and what stands beside it or them."""
        found: list[OwnerTime] = []
        uid = pod
        for _ in range(_MOST_OWNERS):
            found += [self._owners[each] for each in sorted(self._beside.get(uid, ())) if each in self._owners]
            owner = self._owners.get(uid)
            if owner is not None and owner.limit:
                found.append(owner)
            uid = self._controllers.get(pod, "") if uid == pod else owner.parent if owner is not None else ""
            if not uid:
                break
        return [each for each in found if each.limit]

    def _warn(self, about: ObjectRef, message: str, still_true: Callable[[], bool]) -> None:
        self._warnings.add(ObjectWarning(about, "Warning", "InvalidRunTime", message), still_true)


def _read_pod(pod: PodObject) -> _PodTime:
    faults: list[DecodingFault] = []
    limit = pod.spec.active_deadline_seconds
    if limit is not None and not (is_whole(limit) and 0 < limit <= MAX_WHOLE):
        message = f"{show(limit)}: write whole seconds above 0; it is ignored"
        faults.append(DecodingFault("spec.activeDeadlineSeconds", message))
        limit = None
    stated = stated_run_time(pod.metadata.annotations, faults)
    return _PodTime(limit or 0, stated, tuple(faults))


def _combined(
    said: _PodTime, group: StatedRunTime, owners: tuple[OwnerTime, ...], most: tuple[int, str], ours: bool
) -> RunTime:
    """Return the earliest of the limits, and the first of the estimates."""
    own = said.stated
    allowed = min(
        (
            each
            for each in ((own.allowed, own.allowed_source), (group.allowed, group.allowed_source), most)
            if each[0]
        ),
        default=(0, ""),
        key=_seconds,
    )
    limit = min(_limits(said, owners, allowed if ours else (0, "")), default=(0, ""), key=_seconds)
    deadline = min(
        ((owner.clock + owner.limit, owner.source) for owner in owners if owner.clock),
        default=(0, ""),
        key=_seconds,
    )
    estimates = [each for each in (own, group) if each.estimate]
    best = min(estimates, key=lambda each: each.rank) if estimates else NOTHING_STATED
    return RunTime(
        limit[0], limit[1], deadline[0], best.estimate, best.estimate_source, deadline[1], allowed[0], allowed[1]
    )


def _limits(said: _PodTime, owners: tuple[OwnerTime, ...], ours: tuple[int, str]) -> Iterator[tuple[int, str]]:
    if said.limit:
        yield said.limit, "spec.activeDeadlineSeconds"
    for owner in owners:
        yield owner.limit, owner.source
    if ours[0]:
        yield ours


def _seconds(entry: tuple[int, str]) -> int:
    return entry[0]


def _drop(index: dict[str, set[str]], key: str, uid: str) -> None:
    found = index.get(key)
    if found is not None:
        found.discard(uid)
        if not found:
            del index[key]
