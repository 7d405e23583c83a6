"""Placing a tree of quorums: every child alone, as a whole or not at all, until enough of them hold."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.members import GangRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.assembly import Call, assemble, demand_of
from phalanx.scheduling.formation import Formation
from phalanx.scheduling.session import Session


class Muster:
    """One attempt. `calls` are the gangs that may take part, those whose quorums hold included. Afterwards `placed`
    of each call tells who and where, `lacks` why a gang could not be placed, `able` how many children of each
    formation could be."""

    def __init__(self, session: Session, calls: Mapping[GangRecord, Call], transaction: Transaction) -> None:
        self._session = session
        self._calls = calls
        self._transaction = transaction
        self.lacks: dict[GangRecord, object] = {}
        self.able: dict[Formation, int] = {}

    def run(self, formation: Formation) -> bool:
        """Whether the formation holds now; if not, nothing of it has been placed."""
        mark = self._transaction.mark()
        able = sum(self._take(child) for child in formation.children)
        self.able[formation] = able
        if able >= max(1, formation.least):
            return True
        self._transaction.back_to(mark)
        for gang in formation.gangs():
            if gang in self._calls:
                self._calls[gang].placed = []
        return False

    def _take(self, child: Formation | GangRecord) -> bool:
        if isinstance(child, Formation):
            return self.run(child)
        call = self._calls.get(child)
        if call is None:
            return False
        if call.need.satisfied or call.placed:
            return True
        mark = self._transaction.mark()
        facts = assemble(self._session, [call], demand_of([call]), self._transaction)
        if facts is None:
            return True
        self._transaction.back_to(mark)
        call.placed = []
        self.lacks[child] = facts
        return False


def core(formation: Formation, calls: Mapping[GangRecord, Call]) -> list[GangRecord]:
    """The gangs that have to be placed so that the formation holds: the first that may take part. Of one in which
    each child stands for itself, the first child. Empty if it holds, or if too few may take part."""
    holding, open_children = 0, list[list[GangRecord]]()
    for child in formation.children:
        if isinstance(child, Formation):
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


def could_hold(formation: Formation, calls: Mapping[GangRecord, Call], asked: bool = False) -> bool:
    """Whether enough of the children may take part; with `asked` only those count that hold already."""

    def holds(child: Formation | GangRecord) -> bool:
        if isinstance(child, Formation):
            return could_hold(child, calls, asked)
        return child in calls and (not asked or calls[child].need.satisfied)

    return sum(map(holds, formation.children)) >= max(1, formation.least)
