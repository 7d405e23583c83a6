"""Placing a tree of quorums: every child alone, as a whole or not at all, until enough of them hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage, Spot
from phalanx.scheduling.gang_placement.domain_trials import together, try_domains
from phalanx.scheduling.gang_placement.group_tree import GroupTree
from phalanx.scheduling.gang_placement.group_tree_verdicts import Waits
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement, place_gangs, signature_of
from phalanx.scheduling.placement.topology_domains import Area, area_of
from phalanx.scheduling.quota.limits import OverQuota
from phalanx.scheduling.session.session import Session


class GroupTreePlacer:
    """One attempt. `calls` are the gangs that may take part, those whose quorums hold included; `lacks` says what
    keeps the others from it. Afterwards `placed` of each call tells who and where, `lacks` why every gang that is
    still open waits. A formation with a topology is placed in the smallest domain that takes it."""

    def __init__(
        self,
        session: Session,
        calls: Mapping[GangRecord, GangPlacement],
        lacks: Mapping[GangRecord, object],
        transaction: Transaction,
    ) -> None:
        self._session = session
        self._calls = calls
        self._transaction = transaction
        self.lacks = dict(lacks)
        self._failed: dict[GroupTree, list[GroupTree | GangRecord]] = {}

    def run(self, formation: GroupTree, spot: Spot | None = None) -> bool:
        """Whether the formation holds now; if not, nothing of it has been placed."""
        mark = self._transaction.mark()
        placed = {gang: list(self._calls[gang].placed) for gang in formation.gangs() if gang in self._calls}
        facts = self._children(formation, spot) if formation.topology is None else self._near(formation, spot)
        if facts is None:
            return True
        self._transaction.back_to(mark)
        for gang, before in placed.items():
            self._calls[gang].placed = before
        failed = self._failed.get(formation, list(formation.children))
        note_waiting(formation, failed, self._calls, self.lacks)
        return False

    def _near(self, formation: GroupTree, outer: Spot | None) -> object:
        """Looks for a domain that takes all children, else for one that takes as many as are needed."""
        session, calls = (
            self._session,
            {gang: self._calls[gang] for gang in formation.gangs() if gang in self._calls},
        )
        members = [member for gang in formation.gangs() for member in gang.members.values()]
        area = area_of(formation.topology, members)
        assert area is not None
        rows = {row for call in calls.values() for _, row in call.placed}
        area = Area(area.rule, tuple(sorted({*area.pins, *rows})))
        asking = [call.demand() for call in calls.values() if not (call.need.satisfied or call.placed)]
        holding = len(calls) - len(asking)
        if not asking:
            return self._children(formation, outer)
        before = {gang: list(call.placed) for gang, call in calls.items()}

        def undone() -> None:
            for gang, call in calls.items():
                call.placed = list(before[gang])

        mark, facts = self._transaction.mark(), object()
        for count in dict.fromkeys((len(asking), max(1, formation.least - holding))):
            want = together(asking, count)
            facts = try_domains(
                session,
                self._transaction,
                area,
                want,
                lambda _, spot: self._children(formation, spot or outer),
                undone,
            )
            if facts is None:
                return None
            self._transaction.back_to(mark)
            undone()
        if isinstance(facts, Shortage | Gap | OverQuota):
            # What no domain has, before any gang was tried in one.
            asks = (gang for gang, call in calls.items() if not call.need.satisfied and _asks(gang, facts))
            first = next(asks, None)
            if first is not None and isinstance(self.lacks.get(first), Waits | None):
                self.lacks[first] = facts
        return facts

    def _children(self, formation: GroupTree, spot: Spot | None) -> object:
        """Places every child that can be placed; why the first one cannot, if they are too few."""
        failed = self._failed[formation] = [each for each in formation.children if not self._take(each, spot)]
        able = len(formation.children) - len(failed)
        if able >= max(1, formation.least):
            return None
        lacks = (self.lacks[gang] for gang in formation.gangs() if gang in self.lacks)
        facts = next(lacks, None)
        return facts if facts is not None else able

    def _take(self, child: GroupTree | GangRecord, spot: Spot | None) -> bool:
        if isinstance(child, GroupTree):
            return self.run(child, spot)
        call = self._calls.get(child)
        if call is None:
            return False
        if call.need.satisfied or call.placed:
            return True
        mark = self._transaction.mark()
        facts = place_gangs(self._session, [call], signature_of([call]), self._transaction, spot)
        if facts is None:
            self.lacks.pop(child, None)
            return True
        self._transaction.back_to(mark)
        call.placed = []
        self.lacks[child] = facts
        return False


def _asks(gang: GangRecord, facts: object) -> bool:
    """Whether a refusal may speak of the gang."""
    waiting = (*gang.pending.values(), *gang.starting_placeholders)
    return not isinstance(facts, Shortage) or any(member.pod_class is facts.cls for member in waiting)


def note_waiting(
    formation: GroupTree,
    failed: Sequence[GroupTree | GangRecord],
    calls: Mapping[GangRecord, GangPlacement],
    lacks: dict[GangRecord, object],
) -> None:
    """Notes that the open gangs of a formation that does not hold wait for it, unless they lack something. Of the
    children that `failed` the first gang that lacks something is in their way."""
    below = (gang for child in failed for gang in (child.gangs() if isinstance(child, GroupTree) else (child,)))
    culprit = next((gang.key for gang in below if not isinstance(lacks.get(gang), Waits | None)), None)
    waits = Waits(formation.key, max(1, formation.least), len(formation.children) - len(failed), culprit)
    for gang in formation.gangs():
        if gang in calls and not calls[gang].need.satisfied:
            lacks.setdefault(gang, waits)


def hold_up(
    formation: GroupTree, calls: Mapping[GangRecord, GangPlacement], lacks: dict[GangRecord, object]
) -> bool:
    """Whether too few of the children may take part; then everybody below waits for them."""

    def fails(child: GroupTree | GangRecord) -> bool:
        return hold_up(child, calls, lacks) if isinstance(child, GroupTree) else child not in calls

    failed = [child for child in formation.children if fails(child)]
    if len(formation.children) - len(failed) >= max(1, formation.least):
        return False
    note_waiting(formation, failed, calls, lacks)
    return True


def core(formation: GroupTree, calls: Mapping[GangRecord, GangPlacement]) -> list[GangRecord]:
    """The gangs that have to be placed so that the formation holds: the first that may take part. Of one in which
    each child stands for itself, the first child. Empty if it holds, or if too few may take part."""
    holding, open_children = 0, list[list[GangRecord]]()
    for child in formation.children:
        if isinstance(child, GroupTree):
            if could_hold(child, calls, asked=True):
                holding += 1
            elif could_hold(child, calls):
                open_children.append(core(child, calls))
        elif child in calls:
            if calls[child].need.satisfied:
                holding += 1
            else:
                open_children.append([child])
    wanted = formation.least - holding if formation.least else 1
    if wanted <= 0 or len(open_children) < wanted:
        return []
    return [gang for gangs in open_children[:wanted] for gang in gangs]


def could_hold(formation: GroupTree, calls: Mapping[GangRecord, GangPlacement], asked: bool = False) -> bool:
    """Whether enough of the children may take part; with `asked` only those count that hold already."""

    def holds(child: GroupTree | GangRecord) -> bool:
        if isinstance(child, GroupTree):
            return could_hold(child, calls, asked)
        return child in calls and (not asked or calls[child].need.satisfied)

    return sum(map(holds, formation.children)) >= max(1, formation.least)
