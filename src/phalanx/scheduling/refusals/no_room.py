"""Refusals for lack of eligible nodes or free resources."""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import share_of
from phalanx.model.text.counts import count_of
from phalanx.model.verdict import NamedObject, NodeCount, Objects, Verdict, gang_object
from phalanx.scheduling.refusals.refusal import GangFault, amounts_text

NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NO_ELIGIBLE_NODE = "NoEligibleNode"
UNSUPPORTED = "UnsupportedField"
PREREQUISITE_MISSING = "PrerequisiteMissing"


class Shortage(GangFault, frozen=True, cache_hash=True):
    """Lack of a node for one more copy of `pod_class`, after `placed` of `need` members were placed.

    `total` nodes were checked and `nodes` counts them by reason. `eligible` is True if a node passes the filters.
    `change` is the smallest change that helps. `refusal` names unsupported fields of the pod, `unready` a
    referenced object that is missing or not ready. For members that require one topology domain, `where` names
    the best domain and the nodes are those of this domain. `part` names the subgroup of the member.
    `tries` is the number of tries of a search that neither found a placement nor proved that there is none.
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
    tries: int = 0

    of_nodes: ClassVar[bool] = True
    names_no_pod: ClassVar[bool] = True

    def pod_verdict(self, pod: PodRecord) -> Verdict:
        if self.refusal:
            code, message = UNSUPPORTED, f"the pod cannot be scheduled: {self.refusal}"
        elif self.unready:
            code, message = PREREQUISITE_MISSING, f"0/{self.total} nodes are available: {self.unready}."
        else:
            where = f" in {self.where}" if self.where else ""
            code, message = self._code, f"0/{self.total} nodes{where} are available: {self._reasons()}."
        return Verdict(
            code, message, needed=1, members=1, nodes=self.nodes, change=self.change, objects=self._objects
        )

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        created_later = to_come(gang)
        waiting = (*gang.pending.values(), *gang.starting_placeholders)
        title, share = gang.title, share_of(self.placed, self.need)
        refused = [m for m in waiting if m.pod_class is self.pod_class and not m.pod.problem]
        _, name = min([(member.order, member.pod.name) for member in refused])
        example = f"{gang.key.namespace}/{name}"
        inside = f" in {self.where}" if self.where else ""
        part = f"subgroup {self.part} of " if self.part else ""
        verb = "fits" if self.need == 1 else "fit"
        required = f"{share} of {part}gang {title}{created_later}"
        head = f"{required} {verb}{inside}; "
        if self.tries:
            head = f"not found in {self.tries} {'try' if self.tries == 1 else 'tries'}: {head}"
        if self.refusal:
            code, message = UNSUPPORTED, f"pod {example} cannot be scheduled: {self.refusal}"
        elif self.unready:
            code = PREREQUISITE_MISSING
            message = f"0/{self.total} nodes are available for pod {example}: {self.unready}."
        else:
            there = " there" if self.where else ""
            message = f"0/{self.total} nodes{there} are available for pod {example}: {self._reasons()}."
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

    def not_found(self, tries: int) -> Self:
        return msgspec.structs.replace(self, tries=tries) if tries else self

    def of_subgroup(self, title: str) -> Self:
        return msgspec.structs.replace(self, part=title)

    @property
    def lacks_amounts(self) -> bool:
        """Whether free amounts on some node would help."""
        return not self.refusal and not self.unready and any(part.resource for part in self.nodes)

    @property
    def _objects(self) -> Objects:
        """Return () if only resources are lacking. Reasons of filters and plugins contain arbitrary names: None."""
        only_resources = not self.refusal and not self.unready and not self.where
        return () if only_resources and all(part.resource for part in self.nodes) else None

    @property
    def _code(self) -> str:
        return NOT_ENOUGH_RESOURCES if self.eligible else NO_ELIGIBLE_NODE

    def _reasons(self) -> str:
        return ", ".join(f"{part.count} {part.reason}" for part in self.nodes) or "the cluster has no nodes"


class Gap(GangFault, frozen=True):
    """Idle resources of all nodes below the minResources of a gang: the missing amount per resource."""

    amounts: tuple[tuple[str, int], ...]

    def gang_verdict(self, gang: GangRecord) -> Verdict:
        spec = gang.spec
        assert spec is not None
        text = amounts_text(self.amounts)
        # Users cannot lower a field that a controller computes from the pods.
        stated, lower = ("", "") if spec.generated else (" (minResources)", ", or lower minResources")
        return Verdict(
            NOT_ENOUGH_RESOURCES,
            f"gang {gang.title} requires {text} more than the cluster has free{stated}",
            needed=spec.min_member,
            members=gang.counts().present,
            change=f"free or add {text}{lower}",
            objects=(gang_object(gang.key),),
        )


def to_come(gang: GangRecord) -> str:
    """Return in brackets how many of the placed members do not exist yet."""
    count = len(gang.starting_placeholders)
    return f" ({count_of(count, 'pod')} created once it runs)" if count else ""
