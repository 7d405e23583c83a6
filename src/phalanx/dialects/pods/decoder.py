"""Decoding of core/v1 Pods and Nodes into the scheduler's specs."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from phalanx.dialects.core import Metadata, NodeObject, PodObject, PodSpec, clamp_priority
from phalanx.dialects.devices.device_plans import planned_cards
from phalanx.dialects.devices.node_cards import cards_at, percent_offered
from phalanx.dialects.devices.shared_cards import RESULTS, cards_of, charged, device_need, device_terms
from phalanx.dialects.gangs.declaration import TASK_SPEC, controlling_owner, role_of
from phalanx.dialects.gangs.held_room import HELD_ROOM, decode_held
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, decode_mark
from phalanx.dialects.lenient import DecodingFault, summary
from phalanx.dialects.nodes.images import images_at
from phalanx.dialects.nodes.numa import numa_policy
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.binding_marks import BINDING_ANNOTATION, decode_binding
from phalanx.dialects.pods.evictability import (
    DEFAULT_GRACE,
    MIRROR,
    NO_TERMS,
    TERM_KEYS,
    Terms,
    bound_at,
    condemned_by,
    eviction_terms,
    grace_of,
    hides_terms,
    is_critical,
    is_of_daemon_set,
    is_static,
    never_ends,
    stated_grace,
)
from phalanx.dialects.pods.inter_pod_constraints import context_of, peers_of
from phalanx.dialects.pods.pod_class import pod_class_of, scoring_strategy
from phalanx.dialects.pods.ranks import NO_INDEX, RANK_KEYS, index_of, leads
from phalanx.dialects.pods.requests import StatedRequests, demand_of, hides_amounts, reports_resources, usage_of
from phalanx.dialects.pods.revocable import revocable_of
from phalanx.dialects.shared_values import SharedValues
from phalanx.dialects.signatures import Signer
from phalanx.dialects.times import parse_time
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.devices.device_words import VGPU_PERCENT
from phalanx.model.gang import GangKey
from phalanx.model.maintenance import CORDONED_BY
from phalanx.model.node import Node
from phalanx.model.pod import PlanMark, Pod, PodClass, PodPhase
from phalanx.model.resources import NO_AMOUNTS, Requests, parse_amount, requests_of
from phalanx.model.selectors import Taint
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import QuantityError

# Koordinator's labels: the quota that a pod is charged to, and whether it can be preempted.
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"

# Specs and reported resources repeat from pod to pod; a cache with more entries is cleared.
_CACHE_SIZE = 10_000

# The part of a template beside the spec, for pods without any such property.
_NOTHING_BESIDE: tuple[object, ...] = ({}, None, {}, "", None)

_PHASES = {phase.value: phase for phase in PodPhase} | {"": PodPhase.PENDING}
_NODE_NAME = re.compile(rb'"nodeName"\s*:\s*"([^"\\]+)"')
_PHASE = re.compile(rb'"phase"\s*:\s*"(Pending|Running|Succeeded|Failed)"')


class _Stated(msgspec.Struct, frozen=True):
    """Properties that a pod's own labels and annotations state, and that concern this pod alone."""

    role: str = ""
    index: int = NO_INDEX
    leads: bool = False
    quota: str = ""
    user: str = ""
    firm: bool = False
    terms: Terms = NO_TERMS


_NOTHING_STATED = _Stated()


class DecodedTemplate(msgspec.Struct, frozen=True):
    """Decoded properties that pods with an equal template share."""

    pod_class: PodClass
    demand: StatedRequests
    strategy_faults: tuple[DecodingFault, ...]
    peer_faults: tuple[DecodingFault, ...] = ()


