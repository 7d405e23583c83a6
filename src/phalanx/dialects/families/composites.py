"""CompositePodGroup of scheduling.k8s.io: groups of groups."""

from __future__ import annotations

from functools import partial

import msgspec

from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.families.native_groups import is_unit, least_of, topology_of, was_scheduled, workload_of
from phalanx.dialects.families.native_status import ADMITTED
from phalanx.dialects.gangs.group_objects import Seen, seen_of
from phalanx.dialects.gangs.status_input import Conditions, Told, find_condition, fresh_conditions
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.evictability import HIGHEST_USER_PRIORITY
from phalanx.dialects.reader import Document, ObjectReader, describe
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, group_ref
from phalanx.model.composite import Composite
from phalanx.model.events import ClusterEvent, CompositeRemoved, CompositeUpdated
from phalanx.model.gang import GangKey, GroupRef, Problem
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, told_fields

COMPOSITES = WantedKind(NATIVE, "compositepodgroups", "CompositePodGroup", ("v1beta1", "v1alpha3"))

INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"


class CompositeReader(ObjectReader):
    code = "InvalidComposite"


def read_composite(kind: ServedKind, document: Document) -> Composite:
    """Never raises for bad fields: such a composite holds what is below it."""
    reader = CompositeReader(kind, document)
    least = least_of(reader, reader.spec.get("schedulingPolicy"), "spec.schedulingPolicy", "minGroupCount")
    parent, priority = reader.text("parentCompositePodGroupName"), reader.number("priority")
    topology = topology_of(reader)
    preempts = reader.text("preemptionPolicy") != "Never"
    return Composite(
        key=GangKey(reader.ref.namespace, reader.ref.name),
        ref=reader.ref,
        min_groups=least,
        parent=GangKey(reader.ref.namespace, parent) if parent else None,
        workload=workload_of(reader),
        topology=topology,
        priority=priority,
        preempts=preempts,
        unit=is_unit(reader.spec.get("disruptionMode")),
        initiated=was_scheduled(reader, INITIALLY_SCHEDULED),
        created=reader.created,
        problem=reader.problem,
    )


class CompositeObjects(PodEnricher):
    """Takes CompositePodGroups in; `seen` is the status that an object had last."""

    kinds = (COMPOSITES,)

    def __init__(self, warnings: ObjectWarnings, options: DialectOptions | None = None) -> None:
        self._object_warnings = warnings
        self._options = options or DialectOptions()
        # Priorities that are the system's own, and that nobody follows.
        self._overruled: dict[GangKey, int] = {}
        self._known: dict[GangKey, Composite] = {}
        self._seen: dict[GangKey, Seen] = {}

    def seen(self, key: GangKey) -> Seen:
        return self._seen.get(key, Seen())

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        composite = self._within_rights(read_composite(kind, document))
        self._seen[composite.key] = seen_of(document)
        return self._put(composite)

    def _within_rights(self, composite: Composite) -> Composite:
        """Without a priority that only groups in system namespaces may have, of which its owner is told."""
        key, value = composite.key, composite.priority
        if value is None or value <= HIGHEST_USER_PRIORITY or self._options.is_system(key.namespace):
            self._overruled.pop(key, None)
            return composite
        if self._overruled.get(key) != value:
            self._overruled[key] = value
            message = (
                f"{describe(composite.ref)}: spec.priority is {value}, which only groups in system namespaces may "
                f"have; write at most {HIGHEST_USER_PRIORITY}; until then the priorities below it decide"
            )
            notice = ObjectWarning(group_ref(composite.ref), "Warning", "SystemPriority", message)
            self._object_warnings.add(notice, lambda: self._overruled.get(key) == value)
        return msgspec.structs.replace(composite, priority=None)

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        """What is below is held; nothing of it goes without the rest, for all we can read."""
        ref = GroupRef(kind.group, kind.version, kind.kind, kind.plural, namespace, name, uid)
        problem = Problem.of(CompositeReader.code, f"{describe(ref)} cannot be read: {error}", "apply it again")
        self._seen.pop(GangKey(namespace, name), None)
        return self._put(Composite(GangKey(namespace, name), ref, unit=True, problem=problem))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        key = GangKey(namespace, name)
        self._seen.pop(key, None)
        self._overruled.pop(key, None)
        if self._known.pop(key, None) is None:
            return no_changes()
        return [CompositeRemoved(key)], set()

    def unserved(self, kind: ServedKind) -> Changes:
        events: list[ClusterEvent] = []
        for key in sorted(self._known):
            events += self.removed(kind, key.namespace, key.name)[0]
        return events, set()

    def _put(self, composite: Composite) -> Changes:
        last = self._known.get(composite.key)
        if composite == last:
            return no_changes()
        self._known[composite.key] = composite
        problem = composite.problem
        if problem is not None and (last is None or last.problem != problem):
            notice = ObjectWarning(group_ref(composite.ref), "Warning", problem.code, problem.message)
            self._object_warnings.add(notice, partial(self._says, composite.key, problem))
        return [CompositeUpdated(composite)], set()

    def _says(self, key: GangKey, problem: Problem) -> bool:
        return key in self._known and self._known[key].problem == problem


class CompositeStatusInput(msgspec.Struct, frozen=True):
    """What a composite's status says. `placed` tells whether its first quorum has been placed, `reason` and
    `message` why it waits ("" where nothing is known); `held` by a quota or a turn, for which the API has no word.
    `verdict` is the exact reason.
    """

    generation: int = 0
    placed: bool = False
    reason: str = ""
    message: str = ""
    held: bool = False
    verdict: Verdict | None = None


def composite_conditions(told: Conditions, group: CompositeStatusInput, now: int) -> Conditions:
    """Those of the conditions that are not as they should be, as they should be. True is final."""
    last, own = find_condition(told, INITIALLY_SCHEDULED), find_condition(told, ADMITTED)
    scheduled: Told | None = None
    if last is None or last.get("status") != "True":
        if group.placed:
            scheduled = ("True", "Scheduled", "the groups that the policy asks for have been placed")
        elif group.reason and (not group.held or last is not None):
            scheduled = ("False", group.reason, group.message)
    admitted: Told | None = None
    if group.held and not group.placed:
        admitted = ("False", group.reason, group.message)
    elif own is not None and own.get("status") == "False":
        admitted = ("True", "Admitted", "")
    wishes = [(INITIALLY_SCHEDULED, scheduled), (ADMITTED, admitted)]
    if group.verdict is not None and any(wish is not None and wish[0] == "False" for _, wish in wishes):
        wishes.append((LAST_VERDICT, ("True", group.verdict.code, told_fields(group.verdict))))
    return fresh_conditions(told, wishes, group.generation, now)
