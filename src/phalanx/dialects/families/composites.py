"""CompositePodGroup of scheduling.k8s.io: groups of PodGroups."""

from __future__ import annotations

from functools import partial

import msgspec

from phalanx.dialects.api_groups import NATIVE, NATIVE_VERSIONS
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.families.native_groups import is_unit, least_of, topology_of, was_scheduled, workload_of
from phalanx.dialects.families.native_status import ADMITTED
from phalanx.dialects.gangs.group_objects import Seen, seen_of
from phalanx.dialects.gangs.status_input import ConditionContent, Conditions, find_condition, fresh_conditions
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

# v1alpha2 has none.
COMPOSITES = WantedKind(
    NATIVE,
    "compositepodgroups",
    "CompositePodGroup",
    tuple(version for version in NATIVE_VERSIONS if version != "v1alpha2"),
)

INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"


class CompositeReader(ObjectReader):
    code = "InvalidComposite"


def read_composite(kind: ServedKind, document: Document) -> Composite:
    """Decode a CompositePodGroup. Never raises for invalid fields: these hold the PodGroups below it."""
    reader = CompositeReader(kind, document)
    min_groups = least_of(reader, reader.spec.get("schedulingPolicy"), "spec.schedulingPolicy", "minGroupCount")
    parent, priority = reader.text("parentCompositePodGroupName"), reader.number("priority")
    topology = topology_of(reader)
    preempts = reader.text("preemptionPolicy") != "Never"
    return Composite(
        key=GangKey(reader.ref.namespace, reader.ref.name),
        ref=reader.ref,
        min_groups=min_groups,
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
    """Processes CompositePodGroups; `seen` returns an object's last seen status."""

    kinds = (COMPOSITES,)

    def __init__(self, warnings: ObjectWarnings, options: DialectOptions | None = None) -> None:
        self._object_warnings = warnings
        self._options = options or DialectOptions()
        # Ignored priorities, which are reserved for the system.
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
        """Return the CompositePodGroup without a priority reserved for system namespaces, and warn its owner."""
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
        """Process an undecodable CompositePodGroup: the PodGroups below it are held, and evicted only as a whole,
        the safe choice."""
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
            self._object_warnings.add(notice, partial(self._is_current, composite.key, problem))
        return [CompositeUpdated(composite)], set()

    def _is_current(self, key: GangKey, problem: Problem) -> bool:
        return key in self._known and self._known[key].problem == problem


class CompositeStatusInput(msgspec.Struct, frozen=True):
    """Input for a composite's status. `placed` is True once its first quorum has been placed. `reason` and
    `message` explain why it waits ("" if unknown). `held` means that it waits for a quota or a turn, for which
    the API has no condition. `verdict` is the exact reason. `undecided`: verdicts are missing, and the
    conditions that depend on them do not change."""

    generation: int = 0
    placed: bool = False
    reason: str = ""
    message: str = ""
    held: bool = False
    verdict: Verdict | None = None
    undecided: bool = False


def composite_conditions(current: Conditions, group: CompositeStatusInput, now: int) -> Conditions:
    """Return the conditions of a CompositePodGroup's status that need an update. Once True, a condition never
    changes back."""
    last, last_admitted = find_condition(current, INITIALLY_SCHEDULED), find_condition(current, ADMITTED)
    scheduled: ConditionContent | None = None
    if last is None or last.get("status") != "True":
        if group.placed:
            scheduled = ("True", "Scheduled", "the groups that the policy asks for have been placed")
        elif group.reason and (not group.held or last is not None):
            scheduled = ("False", group.reason, group.message)
    admitted: ConditionContent | None = None
    if group.held and not group.placed:
        admitted = ("False", group.reason, group.message)
    elif not group.undecided and last_admitted is not None and last_admitted.get("status") == "False":
        admitted = ("True", "Admitted", "")
    desired = [(INITIALLY_SCHEDULED, scheduled), (ADMITTED, admitted)]
    if group.verdict is not None and any(wish is not None and wish[0] == "False" for _, wish in desired):
        desired.append((LAST_VERDICT, ("True", group.verdict.code, told_fields(group.verdict))))
    return fresh_conditions(current, desired, group.generation, now)