class PodDecoder:
    """Decodes pods; equal templates share one `PodClass` object."""

    def __init__(self, options: DialectOptions | None = None, signer: Signer | None = None) -> None:
        self._options = options or DialectOptions()
        self._signer = signer or Signer()
        self._specs: dict[bytes, DecodedTemplate] = {}
        self._classes: dict[PodClass, PodClass] = {}
        self._usages: dict[bytes, tuple[Requests, tuple[DecodingFault, ...]]] = {}
        # Timestamps repeat by the second, and one plan mark is on thousands of pods.
        self._times: dict[str, int] = {}
        self._marks: dict[PlanMark, PlanMark] = {}
        self._labels: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        self._kinds = SharedValues[str]()
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._encoder = msgspec.json.Encoder()
        own = (TASK_SPEC, QUOTA_NAME, PREEMPTIBLE, self._options.user_label, self._options.user_annotation)
        self._read = frozenset((*own, *RANK_KEYS, *TERM_KEYS))

    def template(self, pod: PodObject) -> DecodedTemplate:
        key = pod.template = _template(pod)
        decoded = self._specs.get(key)
        if decoded is None:
            if len(self._specs) >= _CACHE_SIZE:
                self._specs.clear()
                self._classes.clear()
            demand = demand_of(pod.spec)
            strategy, faults = scoring_strategy(pod.metadata.annotations)
            revocable = revocable_of(pod.metadata.labels, pod.metadata.annotations)
            devices = device_need(pod, demand)
            demand = replace(demand, requests=charged(demand.requests, devices))
            peers, illegible = peers_of(pod)
            pod_class = pod_class_of(
                pod.spec, demand, strategy, revocable, devices, peers, numa_policy(pod.metadata.annotations)
            )
            pod_class = self._classes.setdefault(pod_class, pod_class)
            decoded = self._specs[key] = DecodedTemplate(pod_class, demand, faults, illegible)
        return decoded

    def pod(
        self,
        pod: PodObject,
        template: DecodedTemplate,
        gang: str,
        queue: str = DEFAULT_QUEUE,
        budgets: tuple[str, ...] = (),
        shared: tuple[tuple[str, str], ...] | None = None,
        role: str = "",
    ) -> Pod:
        """Return the spec of a pod. A fault makes the pod unschedulable; its readable requests count, and with
        unreadable ones it is not evicted.

        `gang` is "" for a pod without one, `queue` is the queue of such a pod, and `budgets` are the budgets that
        cover it. `shared` are its labels if the caller has computed them with `shared` already, and `role` is its
        role if the owner defines one.
        """
        common = self.common(
            pod, template, gang, self.shared(pod.metadata.labels) if shared is None else shared, role
        )
        return self.individual(pod, template, common, queue, budgets)

    def common(
        self, pod: PodObject, template: DecodedTemplate, gang: str, labels: tuple[tuple[str, str], ...], role: str
    ) -> Pod:
        """Return the properties of a pod that its spec without the node, its labels, its owners and its annotations
        without our marks determine; its name and its uid are empty."""
        metadata, wanted = pod.metadata, pod.spec
        stated, owner = self._stated(metadata), controlling_owner(metadata)
        return Pod(
            namespace=metadata.namespace,
            name="",
            uid="",
            pod_class=template.pod_class,
            usage=template.demand.requests,
            scheduler=wanted.scheduler_name,
            gated=bool(wanted.scheduling_gates),
            priority=clamp_priority(wanted.priority or 0),
            preempts=wanted.preemption_policy != "Never",
            gang=gang,
            role=role or stated.role,
            index=stated.index,
            leads=bool(gang) and stated.leads,
            quota=stated.quota,
            user=stated.user,
            firm=stated.firm,
            checkpoint=stated.terms.checkpoint,
            preemptable=stated.terms.preemptable,
            cooldown=stated.terms.cooldown,
            grace=stated_grace(wanted),
            fixture=is_of_daemon_set(metadata),
            endless=never_ends(wanted.restart_policy, owner),
            owner_kind=self._kinds[owner.kind] if owner is not None else "",
            controller=(owner.uid or f"{owner.kind} {owner.name}") if owner is not None else "",
            critical=is_critical(wanted, self._options.is_system(metadata.namespace)),
            labels=labels,
        )

    def individual(
        self, pod: PodObject, template: DecodedTemplate, common: Pod, queue: str, budgets: tuple[str, ...]
    ) -> Pod:
        """Return the spec of a pod with these `common` properties."""
        metadata, status, node, annotations = pod.metadata, pod.status, pod.spec.node_name, pod.metadata.annotations
        times = self._times
        created = times.get(metadata.creation_timestamp)
        started, amiss = self._time(status.start_time) if status.start_time else 0, template.demand.problems
        spec = replace(
            common,
            name=metadata.name,
            uid=metadata.uid,
            node=node,
            phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
            created=self._time(metadata.creation_timestamp) if created is None else created,
            nominated_node=status.nominated_node_name,
            queue=queue,
            started=started,
            bound=(self._time(bound_at(pod)) or started) if node else 0,
            budgets=budgets,
            mark=self._mark(metadata, common.gang) if PLAN_ANNOTATION in annotations else None,
        )
        # Most pods have none of the following, and each argument costs time.
        if node and reports_resources(status):
            usage, amiss = self._usage(pod, template)
            spec = replace(spec, usage=usage)
        if status.conditions and (condemned := condemned_by(pod)):
            spec = replace(spec, condemned=condemned)
        if annotations and node:
            if not RESULTS.isdisjoint(annotations):
                spec = replace(spec, cards=cards_of(pod, template.pod_class.devices, self._signer))
            text = annotations.get(BINDING_ANNOTATION)
            if text is not None and spec.mark is None:
                spec = replace(spec, marked_bound=decode_binding(text, self._signer, metadata.uid, node))
            if MIRROR in annotations and is_static(pod):
                spec = replace(spec, fixture=True, critical=True)
        if metadata.deletion_timestamp is not None:
            leaves = self._time(metadata.deletion_timestamp)
            spec = replace(spec, terminating=True, leaves=leaves, grace=grace_of(pod))
        if pod.faults or amiss or template.peer_faults:
            # A pod with unknown requests frees an unknown amount, so it is no victim.
            unknown = bool(amiss) or any(map(hides_amounts, pod.faults)) or any(map(hides_terms, pod.faults))
            problem = summary((*pod.faults, *amiss, *template.peer_faults))
            spec = replace(spec, problem=problem, preemptable=spec.preemptable and not unknown)
        return spec

    def planned(self, pod: PodObject) -> bool:
        """Return whether the annotation with a pod's shared GPUs has our signature."""
        metadata, node = pod.metadata, pod.spec.node_name
        return planned_cards(metadata.annotations, self._signer, metadata.uid, node) is not None

    def held(self, pod: PodObject, gang: str) -> tuple[str, ...] | None:
        """Return the nodes on which resources are held for the members that this leader creates; None without our
        signature."""
        metadata = pod.metadata
        key = GangKey(metadata.namespace, gang)
        nominated = "" if pod.spec.node_name else pod.status.nominated_node_name
        return decode_held(metadata.annotations[HELD_ROOM], self._signer, metadata.uid, key, nominated)

    def shared(self, labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """Return a pod's sorted labels; equal labels and equal pairs share one object."""
        pairs_sorted = tuple(sorted(labels.items()))
        known = self._labels.get(pairs_sorted)
        if known is not None:
            return known
        if len(self._labels) >= _CACHE_SIZE:
            self._labels.clear()
            self._pairs.clear()
        # Pods that differ in one label have all other pairs in common.
        pairs = self._pairs
        own = self._labels[pairs_sorted] = tuple([pairs.setdefault(pair, pair) for pair in pairs_sorted])
        return own

    def _time(self, text: str | None) -> int:
        if not text:
            return 0
        seconds = self._times.get(text)
        if seconds is None:
            if len(self._times) >= _CACHE_SIZE:
                self._times.clear()
            seconds = self._times[text] = parse_time(text)
        return seconds

    def _mark(self, metadata: Metadata, gang: str) -> PlanMark | None:
        text = metadata.annotations.get(PLAN_ANNOTATION)
        if not text or not gang:
            return None
        mark = decode_mark(text, self._signer, metadata.uid, GangKey(metadata.namespace, gang))
        if mark is None:
            return None
        if len(self._marks) >= _CACHE_SIZE:
            self._marks.clear()
        return self._marks.setdefault(mark, mark)

    def _stated(self, metadata: Metadata) -> _Stated:
        labels, annotations = metadata.labels, metadata.annotations
        if self._read.isdisjoint(labels) and (not annotations or self._read.isdisjoint(annotations)):
            return _NOTHING_STATED
        return _Stated(
            role=role_of(metadata),
            index=index_of(metadata),
            leads=leads(metadata),
            quota=labels.get(QUOTA_NAME, ""),
            user=self._user(metadata),
            firm=labels.get(PREEMPTIBLE) == "false",
            terms=eviction_terms(labels, annotations),
        )

    def _user(self, metadata: Metadata) -> str:
        options = self._options
        label = metadata.labels.get(options.user_label, "") if options.user_label else ""
        if label or not options.user_annotation:
            return label
        return metadata.annotations.get(options.user_annotation, "")

    def _usage(self, pod: PodObject, template: DecodedTemplate) -> tuple[Requests, tuple[DecodingFault, ...]]:
        """Return the usage of a pod on a node, from the resources that its status reports."""
        key = self._encoder.encode((_amounts(pod.spec), _reported(pod)))
        usage = self._usages.get(key)
        if usage is None:
            if len(self._usages) >= _CACHE_SIZE:
                self._usages.clear()
            amounts, problems = usage_of(pod.spec, pod.status)
            charged_amounts = charged(amounts, template.pod_class.devices)
            usage = self._usages[key] = charged_amounts or NO_AMOUNTS, problems
        return usage


def unreadable_pod(namespace: str, name: str, uid: str, error: str, raw: bytes, last: Pod | None) -> Pod:
    """Return a substitute for a pod with undecodable JSON: never schedulable, and it occupies its node with its
    last known usage, else with one pod slot.

    `last` is the last known spec of the pod; its node is used where the new bytes contain none. The pod is not
    evicted, since its unreadable content could forbid eviction.
    """
    node, phase = _NODE_NAME.search(raw), _PHASE.search(raw)
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        pod_class=last.pod_class if last else PodClass(),
        usage=last.usage if last else NO_AMOUNTS,
        scheduler=last.scheduler if last else "",
        node=node[1].decode(errors="replace") if node else last.node if last else "",
        phase=PodPhase(phase[1].decode()) if phase else last.phase if last else PodPhase.PENDING,
        created=last.created if last else 0,
        gang=last.gang if last else "",
        role=last.role if last else "",
        problem=f"the pod cannot be read: {error}",
        queue=last.queue if last else DEFAULT_QUEUE,
        quota=last.quota if last else "",
        user=last.user if last else "",
        firm=last.firm if last else False,
        started=last.started if last else 0,
        bound=last.bound if last else 0,
        checkpoint=last.checkpoint if last else 0,
        grace=last.grace if last else DEFAULT_GRACE,
        preemptable=False,
        cooldown=last.cooldown if last else 0,
        fixture=last.fixture if last else False,
        critical=last.critical if last else False,
        budgets=last.budgets if last else (),
        labels=last.labels if last else (),
    )


