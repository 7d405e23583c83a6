"""Intake of API objects: converts each object into events for `ClusterState`.

The resulting specs do not depend on the order in which objects arrive, and the cost of a call depends on the size
of the change. A gang is resolved again only when one of its inputs has changed, and published only when the result
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from phalanx.dialects.core import (
    Metadata,
    NamespaceObject,
    NodeObject,
    PodObject,
    PriorityClassObject,
    ResourceQuotaObject,
    clamp_priority,
)
from phalanx.dialects.devices.device_plans import DEVICE_PLAN
from phalanx.dialects.dialect import Dialect
from phalanx.dialects.enricher import NO_CHANGES, ObjectChanges, PodEnrichers
from phalanx.dialects.enrichers import core_enrichers
from phalanx.dialects.families.composites import CompositeObjects
from phalanx.dialects.field_owners import other_controllers_way
from phalanx.dialects.gangs.agreement import MemberDeclaration
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.dialects.gangs.expected import ExpectedMemberIndex
from phalanx.dialects.gangs.gang_index import GangIndex
from phalanx.dialects.gangs.group_objects import GroupObjects, GroupRecord
from phalanx.dialects.gangs.held_room import HELD_ROOM
from phalanx.dialects.gangs.naming import Precedence
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION
from phalanx.dialects.gangs.unnamed_members import UnnamedMembers
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.nodes.maintenance import MaintenanceWindows
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.decoder import PodDecoder, node_spec, unreadable_pod
from phalanx.dialects.pods.disruption_budgets import DisruptionBudgetIndex
from phalanx.dialects.pods.known_pods import KnownPod, KnownPods, PodWarnings
from phalanx.dialects.pods.revocable import RevocableClasses, follows
from phalanx.dialects.pods.traits import TraitsReader
from phalanx.dialects.quotas.account_index import AccountIndex, AccountObject
from phalanx.dialects.quotas.account_readers import confine_to_namespace, unreadable_account
from phalanx.dialects.quotas.namespaces import NamespaceIndex
from phalanx.dialects.quotas.node_groups import NodeGroupEnricher
from phalanx.dialects.quotas.queue_defaults import QueueDefaults
from phalanx.dialects.quotas.quota_profiles import PLURAL as PROFILES
from phalanx.dialects.quotas.quota_profiles import QuotaProfileIndex
from phalanx.dialects.reader import Document
from phalanx.dialects.registry import BUILT_IN, Dialects
from phalanx.dialects.reservations.objects import AdvanceReservations
from phalanx.dialects.run_times.enricher import RunTimes
from phalanx.dialects.shared_values import SharedValues
from phalanx.dialects.signatures import Signer
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, ObjectWarnings, node_ref
from phalanx.dialects.workloads.grouping import WorkloadGrouping
from phalanx.dialects.workloads.options import workload_rules
from phalanx.dialects.workloads.owners import OWNER_RULES, WorkloadOwners
from phalanx.dialects.workloads.pod_declarations import PodDeclarations
from phalanx.model.account import DEFAULT_QUEUE, AccountKey
from phalanx.model.events import ClusterEvent, NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.gang import Gang, GangKey, GangOwner
from phalanx.model.node import Node
from phalanx.model.pod import Pod

Distrust = Callable[[str, str, str], None]


class Intake:
    """Methods named after an object process its latest state; methods named `..._removed` process its deletion."""

    def __init__(
        self,
        scheduler_names: Iterable[str],
        options: DialectOptions | None = None,
        signer: Signer | None = None,
        distrust: Distrust = lambda key, namespace, name: None,
        dialects: Sequence[Dialect] = BUILT_IN,
    ) -> None:
        """`signer` verifies our signatures on pods; without one no signature is valid. `distrust` is called with
        the annotation's key and the object if a signature is invalid."""
        self._scheduler_names = frozenset(scheduler_names)
        self._options = options or DialectOptions()
        self.dialects = Dialects(dialects)
        self._decoder = PodDecoder(self._options, signer)
        self._distrust = distrust
        self._pods = KnownPods()
        self._shared = SharedValues[Any]()
        self._nodes: dict[str, Node] = {}
        self._object_warnings = ObjectWarnings()
        self._warnings = PodWarnings(self._object_warnings, self._pods)
        self._queues = QueueDefaults()
        # Namespaces in deletion: no pod can be bound there.
        self.ending: set[str] = set()
        self._gangs = GangIndex(self._options, self._object_warnings, self.dialects.naming_of)
        self._expected = ExpectedMemberIndex(self._gangs, self._pods, self._scheduler_names)
        rules = workload_rules(self.dialects.all, self._options)
        self.workloads = WorkloadGrouping(rules, self._scheduler_names)
        self._declarations = PodDeclarations(
            self.dialects.declarations, self.workloads, self._options, self._scheduler_names
        )
        self._traits = TraitsReader(
            self._decoder, self._declarations, lambda pod, pod_class: self.enrichers.concerned(pod, pod_class)
        )
        self.group_objects = GroupObjects(self._gangs, self.dialects.groups, self.workloads.want)
        self.owners = WorkloadOwners(self._gangs, (*rules, *OWNER_RULES), self.warn, self._publish_members)
        self._claimants = UnnamedMembers(self._object_warnings)
        self._lent = RevocableClasses()
        self._accounts = AccountIndex(self._object_warnings)
        self._profiles = QuotaProfileIndex(self._nodes)
        self._namespaces = NamespaceIndex(self._object_warnings)
        self._disruption = DisruptionBudgetIndex(self._object_warnings, self._pods)
        self.run_times = RunTimes(self._object_warnings, self._scheduler_names, self._options.enforces_run_times)
        self.composites = CompositeObjects(self._object_warnings, self._options)
        brought = chain.from_iterable(dialect.enrichers(self._object_warnings) for dialect in dialects)
        self.maintenance_windows = MaintenanceWindows(self._object_warnings)
        self.reservations = AdvanceReservations(
            self._object_warnings,
            self._pods,
            lambda pod: self._decoder.template(pod).pod_class,
            self._scheduler_names,
        )
        own = (NodeGroupEnricher(), self.run_times, self.composites, self.maintenance_windows, self.reservations)
        self.enrichers = PodEnrichers((*core_enrichers(self._options, self._pods), *brought, *own))

    def drain_warnings(self) -> list[ObjectWarning]:
        """Return the warnings for users since the last call: each once per change of an object, and only if still
        true."""
        return self._object_warnings.drain()

    def warn(self, about: ObjectRef, reason: str, message: str) -> None:
        """Add a warning about an object. No component checks later whether it is still true."""
        self._object_warnings.add(ObjectWarning(about, "Warning", reason, message), lambda: True)

    # Pods

    def pod(self, pod: PodObject) -> list[ClusterEvent]:
        metadata, traits = pod.metadata, self._traits.traits(pod)
        uid, annotations, active = metadata.uid, metadata.annotations, traits.active
        last = self._pods.get(uid)
        # Pods of one name follow each other, so a known pod has replaced its namesake already.
        events = self._forget_namesake(metadata.namespace, metadata.name, uid) if last is None else []
        follows = active is None and traits.queue is None
        queue = self._queues.queue(metadata.namespace) if follows else traits.queue or DEFAULT_QUEUE
        budgets = self._budgets_of(pod, traits.common.labels)
        spec = self._decoder.individual(pod, traits.template, traits.common, queue, budgets)
        if metadata.namespace in self.ending and not spec.node:
            spec = msgspec.structs.replace(spec, gated=True)
        if last is not None and last.pod.cards and last.pod.cards != spec.cards and last.pod.node == spec.node:
            # The owner of a pod can edit this annotation: the devices recorded at binding count.
            spec = msgspec.structs.replace(spec, cards=last.pod.cards)
        if annotations and spec.scheduler in self._scheduler_names:  # other schedulers sign with their own keys
            if spec.mark is None and active is not None and PLAN_ANNOTATION in annotations:
                self._note_forgery(metadata)
            if DEVICE_PLAN in annotations and not self._decoder.planned(pod):
                self._note_devices(metadata)
            if HELD_ROOM in annotations and active is not None:
                self._note_held(pod, spec)
        holds = HELD_ROOM in annotations or spec.node
        if last is not None and not holds and self._expected.note_held(uid, ()):
            self._note_member(spec)  # the nomination was withdrawn
        declared = traits.ended if spec.terminating or spec.finished else active
        concerned = traits.concerned if last is None else traits.concerned | last.concerned
        facts, shown = self.enrichers.pod(pod, spec, concerned) if concerned else NO_CHANGES
        if active is None or (last is not None and last.declared is None):
            self._note_ungrouped(metadata, spec, grouped=active is not None, follows=follows)
        if last is None and (active is None or active.declaration.naming.precedence is Precedence.UNNAMED):
            self._warnings.nameless(spec, self.dialects.declarations.nameless(metadata))
        events += facts
        events += self._store(spec, declared, traits.owners, traits.job)
        if traits.concerned or concerned:
            self._pods[uid].concerned = traits.concerned
        if shown:
            events += self.apply(([], shown - {uid} if last is None else shown))  # a new pod was published above
        if traits.faults or (last is not None and last.faults):
            self._warnings.passed_over(uid, traits.faults)
        if self._gangs.affected or self._gangs.expecting_changed:
            events += self._publish_members()
        return events

    def pod_removed(self, namespace: str, name: str, uid: str) -> list[ClusterEvent]:
        """Remove a pod. A pod with an unknown uid is looked up by its name; an unknown pod causes no event."""
        record = self._pods.drop(uid or self._pods.uid(namespace, name))
        if record is None:
            return []
        uid = record.pod.uid
        self._queues.remove_pod(record.pod.namespace, uid)
        self._claimants.pod_removed(uid)
        events: list[ClusterEvent] = [PodRemoved(uid), *self.apply(self.enrichers.pod_gone(record.pod))]
        if record.declared is not None:
            events += self._gangs.remove_member(GangKey(record.pod.namespace, record.pod.gang), uid)
            self._note_member(record.pod)
            self._expected.pod_removed(uid)
        return events + self._publish_members()

    def malformed_pod(self, namespace: str, name: str, uid: str, error: str, raw: bytes) -> list[ClusterEvent]:
        """Process a pod with undecodable JSON: it occupies its node, and stays in its last known gang."""
        uid = uid or self._pods.uid(namespace, name) or f"unknown uid of {namespace}/{name}"
        events = self._forget_namesake(namespace, name, uid)
        record = self._pods.get(uid)
        spec = unreadable_pod(namespace, name, uid, error, raw, record.pod if record else None)
        events += self._store(spec, record.declared if record else None, record.owners if record else "")
        return events + self._publish_members()

    def _note_ungrouped(self, metadata: Metadata, spec: Pod, *, grouped: bool, follows: bool) -> None:
        """Record a pod that is in no gang, or was in none before this change; with `follows` it uses the default
        queue of its namespace."""
        if follows:
            self._queues.add_pod(spec.namespace, spec.uid)
        else:
            self._queues.remove_pod(spec.namespace, spec.uid)
        ours = spec.scheduler in self._scheduler_names and not spec.finished
        self._claimants.pod_changed(spec, metadata if ours and not grouped else None)

    def _note_forgery(self, metadata: Metadata) -> None:
        """Report, once per pod, a plan mark without a valid signature for this pod, gang and plan."""
        record = self._pods.get(metadata.uid)
        if record is None or record.pod.mark is not None:
            self._distrust(PLAN_ANNOTATION, metadata.namespace, metadata.name)

    def _note_held(self, pod: PodObject, spec: Pod) -> None:
        """Record the nodes on which room is held for the members that this leader creates. An annotation without a
        valid signature is reported once per pod."""
        nodes = self._decoder.held(pod, spec.gang)
        if nodes is None:
            if spec.uid not in self._pods:
                self._distrust(HELD_ROOM, spec.namespace, spec.name)
        elif self._expected.note_held(spec.uid, nodes):
            self._note_member(spec)

    def _note_member(self, pod: Pod) -> None:
        """Mark the gang of a changed pod for an update of its placeholders."""
        if self._gangs.expecting and (key := GangKey(pod.namespace, pod.gang)) in self._gangs.expecting:
            self._gangs.expecting_changed[key] = None

    def _note_devices(self, metadata: Metadata) -> None:
        """Report an invalid signature of a pod's device plan, when the pod is first seen or first has a node."""
        record = self._pods.get(metadata.uid)
        if record is None or not record.pod.node:
            self._distrust(DEVICE_PLAN, metadata.namespace, metadata.name)

    def _forget_namesake(self, namespace: str, name: str, uid: str) -> list[ClusterEvent]:
        """Remove a known pod of the same name with another uid, even if its deletion was never reported."""
        last = self._pods.uid(namespace, name)
        return self.pod_removed(namespace, name, last) if last and last != uid else []

    def _store(
        self, spec: Pod, declared: MemberDeclaration | None, owners: str, job: GangOwner | None = None
    ) -> list[ClusterEvent]:
        uid = spec.uid
        record = self._pods.get(uid)
        events: list[ClusterEvent] = []
        if record is None:
            record = KnownPod(spec, declared, owners)
            self._pods.enter(record)
            if declared is not None:
                events += self._gangs.add_member(GangKey(spec.namespace, spec.gang), spec, declared, job)
            events += self._shown(record)
            if self._gangs.expecting:
                self._note_member(spec)
            self._warnings.changed(spec, declared, "", ())
            return events
        last, previous_declared = record.pod, record.declared
        record.pod, record.declared, record.owners = spec, declared, owners
        if declared != previous_declared:
            if declared is not None and previous_declared is not None and spec.gang == last.gang:
                events += self._gangs.change_member(GangKey(spec.namespace, spec.gang), spec, declared)
            elif declared is not None:
                events += self._gangs.add_member(GangKey(spec.namespace, spec.gang), spec, declared)
        if spec != last:
            events += self._shown(record)
            if self._gangs.expecting:
                self._note_member(spec)
            self._warnings.changed(
                spec, declared, last.problem, previous_declared.declaration.conflicts if previous_declared else ()
            )
        if previous_declared is not None and (declared is None or spec.gang != last.gang):
            events += self._gangs.remove_member(GangKey(last.namespace, last.gang), uid)
        return events

    def _shown(self, record: KnownPod) -> list[ClusterEvent]:
        """Return an update of the pod with the properties from other objects, if it differs from the last published
        one."""
        gang = self._gang_of(record.pod)
        own = self._lent.made_revocable(record.pod) if follows(record.pod, gang) else record.pod
        spec = self.enrichers.enriched(own, gang)
        if spec == record.published:
            return []
        record.published = spec
        return [PodUpdated(spec)]

    def apply(self, changes: ObjectChanges) -> list[ClusterEvent]:
        """Return an enricher's events, followed by updates of the pods that the enricher completes differently
        now."""
        facts, touched = changes
        if callable(touched):
            touched = {uid for uid, record in self._pods.items() if touched(record.pod)}
        shown = (self._shown(self._pods[uid]) for uid in sorted(touched) if uid in self._pods)
        return [*facts, *chain.from_iterable(shown)]

    def catch_up(self) -> list[ClusterEvent]:
        """Resolve the postponed gangs (`group_objects.postpone`) once all existing objects have arrived."""
        return self.group_objects.catch_up() + self._publish_members()

    def _publish_members(self) -> list[ClusterEvent]:
        """Publish members that a change of their gang affects, and changed placeholders of expected members."""
        affected = self._gangs.drain_affected_members()
        events = self.apply(([], set(affected))) if affected else []
        if self._gangs.expecting_changed:
            changed = sorted(self._gangs.expecting_changed)
            self._gangs.expecting_changed.clear()
            events += chain.from_iterable(map(self._expected.update, changed))
        return events

    def _gang_of(self, pod: Pod) -> Gang | None:
        return self._gangs.gang(GangKey(pod.namespace, pod.gang)) if pod.gang else None

    def _budgets_of(self, pod: PodObject, labels: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        if pod.status.phase in ("Succeeded", "Failed"):
            return ()
        return self._disruption.counting(pod.metadata.namespace, labels)

    # Nodes

    def node(self, node: NodeObject) -> list[ClusterEvent]:
        spec, facts = node_spec(node), self.apply(self.enrichers.node(node))
        last = self._nodes.get(spec.name)
        if spec == last:
            return facts
        self._nodes[spec.name] = spec
        if spec.problems and (last is None or spec.problems != last.problems):
            about, message = node_ref(spec.name, spec.uid), "; ".join(spec.problems)
            notice = ObjectWarning(about, "Warning", "InvalidNode", message)
            self._object_warnings.add(notice, lambda: self._has_problems(spec))
        return [NodeUpdated(spec), *self._share_nodes(last, spec), *facts]

    def _share_nodes(self, last: Node | None, now: Node | None) -> list[ClusterEvent]:
        """Update the quotas that an ElasticQuotaProfile derives from its nodes, after a relevant node change."""
        events: list[ClusterEvent] = []
        for address, spec in self._profiles.node_changed(last, now):
            events += self._accounts.replace(address, spec, {})
        return events

    def _has_problems(self, node: Node) -> bool:
        now = self._nodes.get(node.name)
        return now is not None and (now.uid, now.problems) == (node.uid, node.problems)

    def node_removed(self, name: str) -> list[ClusterEvent]:
        last = self._nodes.pop(name, None)
        if last is None:
            return []
        return [NodeRemoved(name), *self._share_nodes(last, None), *self.apply(self.enrichers.node_gone(name))]

    # Group objects

    def group(self, resource: ServedKind, document: Document) -> list[ClusterEvent]:
        """Process an added or changed PodGroup or Workload."""
        return self.group_objects.updated(resource, document) + self._publish_members()

    def malformed_group(
        self, resource: ServedKind, namespace: str, name: str, uid: str, error: str
    ) -> list[ClusterEvent]:
        """Process a PodGroup or Workload with undecodable JSON: its gang is held."""
        return self.group_objects.malformed(resource, namespace, name, uid, error) + self._publish_members()

    def group_removed(self, resource: ServedKind, namespace: str, name: str) -> list[ClusterEvent]:
        return self.group_objects.removed(resource, namespace, name) + self._publish_members()

    def group_kind_removed(self, resource: ServedKind) -> list[ClusterEvent]:
        """Remove all PodGroups or Workloads of a kind that the API no longer serves."""
        return self.group_objects.unserved(resource) + self._publish_members()

    def group_record(self, key: GangKey) -> GroupRecord | None:
        """Return the input for the status of a gang's PodGroup; None if the gang has none."""
        gang = self._gangs.gang(key)
        if gang is None or gang.source is None:
            return None
        seen = self.group_objects.seen(gang.source)
        return GroupRecord(
            ref=gang.source,
            status=seen.status,
            generation=seen.generation,
            occupied_by=self._occupied_by(key) if self.dialects.group_of(gang.source).names_owners else "",
            ours=self.is_ours(key),
            hypernode=seen.hypernode,
        )

    def is_ours(self, key: GangKey) -> bool:
        """Return whether a gang has an active member for one of our schedulers, or no active member at all.

        A native group without active members is ours only if one of its inactive members is.
        """
        gang, schedulers = self._gangs.gang(key), self._gangs.schedulers(key)
        if not schedulers and gang is not None and gang.source is not None and gang.rules.native:
            schedulers = self._gangs.schedulers(key, active=False)
            return not schedulers.isdisjoint(self._scheduler_names)
        return not schedulers or not schedulers.isdisjoint(self._scheduler_names)

    def serves_native(self, served: bool) -> list[ClusterEvent]:
        """Record whether the API server serves Kubernetes' own PodGroups (assumed until known)."""
        self._claimants.native_served(served)
        return self._gangs.set_native(served)

    def _occupied_by(self, key: GangKey) -> str:
        record = self._pods.get(self._gangs.oldest_member(key) or "")
        return record.owners if record else ""

    # Objects that declare accounts: queues and quotas

    def account(self, resource: ServedKind, document: Document) -> list[ClusterEvent]:
        """Process an added or changed Queue, ElasticQuota, ElasticQuotaTree or ElasticQuotaProfile."""
        metadata, status = document["metadata"], document.get("status")
        address = (resource, str(metadata.get("namespace") or ""), str(metadata["name"]))
        if resource.plural == PROFILES:
            spec = self._profiles.read(address, document)
        else:
            spec = confine_to_namespace(
                self.dialects.read_account(resource, document), self._options.quota_namespaces
            )
        status = status if isinstance(status, Mapping) else {}
        controller = other_controllers_way(metadata, "f:status", "f:state")
        return self._account_changes(self._accounts.replace(address, spec, status, controller))

    def _account_changes(self, events: list[ClusterEvent]) -> list[ClusterEvent]:
        """Return the events of changed queues and quotas, and the updates of pods in queues with changed rules."""
        return self.apply((events, self._in_queues(self.enrichers.accounts_changed(events))))

    def enforce_run_times(self, enforced: bool) -> list[ClusterEvent]:
        """Set whether the scheduler enforces the run-time limits that no other component enforces."""
        return self.apply(([], self._in_queues(self.run_times.enforce(enforced))))

    def _in_queues(self, queues: set[str]) -> set[str]:
        if not queues:
            return set()
        pods = (record.pod for record in self._pods.values())
        return {pod.uid for pod in pods if (self._gang_of(pod) or pod).queue in queues}

    def malformed_account(
        self, resource: ServedKind, namespace: str, name: str, uid: str, error: str
    ) -> list[ClusterEvent]:
        """Process a queue or quota object with undecodable JSON: its queues and quotas admit no further pods."""
        address = (resource, namespace, name)
        last = self._accounts.last(address)
        self._profiles.forget(address)
        spec = unreadable_account(resource, namespace, name, uid, error, last)
        return self._account_changes(self._accounts.replace(address, spec, {}))

    def account_removed(self, resource: ServedKind, namespace: str, name: str) -> list[ClusterEvent]:
        self._profiles.forget((resource, namespace, name))
        return self._account_changes(self._accounts.replace((resource, namespace, name), None, {}))

    def account_kind_removed(self, resource: ServedKind) -> list[ClusterEvent]:
        """Remove all queue or quota objects of a kind that the API no longer serves."""
        addresses = self._accounts.addresses(resource)
        return list(chain.from_iterable(self.account_removed(*address) for address in addresses))

    def account_keys(self) -> KeysView[AccountKey]:
        """Return the keys of queues and quotas that have an object."""
        return self._accounts.keys()

    def account_object(self, key: AccountKey) -> AccountObject | None:
        """Return the input for the status of a queue's or quota's object; None if it has none."""
        return self._accounts.object(key)

    def disruption_budget(self, document: Document) -> list[ClusterEvent]:
        """Process an added or changed PodDisruptionBudget; its own events precede the updates of pods that it
        covers now or no longer."""
        events, counted = self._disruption.replace(document)
        return events + self._publish_counted(counted)

    def malformed_disruption_budget(self, namespace: str, name: str, uid: str, error: str) -> list[ClusterEvent]:
        """Process a PodDisruptionBudget with undecodable JSON: no pod that it covered can be evicted."""
        events, counted = self._disruption.malformed(namespace, name, uid, error)
        return events + self._publish_counted(counted)

    def disruption_budget_removed(self, namespace: str, name: str) -> list[ClusterEvent]:
        """Remove a PodDisruptionBudget, after its name is removed from all pods."""
        events, counted = self._disruption.remove(namespace, name)
        return self._publish_counted(counted) + events

    def _publish_counted(self, counted: Mapping[str, tuple[str, ...]]) -> list[ClusterEvent]:
        events: list[ClusterEvent] = []
        for uid, budgets in sorted(counted.items()):
            record = self._pods.get(uid)
            if record is not None and record.pod.budgets != budgets:
                record.pod = msgspec.structs.replace(record.pod, budgets=budgets)
                events += self._shown(record)
        return events

    def priority_class(self, priority_class: PriorityClassObject) -> list[ClusterEvent]:
        return self._gangs.set_priority_class(priority_class.metadata.name, clamp_priority(priority_class.value))

    def priority_class_removed(self, name: str) -> list[ClusterEvent]:
        return self._gangs.set_priority_class(name, None)

    def namespace(self, namespace: NamespaceObject) -> list[ClusterEvent]:
        """Process an added or changed namespace: its default queue (Volcano's annotation) here, its labels by the
        enrichers."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        events = self._prefer_queue(name, namespace.metadata.annotations.get(QUEUE_ANNOTATION, ""))
        if namespace.metadata.deletion_timestamp is not None:
            events += self._end(name)
        events += self._namespaces.namespace(namespace.metadata)
        return events + self.apply(self.enrichers.namespace(name, labels))

    def _end(self, namespace: str) -> list[ClusterEvent]:
        """Gate the pending pods of a namespace in deletion, since they cannot be bound any more."""
        if namespace in self.ending:
            return []
        self.ending.add(namespace)
        events: list[ClusterEvent] = []
        for record in self._pods.of_namespace(namespace):
            if not record.pod.node:
                record.pod = msgspec.structs.replace(record.pod, gated=True)
                events += self._shown(record)
        return events

    def namespace_removed(self, name: str) -> list[ClusterEvent]:
        self.ending.discard(name)
        events = self._namespaces.namespace_removed(name)
        return self._prefer_queue(name, "") + events + self.apply(self.enrichers.namespace(name, None))

    def resource_quota(self, quota: ResourceQuotaObject) -> list[ClusterEvent]:
        return self._namespaces.resource_quota(quota)

    def resource_quota_removed(self, namespace: str, name: str) -> list[ClusterEvent]:
        return self._namespaces.resource_quota_removed(namespace, name)

    def _prefer_queue(self, namespace: str, queue: str) -> list[ClusterEvent]:
        events = self._gangs.set_namespace_queue(namespace, queue)
        for uid in self._queues.change_namespace(namespace, queue):
            record = self._pods[uid]
            record.pod = msgspec.structs.replace(record.pod, queue=self._queues.queue(namespace))
            events += self._shown(record)
        return events + self._publish_members()
