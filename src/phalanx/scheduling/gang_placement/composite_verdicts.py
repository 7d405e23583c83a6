"""Refusals of a composite: what each of its open gangs lacks, or that it waits for the others."""

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
    """A gang that could start waits for its composite, of whose `least` children `able` hold or could be placed.
    `culprit` is a gang that could not, with its `title`; None if there are too few groups."""

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
            # (The culprit is a gang of this tree, all of which is in one namespace.)
            objects=joined_objects(objects, why.objects),
        )


class TooFewGroups(Refusal, frozen=True):
    """Fewer children of a tree can be placed than it needs, and none of its gangs lacks anything."""


class CompositeRefusal(Refusal, frozen=True):
    """What which gang lacks, by its place in the unit. `holds` where the tree has what it needs, and these gangs
    wait for themselves."""

    of: tuple[tuple[int, Refusal], ...]
    holds: bool = False

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Iterator[tuple[GangRecord, Verdict]]:
        lacks = [(gangs[place], lack) for place, lack in self.of]
        mates = {gang.key: lack.gang_verdict(gang) for gang, lack in lacks if not lack.of_mates}
        for gang, lack in lacks:
            yield gang, mates.get(gang.key) or lack.gang_verdict_beside(gang, mates)