def node_spec(node: NodeObject) -> Node:
    problems = [str(fault) for fault in node.faults]
    allocatable: dict[str, int] = {}
    for resource, value in node.status.allocatable.items():
        path = f"status.allocatable.{resource}"
        try:
            amount = parse_amount(resource, value)
        except QuantityError as error:
            problems.append(f"{path}: {error}")
            continue
        if amount < 0:
            problems.append(f"{path}: {quoted(value)} is negative")
            continue
        allocatable[resource] = amount
    cards, faults = cards_at(node, allocatable)
    problems += faults
    if percent := percent_offered(cards):
        allocatable.setdefault(VGPU_PERCENT, percent)
    return Node(
        name=node.metadata.name,
        uid=node.metadata.uid,
        allocatable=requests_of(allocatable),
        labels=tuple(sorted(node.metadata.labels.items())),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        problems=tuple(problems),
        images=images_at(node.status),
        features=tuple(sorted(node.status.declared_features)),
        cards=cards,
        cordoned_by=node.metadata.annotations.get(CORDONED_BY, ""),
    )


def spec_template(spec: PodSpec) -> bytes:
    """Encode all fields of a pod's spec that determine its `PodClass`."""
    return msgspec.json.encode(
        (
            *_amounts(spec),
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            [volume.image for volume in spec.volumes if volume.image is not None],
            spec.host_network,
            spec.host_users,
        )
    )


def _template(pod: PodObject) -> bytes:
    """Encode all fields of a pod that determine its `PodClass`."""
    of_spec = pod.shared.template if pod.shared is not None else spec_template(pod.spec)
    annotations, revocable = pod.metadata.annotations, revocable_of(pod.metadata.labels, pod.metadata.annotations)
    context = context_of(pod)
    if not annotations and revocable is None and context is None:
        return of_spec
    strategy = {key: value for key, value in annotations.items() if "/resource-strategy-" in key}
    beside = (strategy, revocable, device_terms(pod), numa_policy(annotations), context)
    return of_spec if beside == _NOTHING_BESIDE else of_spec + msgspec.json.encode(beside)


def _amounts(spec: PodSpec) -> tuple[object, ...]:
    return (spec.containers, spec.init_containers, spec.overhead, spec.resources)


def _reported(pod: PodObject) -> tuple[object, ...]:
    status = pod.status
    resizing = [condition for condition in status.conditions if condition.type == "PodResizePending"]
    return (
        status.container_statuses,
        status.init_container_statuses,
        status.resources,
        status.allocated_resources,
        resizing,
    )
