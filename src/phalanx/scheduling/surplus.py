"""Members above the minimum: best effort, in fair turns, after everyone's quorum."""

from __future__ import annotations

import heapq

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.demand import Alone, Surplus
from phalanx.scheduling.explanation import unreadable
from phalanx.scheduling.refusals import tell
from phalanx.scheduling.session import Session
from phalanx.scheduling.work import Rank, Refusal, Unit


class Turn:
    """One gang's surplus members in order; `refused` are the classes that have no room."""

    __slots__ = ("gang", "members", "refused")

    def __init__(self, session: Session, gang: GangRecord) -> None:
        self.gang = gang
        self.members: list[PodRecord] = []
        self.refused: dict[ClassRecord, None] = {}
        for member in session.in_order(gang):
            if member.pod.problem:
                session.judge_pod(member, unreadable(member))
            else:
                self.members.append(member)

    def run_length(self) -> int:
        """How many members at the head are of one class."""
        cls = self.members[0].cls
        return next(
            (place for place, member in enumerate(self.members) if member.cls is not cls), len(self.members)
        )


def place_surplus(session: Session, units: list[Unit]) -> None:
    """Gives one member at a time to the gang that has the fewest above its minimum, so that none takes it all.

    The turn depends on what the gangs have, not on how often they were asked: a cycle that is cut short goes on
    where it was.
    """
    turns = {unit: [Turn(session, gang) for gang in unit.own if gang.pending] for unit in units}
    heap = [
        (_extra(turn.gang), _rank(session, turn.gang), turn, unit)
        for unit, of_unit in turns.items()
        for turn in of_unit
        if turn.members
    ]
    heapq.heapify(heap)
    for unit, of_unit in turns.items():
        _settle(session, unit, of_unit)
    while heap:
        if session.out_of_time():
            session.plan.complete = False
            return
        extra, rank, turn, unit = heapq.heappop(heap)
        placed = _take_turn(session, turn, alone=not heap)
        if turn.members:
            heapq.heappush(heap, (extra + placed, rank, turn, unit))
        else:
            _settle(session, unit, turns[unit])


def _take_turn(session: Session, turn: Turn, alone: bool) -> int:
    """Places the gang's next member, or a run of equal ones if nobody else is waiting; how many."""
    cls = turn.members[0].cls
    rows: list[int] = []
    if session.known(Alone(cls)) is None:
        rows = session.placer.place(cls, turn.run_length() if alone else 1)
    if not rows:
        found = session.shortage(cls)
        session.refuse(Alone(cls), found.facts, found.version)
        turn.refused[cls] = None
        turn.members = [member for member in turn.members if member.cls is not cls]
        return 0
    transaction = session.state.transaction()
    transaction.place(cls, turn.members[: len(rows)], rows)
    for record, row in transaction.commit():
        session.bind(record, row, turn.gang.key, None)
    turn.members = turn.members[len(rows) :]
    return len(rows)


def _settle(session: Session, unit: Unit, turns: list[Turn]) -> None:
    """When nobody of a unit is left to place: tells those without room why, and notes what the unit waits for."""
    if any(turn.members for turn in turns):
        return
    session.saw(unit)
    refused = {cls for turn in turns for cls in turn.refused}
    if refused:
        demand = Surplus(tuple(sorted(refused, key=lambda cls: cls.number)))
        refusal = surplus_refusal(session, demand)
        session.wait(unit, demand, refusal)
        tell(session, unit, refusal.facts)


def surplus_refusal(session: Session, demand: Surplus, afresh: bool = False) -> Refusal:
    """Why none of the classes has room."""
    found = [session.shortage(cls, afresh) for cls in demand.classes]
    return session.refuse(demand, tuple(each.facts for each in found), min(each.version for each in found))


def _extra(gang: GangRecord) -> int:
    assert gang.noun is not None
    on_nodes = (MemberState.PLACED, MemberState.BOUND, MemberState.RUNNING)
    return sum(gang.count(state) for state in on_nodes) - gang.noun.min_member


def _rank(session: Session, gang: GangRecord) -> Rank:
    """As units are ordered, but of one gang and now that its quorum holds."""
    assert gang.noun is not None
    return (*session.rank(gang), gang.noun.created, gang.key)
