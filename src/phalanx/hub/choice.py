"""Which cluster a gang goes to: where it starts first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.dispatch import Answer

#: Starts that are less apart than this are the same: a forecast is not that exact (seconds).
SAME_START = 60


class Candidate(msgspec.Struct, frozen=True):
    """A cluster that may take the gang. `start` (seconds since the epoch) is when it says it would, None where it
    cannot say; `never` when it would not within its horizon. `message` is what it said. `cost` is the operator's,
    `dispatches` how many gangs are there."""

    name: str
    start: int | None = None
    never: bool = False
    message: str = ""
    cost: int = 0
    dispatches: int = 0

    def answer(self) -> Answer:
        return Answer(self.name, format_time(self.start) if self.start is not None else "", self.message)


def best(candidates: Iterable[Candidate], now: int) -> Candidate | None:
    """The earliest start; among equals the cheapest, then the one with the fewest gangs, then by name.

    Who cannot say is taken only where nobody says anything, and who would never start it is not taken at all: the
    gang waits at the hub, where it can still go anywhere.
    """
    able = [each for each in candidates if not each.never]
    if not able:
        return None
    told = [each for each in able if each.start is not None]
    if told:
        earliest = min(max(each.start or 0, now) for each in told)
        able = [each for each in told if max(each.start or 0, now) < earliest + SAME_START]
    return min(able, key=lambda each: (each.cost, each.dispatches, each.name))


def refusals(answers: Sequence[Candidate]) -> str:
    """Why nobody takes it, in one sentence."""
    if not answers:
        return "no member cluster can be used; see `phalanx clusters`"
    return "; ".join(f"{each.name}: {each.message or 'cannot take it'}" for each in answers)[:1000]
