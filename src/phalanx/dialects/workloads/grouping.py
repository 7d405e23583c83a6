"""Gang membership of pods by labels and owner, from the first matching grouping rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from phalanx.dialects.core import Metadata, PodObject
from phalanx.dialects.gangs.declaration import (
    OWN_GROUP,
    OWN_MIN_COUNT,
    Declaration,
    controlling_owner,
    stated_queue,
)
from phalanx.dialects.gangs.extras import Stated, read_extras
from phalanx.dialects.gangs.naming import Precedence
from phalanx.dialects.workloads.kubernetes import JOB
from phalanx.dialects.workloads.replicas import replicated_kind
from phalanx.dialects.workloads.rule import OPT_OUT, WORKLOAD, KindKey, Membership, WorkloadRule, by_owner

log = logging.getLogger(__name__)


class WorkloadGrouping:
    """Applies the rules to pods of our schedulers that name no gang themselves.

    `wanted` are the kinds of owners that such pods have needed so far; `on_wanted` is called for each new kind.
    """

    def __init__(self, rules: Iterable[WorkloadRule], schedulers: Collection[str]) -> None:
        self.wanted: set[KindKey] = set()
        self.on_wanted: Callable[[], None] = lambda: None
        self._schedulers = schedulers
        self._rules = dict(enumerate(rules))
        self._by_label = {key: rank for rank, rule in self._ranked() for key in rule.labels}
        self._by_annotation = {key: rank for rank, rule in self._ranked() for key in rule.annotations}
        self._staged = {key: rule for _, rule in self._ranked() if rule.staged for key in rule.labels}
        self._by_controller = {kind: rank for rank, rule in self._ranked() for kind in rule.controllers}

    def declare(self, pod: PodObject) -> Declaration | None:
        """Return the gang declaration that follows from the pod's owner; None for a pod without a matching rule."""
        metadata = pod.metadata
        if pod.spec.scheduler_name not in self._schedulers or not (metadata.labels or metadata.owner_references):
            return None
        annotations = metadata.annotations
        if any(annotations.get(key) == value for key, value in OPT_OUT):
            return None
        membership = self._membership(pod)
        own = _nameless_minimum(annotations)
        if membership is None and own is not None:
            membership = _of_controller(metadata)
        if membership is None or (own is None and membership.minimum is None and membership.kind is None):
            return None
        kind = membership.kind if own is None else replicated_kind(controlling_owner(metadata))
        if kind is not None:
            self.want(kind)
        return Declaration(
            naming=WORKLOAD,
            name=membership.gang,
            key=f"owner {membership.owner}",
            minimum=own,
            extras=read_extras(metadata.labels, annotations),
            queue=stated_queue(metadata),
            role=membership.role,
            owner=kind,
            usual_minimum=membership.minimum,
        )

    def with_part(self, pod: PodObject, declaration: Declaration) -> Declaration:
        """Add to the pod's own gang declaration what its owner decides: its part where some members are created
        later, the minimum of a native group with a basic policy, the kind of a controller that limits the minimum.
        """
        labels = pod.metadata.labels
        if declaration.naming.needed:
            return self._with_basic_minimum(pod, declaration)
        if declaration.naming.precedence is Precedence.UNNAMED:
            return self._with_replicas(pod, declaration)
        if self._staged.keys().isdisjoint(labels):
            return declaration
        if pod.spec.scheduler_name not in self._schedulers:
            return declaration
        membership = self._membership(pod)
        if membership is None or membership.kind is None:
            return declaration
        self.want(membership.kind)
        return msgspec.structs.replace(declaration, part=membership.role)

    def _with_replicas(self, pod: PodObject, declaration: Declaration) -> Declaration:
        kind = replicated_kind(controlling_owner(pod.metadata))
        if kind is None or pod.spec.scheduler_name not in self._schedulers:
            return declaration
        self.want(kind)
        return msgspec.structs.replace(declaration, owner=kind)

    def _with_basic_minimum(self, pod: PodObject, declaration: Declaration) -> Declaration:
        if declaration.basic_minimum is not None or pod.spec.scheduler_name not in self._schedulers:
            return declaration
        annotations = pod.metadata.annotations
        if any(annotations.get(key) == value for key, value in OPT_OUT):
            return declaration
        own = _nameless_minimum(annotations)
        if own is not None:
            return msgspec.structs.replace(declaration, basic_minimum=own)
        membership = self._membership(pod)
        if membership is None or membership.kind is None or membership.kind != JOB.kind:
            return declaration
        self.want(membership.kind)
        return msgspec.structs.replace(declaration, owner=membership.kind)

    def want(self, kind: KindKey) -> None:
        """Request the watch of a kind of owners."""
        if kind not in self.wanted:
            self.wanted.add(kind)
            self.on_wanted()

    def _membership(self, pod: PodObject) -> Membership | None:
        metadata = pod.metadata
        ranks = {self._by_label[key] for key in metadata.labels if key in self._by_label}
        ranks.update(self._by_annotation[key] for key in metadata.annotations if key in self._by_annotation)
        owner = controlling_owner(metadata)
        if owner is not None:
            rank = self._by_controller.get((owner.api_version.rpartition("/")[0], owner.kind))
            if rank is not None:
                ranks.add(rank)
        for rank in sorted(ranks):
            rule = self._rules.get(rank)
            if rule is None:
                continue
            try:
                membership = rule.member(pod)
            except Exception:
                # Every pod passes here: a bug in one rule must not hide all pods.
                log.exception("the grouping rule %r has failed and is ignored from now on", rule.name)
                del self._rules[rank]
                continue
            if membership is not None:
                return membership
        return None

    def _ranked(self) -> list[tuple[int, WorkloadRule]]:
        """Return the grouping rules in reverse order, so that the first rule has precedence for a shared label or
        owner kind."""
        return sorted(self._rules.items(), key=lambda entry: -entry[0])


def _nameless_minimum(annotations: Mapping[str, str]) -> Stated | None:
    """Return a minimum without a name, which applies to the pods of the same owner."""
    stated = annotations.get(OWN_MIN_COUNT, "") if OWN_GROUP not in annotations else ""
    return Stated(f"annotation {OWN_MIN_COUNT}", stated) if stated else None


def _of_controller(metadata: Metadata) -> Membership | None:
    owner = controlling_owner(metadata)
    if owner is None or not owner.uid:
        return None
    return Membership(by_owner(owner.kind, owner.name, owner.uid), f"{owner.kind} {owner.name}")
