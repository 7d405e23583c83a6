"""Which cluster each gang goes to: where it starts first. Pure: what clusters have answered goes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.dispatch import ForecastAnswer

#: Starts that are less apart than this are the same: a forecast is not that exact (seconds).
SAME_START = 60
#: How many gangs may wait in a cluster for a start that is to come; others wait at the hub, in its order.
MOST_WAITING = 20


class Candidate(msgspec.Struct, frozen=True):
    """A cluster that may take the gang. `start` (seconds since the epoch) is when it says it would, None where it
    cannot say; `never` when it would not within its horizon. `message` is what it said. `cost` is the operator's,
    `dispatches` how many gangs are there, `bytes_to_move` how much of what the gang would rather have is not there,
    `moving` the seconds that the gang's data would take to get there: they are lost unless they pass while it
    waits."""

    name: str
    start: int | None = None
    never: bool = False
    message: str = ""
    cost: int = 0
    dispatches: int = 0
    moving: int = 0
    bytes_to_move: int = 0

    def answer(self) -> ForecastAnswer:
        return ForecastAnswer(self.name, format_time(self.start) if self.start is not None else "", self.message)

    def begins(self, now: int) -> int:
        """When its work begins, as far as anybody knows: a room that is free and data that are there."""
        return max(self.start or 0, now + self.moving)


def best(candidates: Iterable[Candidate], now: int) -> Candidate | None:
    """The earliest start; among equals where the fewest data have to be moved, then the cheapest, then the one with
    the fewest gangs, then by name.

    Who cannot say is taken only where nobody says anything, and who would never start it is not taken at all: the
    gang waits at the hub, where it can still go anywhere.
    """
    able = [each for each in candidates if not each.never]
    if not able:
        return None
    told = [each for each in able if each.start is not None]
    if told:
        earliest = min(each.begins(now) for each in told)
        able = [each for each in told if each.begins(now) < earliest + SAME_START]
    return min(able, key=lambda each: (each.bytes_to_move, each.cost, each.dispatches, each.name))


def refusals(answers: Sequence[Candidate]) -> str:
    """Why nobody takes it, in one sentence."""
    if not answers:
        return "no member cluster can be used; see `phalanx clusters`"
    return "; ".join(f"{each.name}: {each.message or 'cannot take it'}" for each in answers)[:1000]


class Wish(msgspec.Struct, frozen=True):
    """A gang in the hub's order. Gangs of one `kind` are alike for every cluster: what one of them was told,
    another may take. `candidates` say of each cluster that it may go to what is known without asking; those of
    `asked` are replaced by what the cluster says."""

    uid: str
    kind: str
    candidates: tuple[Candidate, ...]
    asked: frozenset[str] = frozenset()


class Decision(msgspec.Struct, frozen=True):
    """`cluster` is "" for a gang that waits at the hub. `again` says that it was not its turn: what it was told
    supposes that others went where they did not go, so it is asked about anew. `start` is what was promised."""

    cluster: str = ""
    start: int | None = None
    answers: tuple[Candidate, ...] = ()
    again: bool = False


class Standing(msgspec.Struct):
    """How many gangs are in a cluster, and how many of them wait for a start there; `most` may."""

    dispatches: int = 0
    waiting: int = 0
    most: int = MOST_WAITING


def decide(
    wishes: Sequence[Wish],
    told: Mapping[str, Mapping[str, Candidate]],
    standings: Mapping[str, Standing],
    now: int,
) -> dict[str, Decision]:
    """For each gang by uid, first come first served. `told` are the clusters' answers by gang; `standings` are
    brought up to date.

    A cluster has planned all gangs together, so that the n-th start that it told gangs of one kind is good for the
    n-th of them that goes there, whichever that is. Who would start at once goes; while anybody does, whoever would
    start later, or not, asks again: then with the truth about those before it.
    """
    slots = _slots(wishes, told)
    decisions: dict[str, Decision] = {}
    for wish in wishes:
        answers = _answers(wish, slots, told, standings)
        chosen = best(answers, now)
        if chosen is not None and chosen.start is not None and chosen.begins(now) < now + SAME_START:
            decisions[wish.uid] = _sent(wish, chosen, answers, slots, standings)
    went = bool(decisions)
    for wish in wishes:
        if wish.uid in decisions:
            continue
        if went:
            decisions[wish.uid] = Decision(again=True)
            continue
        answers = _answers(wish, slots, told, standings)
        open_to = [each for each in answers if _has_room(standings.get(each.name))]
        chosen = best(open_to, now)
        if chosen is not None:
            decisions[wish.uid] = _sent(wish, chosen, answers, slots, standings)
            standings[chosen.name].waiting += 1
        else:
            decisions[wish.uid] = Decision(answers=tuple(_full(each, standings) for each in answers))
    return decisions


def _slots(
    wishes: Sequence[Wish], told: Mapping[str, Mapping[str, Candidate]]
) -> dict[tuple[str, str], list[Candidate]]:
    """By cluster and kind, the latest start first: they are taken from the end."""
    slots: dict[tuple[str, str], list[Candidate]] = {}
    for wish in wishes:
        for name in wish.asked:
            answer = told.get(name, {}).get(wish.uid)
            if answer is not None and not answer.never and answer.start is not None:
                slots.setdefault((name, wish.kind), []).append(answer)
    for starts in slots.values():
        starts.sort(key=lambda each: -(each.start or 0))
    return slots


def _answers(
    wish: Wish,
    slots: Mapping[tuple[str, str], list[Candidate]],
    told: Mapping[str, Mapping[str, Candidate]],
    standings: Mapping[str, Standing],
) -> tuple[Candidate, ...]:
    found: list[Candidate] = []
    for each in wish.candidates:
        if each.name in wish.asked:
            starts = slots.get((each.name, wish.kind))
            own = told.get(each.name, {}).get(wish.uid)
            if starts:
                answer = starts[-1]
            elif own is not None and (own.never or own.start is None):
                answer = own
            else:
                answer = Candidate(each.name, never=True, message="others took the starts that it named")
            standing = standings.get(each.name) or Standing()
            message = "; ".join(filter(None, (answer.message, each.message)))
            each = msgspec.structs.replace(
                each, start=answer.start, never=answer.never, message=message, dispatches=standing.dispatches
            )
        found.append(each)
    return tuple(found)


def _sent(
    wish: Wish,
    chosen: Candidate,
    answers: tuple[Candidate, ...],
    slots: Mapping[tuple[str, str], list[Candidate]],
    standings: Mapping[str, Standing],
) -> Decision:
    if starts := slots.get((chosen.name, wish.kind)):
        starts.pop()
    if chosen.name in standings:
        standings[chosen.name].dispatches += 1
    return Decision(chosen.name, chosen.start, answers)


def _has_room(standing: Standing | None) -> bool:
    return standing is not None and standing.waiting < standing.most


def _full(answer: Candidate, standings: Mapping[str, Standing]) -> Candidate:
    standing = standings.get(answer.name)
    if answer.never or standing is None or _has_room(standing):
        return answer
    said = f"would start it {answer.answer().start or 'at a time that it cannot say'}"
    return msgspec.structs.replace(answer, message=f"{said}, and {standing.waiting} gangs wait there already")
