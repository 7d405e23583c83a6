"""Who is in which gang, and what each gang came out as when it was last resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.members import Members
from phalanx.dialects.gangs.naming import GangNaming
from phalanx.dialects.gangs.resolver import GangContext, Resolved, resolve
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings, group_ref, pod_ref
from phalanx.model.events import ClusterEvent, GangRemoved, GangUpdated
from phalanx.model.gang import Gang, GangKey, Problem
from phalanx.model.pod import Pod

K = TypeVar("K")


class _Entry:
    def __init__(self) -> None:
        self.members = Members()
        self.gang: Gang | None = None


class GangIndex:
    """Every gang that a live pod names or an object declares, exactly once."""

    def __init__(
        self, options: DialectOptions, warnings: ObjectWarnings, naming_of: Mapping[str, GangNaming]
    ) -> None:
        """`naming_of` as in `GangContext`."""
        self._naming_of = naming_of
        self._options = options
        self._object_warnings = warnings
        self._entries: dict[GangKey, _Entry] = {}
        # By the name that objects declare; a gang of a 1.35 Workload depends on the name without the replica key.
        self._objects: dict[GangKey, list[GroupSpec]] = {}
        self._dependents: dict[GangKey, set[GangKey]] = {}
        self._classes: dict[str, int] = {}
        self._class_users: dict[str, set[GangKey]] = {}
        self._queues: dict[str, str] = {}
        self._namespaces: dict[str, set[GangKey]] = {}
        self._affected: dict[GangKey, None] = {}
        self._native = True

    def gang(self, key: GangKey) -> Gang | None:
        entry = self._entries.get(key)
        return entry.gang if entry else None

    def schedulers(self, key: GangKey, active: bool = True) -> set[str]:
        """The schedulers of the active members, or of all."""
        entry = self._entries.get(key)
        return entry.members.schedulers(active) if entry else set()

    @property
    def native(self) -> bool:
        """Whether Kubernetes' own PodGroups are served."""
        return self._native

    def set_native(self, served: bool) -> list[ClusterEvent]:
        if served == self._native:
            return []
        self._native = served
        entries = self._entries.items()
        return self._resolve_all(
            key for key, entry in entries if entry.gang is not None and entry.gang.rules.native
        )

    def drain_affected_members(self) -> list[str]:
        """The members of gangs that have since the last call changed their queue, or become revocable or ceased to
        be; sorted."""
        turned, self._affected = self._affected, {}
        return sorted(uid for key in turned if key in self._entries for uid in self._entries[key].members.uids())

    def oldest_member(self, key: GangKey) -> str | None:
        """Its uid; None for a gang without members."""
        entry = self._entries.get(key)
        return entry.members.oldest() if entry and len(entry.members) else None

    def add_member(self, key: GangKey, pod: Pod, declared: MemberDeclaration) -> list[ClusterEvent]:
        news = self._entry(key).members.add(pod.created, pod.name, pod.uid, declared)
        return self._resolve(key) if news or self._entries[key].gang is None else []

    def remove_member(self, key: GangKey, uid: str) -> list[ClusterEvent]:
        news = self._entries[key].members.remove(uid)
        return self._resolve(key) if news else []

    def change_member(self, key: GangKey, pod: Pod, declared: MemberDeclaration) -> list[ClusterEvent]:
        """A member says something else than before."""
        members = self._entries[key].members
        left = members.remove(pod.uid)
        news = members.add(pod.created, pod.name, pod.uid, declared)
        return self._resolve(key) if left or news else []

    def replace(self, namespace: str, last: Iterable[GroupSpec], specs: Iterable[GroupSpec]) -> list[ClusterEvent]:
        """One object used to declare `last` and now declares `specs`."""
        touched: set[GangKey] = set()
        for spec in last:
            name = GangKey(namespace, spec.gang)
            self._objects[name].remove(spec)
            if not self._objects[name]:
                del self._objects[name]
            touched.add(name)
            self._drop_class_user(spec, name)
        for spec in specs:
            name = GangKey(namespace, spec.gang)
            self._objects.setdefault(name, []).append(spec)
            touched.add(name)
            if spec.priority_class:
                self._class_users.setdefault(spec.priority_class, set()).add(name)
        keys = touched.union(*(self._dependents.get(name, ()) for name in touched))
        return self._resolve_all(keys)

    def set_priority_class(self, name: str, value: int | None) -> list[ClusterEvent]:
        if self._classes.get(name) == value:
            return []
        if value is None:
            del self._classes[name]
        else:
            self._classes[name] = value
        return self._resolve_all(self._class_users.get(name, ()))

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
            self._dependents.setdefault(_declared_as(key), set()).add(key)
            self._namespaces.setdefault(key.namespace, set()).add(key)
        return entry

    def _resolve_all(self, keys: Iterable[GangKey]) -> list[ClusterEvent]:
        events: list[ClusterEvent] = []
        for key in sorted(keys):
            events += self._resolve(key)
        return events

    def _resolve(self, key: GangKey) -> list[ClusterEvent]:
        """Resolves the gang again, or lets it go when nobody speaks of it any more."""
        name = _declared_as(key)
        groups = self._objects.get(name, [])
        entry = self._entries.get(key)
        # (An object declares the gang of its own name; a replica is there for its members only.)
        if (entry is None or not len(entry.members)) and (name != key or _declare_none(groups)):
            return self._remove(key) if entry is not None else []
        entry = self._entry(key)
        context = GangContext(self._naming_of, self._classes, self._queues.get(key.namespace, ""), self._native)
        resolved = resolve(key, entry.members.oldest_first(), groups, context, self._options)
        gang = resolved.gang
        if gang == entry.gang:
            return []
        self._tell_about(resolved, entry)
        last = entry.gang
        if gang.revocable != (last is not None and last.revocable) or (
            last is not None and gang.queue != last.queue
        ):
            self._affected[key] = None
        entry.gang = gang
        return [GangUpdated(gang)]

    def _remove(self, key: GangKey) -> list[ClusterEvent]:
        entry = self._entries.pop(key)
        _discard(self._dependents, _declared_as(key), key)
        _discard(self._namespaces, key.namespace, key)
        return [GangRemoved(key)] if entry.gang is not None else []

    def _drop_class_user(self, spec: GroupSpec, name: GangKey) -> None:
        rest = self._objects.get(name, ())
        if spec.priority_class and all(other.priority_class != spec.priority_class for other in rest):
            _discard(self._class_users, spec.priority_class, name)

    def _tell_about(self, resolved: Resolved, entry: _Entry) -> None:
        """Each new problem or warning once: at the pod at fault, the gang's object, or the oldest member."""
        gang, last = resolved.gang, entry.gang
        known = set() if last is None else {last.problem, *last.warnings}
        for problem in (gang.problem, *gang.warnings):
            if problem is not None and problem not in known:
                about = _about(gang, entry, resolved.about.get(problem))
                notice = ObjectWarning(about, "Warning", problem.code, problem.message)
                self._object_warnings.add(notice, partial(self._says, gang.key, problem))

    def _says(self, key: GangKey, problem: Problem) -> bool:
        gang = self.gang(key)
        return gang is not None and problem in (gang.problem, *gang.warnings)


def _discard(index: dict[K, set[GangKey]], name: K, key: GangKey) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]


def _declare_none(groups: Iterable[GroupSpec]) -> bool:
    return all(spec.made for spec in groups)


def _about(gang: Gang, entry: _Entry, culprit: Member | None) -> ObjectRef:
    if culprit is None and gang.source is not None:
        return group_ref(gang.source)
    pod = culprit or entry.members.oldest_first()[0]
    return pod_ref(gang.key.namespace, pod.name, pod.uid)


def _declared_as(key: GangKey) -> GangKey:
    """The name under which an object declares the gang: `workload/podGroup` for `workload/podGroup/replica`."""
    parts = key.name.split("/")
    return key if len(parts) < 3 else GangKey(key.namespace, "/".join(parts[:2]))
