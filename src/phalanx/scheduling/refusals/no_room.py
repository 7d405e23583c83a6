"""Refusals because nodes have too little room."""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.verdict import NamedObject, NodeCount, Objects, Verdict, gang_object
from phalanx.scheduling.refusals.refusal import GangFault, amounts_text

NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NO_ELIGIBLE_NODE = "NoEligibleNode"
UNSUPPORTED = "UnsupportedField"
PREREQUISITE_MISSING = "PrerequisiteMissing"


class Shortage(GangFault, frozen=True, cache_hash=True):
    """No further copy of `pod_class` fits on any of `total` nodes, after `placed` of `need` members were placed.

    `nodes` count the reasons, `eligible` tells whether any node passes the filters, `change` is the smallest
    change that would help. `refusal` is set where the pod itself is at fault, `unready` where what it refers to is
    not there or not ready. `where` names the domain that came nearest, for members that have to be in one: then the
    nodes are those of the domain. `part` names the subgroup that the member is in.
    """

    pod_class: ClassRecord
    total: int
    nodes: tuple[NodeCount, ...] = ()
    eligible: bool = False
    change: str = ""
    refusal: str = ""
    placed: int = 0
    need: int = 1
    where: str = ""
    part: str = ""
    unready: str = ""

    of_nodes: ClassVar[bool] = True
    names_no_pod: ClassVar[bool] = True

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        if self.refusal:
            code, message = UNSUPPORTED, f"the pod asks for {self.refusal}"
        elif self.unready:
            code, message = PREREQUISITE_MISSING, f"0/{self.total} nodes are available: {self.unready}."
        else:
            where = f" in {self.where}" if self.where else ""
            code, message = self._code, f"0/{self.total} nodes{where} are available: {self._reasons()}."
        return Verdict(
            code, message, needed=1, members=1, nodes=self.nodes, change=self.change, objects=self._objects
        )

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        waiting = (*gang.pending.values(), *gang.starting_placeholders)
        refused = [m for m in waiting if m.pod_class is self.pod_class and not m.pod.problem]
        _, example = min([(member.order, member.pod.name) for member in refused])
        inside = f" in {self.where}" if self.where else ""
        part = f"subgroup {self.part} of " if self.part else ""
        needed = f"{self.need} members that {part}gang {gang.title} needs{to_come(gang)}"
        head = f"{self.placed} of the {needed} fit{inside}; "
        if self.refusal:
            code, message = UNSUPPORTED, f"pod {example} asks for {self.refusal}"
        elif self.unready:
            code = PREREQUISITE_MISSING
            message = f"0/{self.total} nodes are available for {example}: {self.unready}."
        else:
            there = " there" if self.where else ""
            message = f"0/{self.total} nodes{there} are available for {example}: {self._reasons()}."
            code = self._code
        named = self._objects
        return Verdict(
            code,
            head + message,
            needed=self.need,
            placeable=self.placed,
            members=gang.counts().present,
            nodes=self.nodes,
            change=self.change,
            objects=(NamedObject("Gang", gang.key.name, gang.key.namespace), *named) if named is not None else None,
        )

    def may_be_about(self, gang: GangRecord) -> bool:
        waiting = (*gang.pending.values(), *gang.starting_placeholders)
        return any(member.pod_class is self.pod_class for member in waiting)

    def of_subgroup(self, title: str) -> Self:
        return msgspec.structs.replace(self, part=title)

    @property
    def _objects(self) -> Objects:
        """Return what the texts about nodes name: nothing where all that is lacking is a resource. Reasons of
        filters cite labels and taints, those of plugins what they like."""
        silent = not self.refusal and not self.unready and not self.where
        return () if silent and all(part.resource for part in self.nodes) else None

    @property
    def _code(self) -> str:
        return NOT_ENOUGH_RESOURCES if self.eligible else NO_ELIGIBLE_NODE

    def _reasons(self) -> str:
        return ", ".join(f"{part.count} {part.reason}" for part in self.nodes) or "there are no nodes"


class Gap(GangFault, frozen=True):
    """All nodes together have less idle than minResources ask: what is missing, per resource."""

    amounts: tuple[tuple[str, int], ...]

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        spec = gang.spec
        assert spec is not None
        text = amounts_text(self.amounts)
        return Verdict(
            NOT_ENOUGH_RESOURCES,
            f"gang {gang.title} asks for minResources that the cluster lacks: {text} too little is free",
            needed=spec.min_member,
            members=gang.counts().present,
            change=f"free or add {text}, or lower minResources",
            objects=(gang_object(gang.key),),
        )


def to_come(gang: GangRecord) -> str:
    """Return in brackets how many of the members that are placed do not exist yet."""
    count = len(gang.starting_placeholders)
    return f" ({count} of them come once it runs)" if count else ""
