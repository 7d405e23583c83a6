"""Index of gangs: the members of each gang, and the last resolved form of each gang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.dialects.gangs.context import GangContext
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.members import Members
from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.gangs.resolver import Resolved, resolve
from phalanx.dialects.gangs.shown_names import ShownNames
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings, group_ref, pod_ref
from phalanx.dialects.workloads.rule import KindKey, WorkloadSize, group_of
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.events import ClusterEvent, GangRemoved, GangUpdated
from phalanx.model.gang import Gang, GangKey, GangOwner, GroupClaim, Problem, owner_of_name
from phalanx.model.pod import Pod
from phalanx.model.run_time import NOTHING_STATED, StatedRunTime

K = TypeVar("K")
_SPARK = "spark"
# Gang properties that change its members' specs: revocable, queue, run time and claims.
_OfMembers = tuple[bool, str, StatedRunTime, tuple[GroupClaim, ...]]
# These properties for members that arrived before their gang was known.
_OF_NONE: _OfMembers = (False, DEFAULT_QUEUE, NOTHING_STATED, ())


class _Entry:
    __slots__ = ("gang", "members")

    def __init__(self) -> None:
        self.members = Members()
        self.gang: Gang | None = None


class GangIndex:
    """All gangs that an existing pod names or an object declares, each exactly once."""

    def __init__(
        self, options: DialectOptions, warnings: ObjectWarnings, naming_of: Mapping[str, GangNaming]
    ) -> None:
        """Create an empty index. `naming_of` is that of `GangContext`."""
        self._naming_of = naming_of
        self._options = options
        self._object_warnings = warnings
        self._names = ShownNames()
        self._entries: dict[GangKey, _Entry] = {}
        # Specs by the gang name that objects declare.
        self._objects: dict[GangKey, tuple[GroupSpec, ...]] = {}
        # For each name, the gangs of other names that depend on its objects: replicas of a 1.35 Workload, and gangs
        # with an owner of their object.
        self._dependents: dict[GangKey, set[GangKey]] = {}
        self._classes: dict[str, int] = {}
        self._class_users: dict[str, set[GangKey]] = {}
        self._queues: dict[str, str] = {}
        self._namespaces: dict[str, set[GangKey]] = {}
        self._contexts: dict[str, GangContext] = {}  # by the default queue of the namespace
        #: Gangs that have changed in a way that affects their members.
        self.affected: dict[GangKey, None] = {}
        self._native = True
        # Gangs with expected members, and gangs to update for their expected members.
        self.expecting: set[GangKey] = set()
        self.expecting_changed: dict[GangKey, None] = {}
        # Sizes by the gang name that an owner defines. The sizes of deleted owners are orphaned: they remain in use
        # for the remaining members.
        self._sizes: dict[GangKey, WorkloadSize] = {}
        self._orphaned_sizes: set[GangKey] = set()
        self._unreadable: set[KindKey] = set()
        # During start-up: the gangs to resolve once when all objects have arrived.
        self._postponed: set[GangKey] | None = None

    def postpone(self) -> None:
        """Postpone the resolution of all gangs until `catch_up`: objects and members arrive in any order, and
        each gang needs to be resolved only once."""
        self._postponed = set()

    def catch_up(self) -> list[ClusterEvent]:
        """Resolve the postponed gangs after all objects have arrived."""
        postponed, self._postponed = self._postponed, None
        return self._resolve_all(postponed or ())

    def gang(self, key: GangKey) -> Gang | None:
        entry = self._entries.get(key)
        return entry.gang if entry else None

    def schedulers(self, key: GangKey, active: bool = True) -> set[str]:
        """Return the schedulers of a gang's active members, or of all its members."""
        entry = self._entries.get(key)
        return entry.members.schedulers(active) if entry else set()

    @property
    def native(self) -> bool:
        """Whether the API server serves native PodGroups."""
        return self._native

    def set_native(self, served: bool) -> list[ClusterEvent]:
        if served == self._native:
            return []
        self._native = served
        self._contexts.clear()
        entries = self._entries.items()
        return self._resolve_all(
            key for key, entry in entries if entry.gang is not None and entry.gang.rules.native
        )

    def drain_affected_members(self) -> list[str]:
        """Return the sorted uids of members that changes of their gang have affected since the last call."""
        if not self.affected:
            return []
        affected, self.affected = self.affected, {}
        return sorted(uid for key in affected if key in self._entries for uid in self._entries[key].members.uids())

    def member_uids(self, key: GangKey) -> Iterable[str]:
        entry = self._entries.get(key)
        return entry.members.uids() if entry else ()

    def oldest_member(self, key: GangKey) -> str | None:
        """Return the uid of a gang's oldest member; None for a gang without members."""
        entry = self._entries.get(key)
        return entry.members.oldest() if entry and len(entry.members) else None

    def add_member(
        self, key: GangKey, pod: Pod, declared: MemberDeclaration, job: GangOwner | None = None
    ) -> list[ClusterEvent]:
        """Add a pod to a gang; `job` has created it (None: a pod without a job)."""
        entry = self._entry(key)
        changed = entry.members.add(Member(pod.created, pod.name, pod.uid, declared, job))
        return self._resolve_all((key,)) if changed or entry.gang is None else []

    def remove_member(self, key: GangKey, uid: str) -> list[ClusterEvent]:
        return self._resolve_all((key,)) if self._entries[key].members.remove(uid) else []

    def change_member(self, key: GangKey, pod: Pod, declared: MemberDeclaration) -> list[ClusterEvent]:
        """Update a gang member whose gang declaration has changed."""
        changed = self._entries[key].members.change(pod.created, pod.name, pod.uid, declared)
        return self._resolve_all((key,)) if changed else []

    def replace(self, namespace: str, last: Iterable[GroupSpec], specs: Iterable[GroupSpec]) -> list[ClusterEvent]:
        """Replace the gangs that one object declared (`last`) by those that it declares now."""
        touched: set[GangKey] = set()
        for spec in last:
            name = GangKey(namespace, spec.gang)
            others = list(self._objects.pop(name))
            others.remove(spec)
            if others:
                self._objects[name] = tuple(others)
            touched.add(name)
            self._drop_class_user(spec, name)
            if spec.owner and all(other.owner != spec.owner for other in self._objects.get(name, ())):
                self._forget_dependent(GangKey(namespace, group_of(spec.owner)), name)
        for spec in specs:
            name = GangKey(namespace, spec.gang)
            self._objects[name] = (*self._objects.get(name, ()), spec)
            touched.add(name)
            if spec.owner:
                self._dependents.setdefault(GangKey(namespace, group_of(spec.owner)), set()).add(name)
            if spec.priority_class:
                self._class_users.setdefault(spec.priority_class, set()).add(name)
        return self._resolve_all(touched.union(*(self._dependents.get(name, ()) for name in touched)))

    def set_sizes(
        self, namespace: str, last: Iterable[WorkloadSize], sizes: Iterable[WorkloadSize]
    ) -> list[ClusterEvent]:
        """Replace the gang sizes that an owner of pods defined (`last`) by those that it defines now."""
        now = {GangKey(namespace, size.gang): size for size in sizes}
        for name in {GangKey(namespace, size.gang) for size in last} - now.keys():
            if name in self._entries or name in self._dependents:
                self._orphaned_sizes.add(name)
            else:
                self._sizes.pop(name, None)
        touched: set[GangKey] = set()
        for name, size in now.items():
            self._orphaned_sizes.discard(name)
            if self._sizes.get(name) != size:
                self._sizes[name] = size
                touched |= self._dependents.get(name, set())
                if name in self._entries:
                    touched.add(name)
        return self._resolve_all(touched)

    def set_unreadable(self, kind: KindKey, unreadable: bool) -> list[ClusterEvent]:
        """Set whether objects of a kind, which define gang sizes, cannot be read."""
        if unreadable == (kind in self._unreadable):
            return []
        (self._unreadable.add if unreadable else self._unreadable.discard)(kind)
        return self._resolve_all(key for key, entry in self._entries.items() if entry.members.owned_by(kind))

    def set_priority_class(self, name: str, value: int | None) -> list[ClusterEvent]:
        if self._classes.get(name) == value:
            return []
        if value is None:
            del self._classes[name]
        else:
            self._classes[name] = value
        return self._resolve_all(self._class_users.get(name, ()))

    def priority_class_of(self, value: int) -> str:
        """Return the name of the first PriorityClass with that value; "" if there is none."""
        return min((name for name, known in self._classes.items() if known == value), default="")

    def set_namespace_queue(self, namespace: str, queue: str) -> list[ClusterEvent]:
        if self._queues.get(namespace, "") == queue:
            return []
        if queue:
            self._queues[namespace] = queue
        else:
            del self._queues[namespace]
        return self._resolve_all(self._namespaces.get(namespace, ()))

    def _entry(self, key: GangKey) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            name = _declared_as(key)
            if name is not key:
                self._dependents.setdefault(name, set()).add(key)
            self._namespaces.setdefault(key.namespace, set()).add(key)
        return entry

    def _resolve_all(self, keys: Iterable[GangKey]) -> list[ClusterEvent]:
        if self._postponed is not None:
            self._postponed.update(keys)
            return []
        events: list[ClusterEvent] = []
        for key in sorted(keys):
            events += self._resolve(key)
        return events

    def _resolve(self, key: GangKey) -> list[ClusterEvent]:
        """Combine again what members and objects declare about a gang, or remove the gang if neither are left."""
        name = _declared_as(key)
        groups = self._objects.get(name, ())
        entry = self._entries.get(key)
        # An object declares the gang of its own name; a replica exists only for its members.
        if (entry is None or not len(entry.members)) and (name != key or _declare_none(groups)):
            return self._remove(key) if entry is not None else []
        entry = self._entry(key)
        context = self._context(self._queues.get(key.namespace, ""), self._sizes.get(name))
        resolved = resolve(key, entry.members.oldest_first(), groups, context, self._options)
        gang, job = resolved.gang, self._job_of(key, name, groups, entry.members.job)
        if job is not None:
            gang = msgspec.structs.replace(gang, owner=job)
        others = self._names.set(key, gang)
        if shown := others.pop(key):
            gang = msgspec.structs.replace(gang, shown=shown)
        renamed = self._rename(others)
        if gang == entry.gang:
            return renamed
        self._publish_resolved(resolved, entry)
        last = entry.gang
        if _of_members(gang) != (_of_members(last) if last is not None else _OF_NONE):
            self.affected[key] = None
        entry.gang = gang
        if gang.expected is not None or (last is not None and last.expected is not None):
            self._note_expecting(key, gang.expected is not None)
        return [GangUpdated(gang), *renamed]

    def _job_of(
        self, key: GangKey, name: GangKey, groups: Iterable[GroupSpec], of_members: GangOwner | None
    ) -> GangOwner | None:
        """Return the job by whose name views show the gang; None where the gang's key contains the job's name, or
        no job made its pods."""
        spec = next((each for each in groups if not each.made and each.job is not None), None)
        about = GangKey(key.namespace, group_of(spec.owner)) if spec is not None and spec.owner else name
        size = self._sizes.get(about)
        if size is not None and size.submitted is not None:
            return size.submitted
        if spec is not None:
            return spec.job
        kind, _ = owner_of_name(key.name)
        # An owner that names the gang is known better from the key, but for Spark: its own name is no object's.
        return of_members if not kind or kind == _SPARK else None

    def _rename(self, names: Mapping[GangKey, str]) -> list[ClusterEvent]:
        """Publish the changed shown names of gangs, after a gang of the same name has come or gone."""
        events: list[ClusterEvent] = []
        for key, shown in sorted(names.items()):
            entry = self._entries.get(key)
            if entry is not None and entry.gang is not None and entry.gang.shown != shown:
                entry.gang = msgspec.structs.replace(entry.gang, shown=shown)
                events.append(GangUpdated(entry.gang))
        return events

    def _context(self, queue: str, size: WorkloadSize | None) -> GangContext:
        """Return the outside input for resolving a gang; all gangs without an owner's size share one."""
        context = self._contexts.get(queue) if size is None else None
        if context is None:
            context = GangContext(
                self._naming_of, self._classes, queue, self._native, size, self._unreadable, self._sizes
            )
            if size is None:
                self._contexts[queue] = context
        return context

    def _remove(self, key: GangKey) -> list[ClusterEvent]:
        entry = self._entries.pop(key)
        if key in self.expecting:
            self._note_expecting(key, False)
        name = _declared_as(key)
        self._forget_dependent(name, key)
        _discard(self._namespaces, key.namespace, key)
        renamed = self._rename(self._names.remove(key))
        return [GangRemoved(key), *renamed] if entry.gang is not None else renamed

    def _forget_dependent(self, name: GangKey, key: GangKey) -> None:
        if name != key:
            _discard(self._dependents, name, key)
        if name in self._orphaned_sizes and name not in self._entries and name not in self._dependents:
            self._orphaned_sizes.discard(name)
            self._sizes.pop(name, None)

    def _note_expecting(self, key: GangKey, expects: bool) -> None:
        self.expecting_changed[key] = None
        if expects:
            self.expecting.add(key)
        else:
            self.expecting.discard(key)

    def _drop_class_user(self, spec: GroupSpec, name: GangKey) -> None:
        remaining = self._objects.get(name, ())
        if spec.priority_class and all(other.priority_class != spec.priority_class for other in remaining):
            _discard(self._class_users, spec.priority_class, name)

    def _publish_resolved(self, resolved: Resolved, entry: _Entry) -> None:
        """Warn about each new problem or warning of a gang once: at the faulty pod, the gang's object, or the
        oldest member."""
        gang, last = resolved.gang, entry.gang
        if gang.problem is None and not gang.warnings:
            return
        known = set() if last is None else {last.problem, *last.warnings}
        for problem in (gang.problem, *gang.warnings):
            if problem is not None and problem not in known:
                about = _about(gang, entry, resolved.about.get(problem))
                notice = ObjectWarning(about, "Warning", problem.code, problem.message)
                self._object_warnings.add(notice, partial(self._is_current, gang.key, problem))

    def _is_current(self, key: GangKey, problem: Problem) -> bool:
        gang = self.gang(key)
        return gang is not None and problem in (gang.problem, *gang.warnings)


def _of_members(gang: Gang) -> _OfMembers:
    return gang.revocable, gang.queue, gang.run_time, gang.claims


def _discard(index: dict[K, set[GangKey]], name: K, key: GangKey) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]


def _declare_none(groups: Iterable[GroupSpec]) -> bool:
    return all(spec.made for spec in groups)


def _about(gang: Gang, entry: _Entry, faulty_member: Member | None) -> ObjectRef:
    if faulty_member is None and gang.source is not None:
        return group_ref(gang.source)
    pod = faulty_member or entry.members.oldest_first()[0]
    return pod_ref(gang.key.namespace, pod.name, pod.uid)


def _declared_as(key: GangKey) -> GangKey:
    """Return the name of the object that declares a gang: `workload/podGroup` for `workload/podGroup/replica`."""
    if "/" not in key.name:  # the common case
        return key
    parts = key.name.split("/")
    return key if len(parts) < 3 else GangKey(key.namespace, "/".join(parts[:2]))
