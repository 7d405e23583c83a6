"""Assignment of gangs to member clusters by earliest start: a pure function of the clusters' forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.dispatch import ForecastAnswer

#: Difference in seconds below which two starts count as equal: forecasts are not more exact.
SAME_START = 60
#: Maximum number of gangs that wait in a cluster for a later start; all further gangs wait at the hub, in its
#: order.
MOST_WAITING = 20


class Candidate(msgspec.Struct, frozen=True):
    """Member cluster that is allowed for a gang, with its forecast.

    `start` (seconds since the epoch) is the forecast, None if unknown; `never` means no start within the horizon.
    `message` is the cluster's explanation. `cost` is set by the operator. `dispatches` is the number of gangs
    there. `bytes_to_move` is the size of the preferred data that the cluster lacks. `moving` is the seconds that
    the transfer of the gang's data takes; they matter only beyond the wait.
    """

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
        """Return the expected time at which the gang begins to work in the cluster: resources are free and data
        have been moved."""
        return max(self.start or 0, now + self.moving)


def best(candidates: Iterable[Candidate], now: int) -> Candidate | None:
    """Return the candidate cluster with the earliest start; None if no cluster would start the gang.

    Ties are resolved by the least data to move, the lowest cost, the fewest gangs, then the name. A cluster without
    a forecast is chosen only if no cluster has one. A cluster that would never start the gang is not chosen: at the
    hub the gang can still go to any cluster.
    """
    able = [candidate for candidate in candidates if not candidate.never]
    if not able:
        return None
    forecast = [candidate for candidate in able if candidate.start is not None]
    if forecast:
        earliest = min(candidate.begins(now) for candidate in forecast)
        able = [candidate for candidate in forecast if candidate.begins(now) < earliest + SAME_START]
    return min(
        able, key=lambda candidate: (candidate.bytes_to_move, candidate.cost, candidate.dispatches, candidate.name)
    )


def refusals(answers: Sequence[Candidate]) -> str:
    """Return the reasons why no member cluster accepts the gang, as one sentence."""
    if not answers:
        return "no member cluster is active; see `phalanx clusters`"
    return "; ".join(f"{answer.name}: {answer.message or 'cannot run it'}" for answer in answers)[:1000]


class Wish(msgspec.Struct, frozen=True):
    """Gang in the hub's order that needs a member cluster.

    Gangs of one `kind` are alike for every cluster, so one can use the forecast of another. `candidates` are the
    allowed clusters with the facts that are known without a question. The answers of the clusters in `asked`
    replace them.
    """

    uid: str
    kind: str
    candidates: tuple[Candidate, ...]
    asked: frozenset[str] = frozenset()


class Decision(msgspec.Struct, frozen=True):
    """Decision to which member cluster one gang is sent.

    `cluster` is "" for a gang that waits at the hub. `again` means that the gang is asked about again: its forecast
    assumed that earlier gangs go to clusters that they were not sent to. `start` is the forecast.
    """

    cluster: str = ""
    start: int | None = None
    answers: tuple[Candidate, ...] = ()
    again: bool = False


class Standing(msgspec.Struct):
    """Numbers of gangs in a member cluster, and of gangs that wait there; at most `most` gangs wait."""

    dispatches: int = 0
    waiting: int = 0
    most: int = MOST_WAITING


def decide(
    wishes: Sequence[Wish],
    answers_by_cluster: Mapping[str, Mapping[str, Candidate]],
    standings: Mapping[str, Standing],
    now: int,
) -> dict[str, Decision]:
    """Return the decision for each gang by uid, in the given order; `standings` are updated.

    `answers_by_cluster` has the answers by cluster and gang. A cluster has planned all gangs together. So the n-th
    start that it forecast for gangs of one kind is valid for the n-th gang of that kind that is sent there. Gangs
    with an immediate start are sent first. If any was sent, the rest is asked about again, as its facts changed.
    """
    slots = _slots(wishes, answers_by_cluster)
    decisions: dict[str, Decision] = {}
    # Answers of gangs that are not sent at once; they are valid until the first gang is sent.
    unchanged: dict[str, tuple[Candidate, ...]] = {}
    for wish in wishes:
        answers = unchanged[wish.uid] = _answers(wish, slots, answers_by_cluster, standings)
        chosen = best(answers, now)
        if chosen is not None and chosen.start is not None and chosen.begins(now) < now + SAME_START:
            decisions[wish.uid] = _sent(wish, chosen, answers, slots, standings)
    sent_any = bool(decisions)
    times: dict[int | None, str] = {None: "at an unknown time"}
    for wish in wishes:
        if wish.uid in decisions:
            continue
        if sent_any:
            decisions[wish.uid] = Decision(again=True)
            continue
        answers = unchanged.get(wish.uid) or _answers(wish, slots, answers_by_cluster, standings)
        open_to = [answer for answer in answers if _has_room(standings.get(answer.name))]
        chosen = best(open_to, now)
        if chosen is not None:
            decisions[wish.uid] = _sent(wish, chosen, answers, slots, standings)
            standings[chosen.name].waiting += 1
            unchanged.clear()
        else:
            decisions[wish.uid] = Decision(answers=tuple(_full(answer, standings, times) for answer in answers))
    return decisions


def _slots(
    wishes: Sequence[Wish], answers_by_cluster: Mapping[str, Mapping[str, Candidate]]
) -> dict[tuple[str, str], list[Candidate]]:
    """Return the forecast starts by cluster and kind of gang, the latest first: they are consumed from the end."""
    slots: dict[tuple[str, str], list[Candidate]] = {}
    for wish in wishes:
        for name in wish.asked:
            answer = answers_by_cluster.get(name, {}).get(wish.uid)
            if answer is not None and not answer.never and answer.start is not None:
                slots.setdefault((name, wish.kind), []).append(answer)
    for starts in slots.values():
        starts.sort(key=lambda answer: -(answer.start or 0))
    return slots


def _answers(
    wish: Wish,
    slots: Mapping[tuple[str, str], list[Candidate]],
    answers_by_cluster: Mapping[str, Mapping[str, Candidate]],
    standings: Mapping[str, Standing],
) -> tuple[Candidate, ...]:
    answers: list[Candidate] = []
    for candidate in wish.candidates:
        if candidate.name in wish.asked:
            starts = slots.get((candidate.name, wish.kind))
            own = answers_by_cluster.get(candidate.name, {}).get(wish.uid)
            if starts:
                answer = starts[-1]
            elif own is not None and (own.never or own.start is None):
                answer = own
            else:
                answer = Candidate(
                    candidate.name, never=True, message="earlier gangs have used the starts that it forecast"
                )
            standing = standings.get(candidate.name)
            candidate = Candidate(
                candidate.name,
                answer.start,
                answer.never,
                f"{answer.message}; {candidate.message}"
                if answer.message and candidate.message
                else answer.message or candidate.message,
                candidate.cost,
                standing.dispatches if standing is not None else 0,
                candidate.moving,
                candidate.bytes_to_move,
            )
        answers.append(candidate)
    return tuple(answers)


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


def _full(answer: Candidate, standings: Mapping[str, Standing], times: dict[int | None, str]) -> Candidate:
    """Return the answer with the reason why no gang is sent there now. `times` caches texts of forecast starts."""
    standing = standings.get(answer.name)
    if answer.never or standing is None or _has_room(standing):
        return answer
    if (when := times.get(answer.start)) is None:
        when = times[answer.start] = answer.answer().start or times[None]
    text = f"would start it {when}, and {standing.waiting} gangs already wait there"
    return msgspec.structs.replace(answer, message=text)
