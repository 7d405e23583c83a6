"""From what a pod and its owner are called to the gang that it is in, by the first rule that knows its kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

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
from phalanx.dialects.workloads.rule import OPT_OUT, WORKLOAD, KindKey, Membership, WorkloadRule, by_owner

log = logging.getLogger(__name__)


class WorkloadGrouping:
    """Asks the rules about pods that are ours to place and name no gang themselves.

    `wanted` are the kinds of owners whose objects such pods have needed so far; `on_wanted` is called for each new
    one.
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
        """The gang that the pod is in by its owner; None for a pod on its own."""
        metadata = pod.metadata
        if pod.spec.scheduler_name not in self._schedulers or not (metadata.labels or metadata.owner_references):
            return None
        annotations = metadata.annotations
        if any(annotations.get(key) == value for key, value in OPT_OUT):
            return None
        found = self._membership(pod)
        # A minimum without a name is meant for the pods of the same owner.
        stated = annotations.get(OWN_MIN_COUNT, "") if OWN_GROUP not in annotations else ""
        own = Stated(f"annotation {OWN_MIN_COUNT}", stated) if stated else None
        if found is None and own is not None:
            found = _of_controller(metadata)
        if found is None or (own is None and found.minimum is None and found.kind is None):
            return None
        kind = found.kind if own is None else None
        if kind is not None:
            self._want(kind)
        return Declaration(
            naming=WORKLOAD,
            name=found.gang,
            key=f"owner {found.owner}",
            minimum=own,
            extras=read_extras(metadata.labels, annotations),
            queue=stated_queue(metadata),
            role=found.role,
            owner=kind,
            usual_minimum=found.minimum,
        )

    def with_part(self, pod: PodObject, declaration: Declaration) -> Declaration:
        """The gang that the pod names itself, with its part in it where some members may exist only later."""
        labels = pod.metadata.labels
        if self._staged.keys().isdisjoint(labels) or declaration.naming.needed:
            return declaration
        if pod.spec.scheduler_name not in self._schedulers:
            return declaration
        found = self._membership(pod)
        if found is None or found.kind is None:
            return declaration
        self._want(found.kind)
        return msgspec.structs.replace(declaration, part=found.role)

    def _want(self, kind: KindKey) -> None:
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
                found = rule.member(pod)
            except Exception:
                # Every pod passes here: a bug in one rule must not keep all of them from being known.
                log.exception("the rule %r for grouping pods is left out from now on", rule.name)
                del self._rules[rank]
                continue
            if found is not None:
                return found
        return None

    def _ranked(self) -> list[tuple[int, WorkloadRule]]:
        """The first rules last, so that they hold where two have the same key."""
        return sorted(self._rules.items(), key=lambda entry: -entry[0])


def _of_controller(metadata: Metadata) -> Membership | None:
    owner = controlling_owner(metadata)
    if owner is None or not owner.uid:
        return None
    return Membership(by_owner(owner.kind, owner.name, owner.uid), f"{owner.kind} {owner.name}")
