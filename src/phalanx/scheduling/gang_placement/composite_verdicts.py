"""Refusals of a composite: of each open gang by itself, or because it waits for the other gangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey, share_of
from phalanx.model.text.counts import count_of
from phalanx.model.verdict import NamedObject, Verdict, gang_object, joined_objects
from phalanx.scheduling.refusals.refusal import Refusal

WAITING_FOR_COMPOSITE = "WaitingForComposite"


class Waits(Refusal, frozen=True):
    """Refusal of a gang that fits but waits for its composite: `able` of the required `least` children can be
    placed.

    `culprit` is a gang that does not fit, with its `title`; None if there are too few groups.
    """

    composite: GangKey
    least: int
    able: int
    culprit: GangKey | None
    title: str = ""

    of_mates: ClassVar[bool] = True

    def gang_verdict_beside(self, gang: GangRecord, mates: Mapping[GangKey, Verdict]) -> Verdict:
        why = mates.get(self.culprit) if self.culprit is not None else None
        message = (
            f"gang {gang.title} waits for CompositePodGroup {self.composite}: "
            f"{share_of(self.able, self.least, 'required group')} can start"
        )
        composite = NamedObject("CompositePodGroup", self.composite.name, self.composite.namespace)
        objects = (gang_object(gang.key), composite)
        if why is None:
            change = f"create {count_of(self.least - self.able, 'more group')}"
            return Verdict(
                WAITING_FOR_COMPOSITE,
                message,
                needed=self.least,
                members=self.able,
                change=change,
                objects=objects,
            )
        return Verdict(
            WAITING_FOR_COMPOSITE,
            f"{message}; gang {self.title}: {why.message}",
            why.unschedulable,
            needed=self.least,
            placeable=self.able,
            members=self.able,
            change=f"first fix gang {self.title}: {why.change}" if why.change else "",
            fault=why.fault,
            # The culprit is a gang of this tree, all of which are in one namespace.
            objects=joined_objects(objects, why.objects),
        )


class TooFewGroups(Refusal, frozen=True):
    """Refusal of a tree of groups: fewer children than its minimum fit, and no child was refused by itself."""


class CompositeRefusal(Refusal, frozen=True):
    """Refusals of gangs, by their positions in the unit. With `holds` the tree has reached its minimum, and these
    gangs wait independently.
    """

    of: tuple[tuple[int, Refusal], ...]
    holds: bool = False

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterator[tuple[GangRecord, Verdict]]:
        lacks = [(gangs[place], lack) for place, lack in self.of]
        mates = {gang.key: lack.gang_verdict(gang) for gang, lack in lacks if not lack.of_mates}
        for gang, lack in lacks:
            yield gang, mates.get(gang.key) or lack.gang_verdict_beside(gang, mates)
