"""`express`: whoever is important enough has his turn before all queues take theirs."""

from __future__ import annotations

from phalanx.plugin import Action, ActionView, Arguments, WaitingUnit


class Express(Action):
    """Places the gangs and pods whose priority is at least `express.least`."""

    name = "express"
    arguments = ("express.least",)

    def __init__(self, arguments: Arguments) -> None:
        self._least = arguments.integer("express.least", 1000)

    def execute(self, session: ActionView) -> None:
        session.place(unit for unit in session.units if self._is_urgent(session, unit))

    def _is_urgent(self, session: ActionView, unit: WaitingUnit) -> bool:
        return all(session.priority(member) >= self._least for member in unit.members)
