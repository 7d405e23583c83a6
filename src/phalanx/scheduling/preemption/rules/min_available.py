"""How far gangs may be thinned out where nobody needs the room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import Gang
from phalanx.model.pod import CAN_LEAVE, MemberState
from phalanx.scheduling.preemption.rules.gang_integrity import (
    Subquorum,
    bundle_of,
    is_unit,
    needs_nobody,
    spare_members,
)


class Headcount:
    """Counts the members that go with one decision, against what their gangs need.

    A gang keeps its minimum, that of every role, and what its owner's own budget says. One whose members may only
    be disrupted together loses nobody singly. Sentences go on from "it ".
    """

    def __init__(self, composites: Composites) -> None:
        self._composites = composites
        self._gone: dict[GangRecord, dict[str, PodRecord]] = {}

    def take(self, record: PodRecord) -> str | None:
        """Counts a member as gone; if its gang cannot spare it, says why and counts nothing."""
        gang = record.gang
        if gang is None:
            return None
        noun = gang.spec
        if noun is None or noun.problem is not None:
            return "belongs to a gang of which nobody knows what it needs"
        gone = self._going(gang)
        objection = _needed(gang, noun, record, gone, self._composites) or _over_budget(gang, noun, len(gone) + 1)
        if objection is None:
            gone[record.pod.uid] = record
        return objection

    def take_all(self, members: list[PodRecord]) -> str | None:
        """Counts whole gangs as gone, if their owners' own budgets let them."""
        by_gang: dict[GangRecord, list[PodRecord]] = {}
        for member in members:
            if member.gang is not None:
                by_gang.setdefault(member.gang, []).append(member)
        for gang, leaving in by_gang.items():
            noun, count = gang.spec, len({*self._going(gang), *(member.pod.uid for member in leaving)})
            objection = _over_budget(gang, noun, count) if noun is not None else None
            if objection is not None:
                return objection
        for gang, leaving in by_gang.items():
            self._gone[gang].update((member.pod.uid, member) for member in leaving)
        return None

    def give_back(self, record: PodRecord) -> None:
        """A member that was counted as gone stays after all."""
        if record.gang is not None:
            self._gone.get(record.gang, {}).pop(record.pod.uid, None)

    def _going(self, gang: GangRecord) -> dict[str, PodRecord]:
        """Who was counted as gone; whom the state counts as terminating by now, it counts itself."""
        counted = self._gone.get(gang, {})
        going = self._gone[gang] = {uid: record for uid, record in counted.items() if record.state in CAN_LEAVE}
        return going


def whole(record: PodRecord, state: ClusterState) -> list[PodRecord] | str:
    """Everyone who leaves if a pod's gang leaves as a whole, those of its bundle too; or why nobody can now."""
    if record.gang is None:
        return [record]
    gangs = bundle_of(record.gang, state.gangs, state.surroundings.composites)
    members = [member for gang in gangs for member in gang.members.values()]
    if any(member.state is MemberState.ASSUMED for member in members):
        return "belongs to a gang of which a member is on its way to a node"
    return [member for member in members if member.state in CAN_LEAVE]


def _needed(
    gang: GangRecord, noun: Gang, record: PodRecord, gone: Mapping[str, PodRecord], composites: Composites
) -> str | None:
    if (noun.unit and len(gang.members) > 1) or composites.tied(gang):
        return "belongs to a gang that may only be disrupted as a whole"
    if needs_nobody(noun) and not is_unit(gang, composites):
        return None
    free, roles = spare_members(gang, composites)
    if free - len(gone) <= 0:
        return f"is one of the {noun.min_member} members that its gang needs"
    role = record.pod.role
    alike = sum(1 for other in gone.values() if other.pod.role == role)
    if role in roles and roles[role] - alike <= 0:
        return f"is one of the {dict(noun.roles)[role]} members of role {role} that its gang needs"
    subquorum = Subquorum(gang, noun)
    if not subquorum.spares(record, Counter(subquorum.part(other) for other in gone.values())):
        return "belongs to one of the subgroups that its gang needs"
    return None


def _over_budget(gang: GangRecord, noun: Gang, leaving: int) -> str | None:
    """Volcano's job disruption budget, with its arithmetic (plugins/tdm): percentages are of all members."""
    total, running = len(gang.members), gang.count(MemberState.RUNNING)
    if noun.min_available is not None:
        least = noun.min_available.of(total)
        if running - leaving < least:
            return f"belongs to a gang that wants {least} of its members running, and {running} are"
    if noun.max_unavailable is not None:
        most = noun.max_unavailable.of(total)
        finished = gang.count(MemberState.SUCCEEDED) + gang.count(MemberState.FAILED)
        missing = total - finished - running
        if missing + leaving > most:
            return f"belongs to a gang of which no more than {most} may be missing, and {missing} are"
    return None
