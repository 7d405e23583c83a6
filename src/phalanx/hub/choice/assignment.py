"""Assignment of gangs to member clusters by earliest start: a pure function of the clusters' forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

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
    forecasts = _Forecasts(wishes, answers_by_cluster, standings)
    decisions: dict[str, Decision] = {}
    for wish in wishes:
        if not forecasts.starts_at_once(wish, now):
            continue  # the common case, in which the answers are not needed yet
        answers = forecasts.answers(wish)
        chosen = best(answers, now)
        if chosen is not None and chosen.start is not None and chosen.begins(now) < now + SAME_START:
            decisions[wish.uid] = forecasts.send(wish, chosen, answers)
    if decisions:
        return {wish.uid: decisions.get(wish.uid) or Decision(again=True) for wish in wishes}
    for wish in wishes:
        answers = forecasts.answers(wish)
        open_to = [answer for answer in answers if answer.name in forecasts.open]
        chosen = best(open_to, now) if open_to else None
        if chosen is not None:
            decisions[wish.uid] = forecasts.send(wish, chosen, answers)
            forecasts.note_waiting(chosen.name)
        else:
            decisions[wish.uid] = Decision(answers=tuple([forecasts.with_reason(answer) for answer in answers]))
    return decisions


class _Forecasts:
    """Forecasts of the clusters for the gangs of one decision, and the gangs that were sent to them since.

    `open` are the clusters where a further gang can wait.
    """

    def __init__(
        self,
        wishes: Sequence[Wish],
        answers_by_cluster: Mapping[str, Mapping[str, Candidate]],
        standings: Mapping[str, Standing],
    ) -> None:
        self.open = {name for name, standing in standings.items() if standing.waiting < standing.most}
        self._answers = answers_by_cluster
        self._standings = standings
        # Forecast starts by cluster and kind of gang, the latest first: they are consumed from the end.
        self._starts: dict[str, dict[str, list[Candidate]]] = {name: {} for name in answers_by_cluster}
        # Texts of forecast starts.
        self._times: dict[int | None, str] = {None: "at an unknown time"}
        for wish in wishes:
            for name in wish.asked:
                answer = answers_by_cluster.get(name, _NO_ANSWERS).get(wish.uid)
                if answer is not None and not answer.never and answer.start is not None:
                    self._starts[name].setdefault(wish.kind, []).append(answer)
        for kinds in self._starts.values():
            for starts in kinds.values():
                if len(starts) > 1:
                    starts.sort(key=lambda answer: -(answer.start or 0))

    def starts_at_once(self, wish: Wish, now: int) -> bool:
        """Return whether any cluster would start the gang within `SAME_START` seconds."""
        ready = now + SAME_START
        for candidate in wish.candidates:
            answer = self._forecast(wish, candidate.name) if candidate.name in wish.asked else candidate
            if answer is None or answer.never or answer.start is None:
                continue
            if answer.start < ready and now + candidate.moving < ready:
                return True
        return False

    def answers(self, wish: Wish) -> tuple[Candidate, ...]:
        """Return the candidates of a gang with the forecasts of the clusters that were asked about it."""
        answers: list[Candidate] = []
        for candidate in wish.candidates:
            name, message = candidate.name, candidate.message
            if name in wish.asked:
                answer = self._forecast(wish, name)
                standing = self._standings.get(name)
                if answer is None:
                    answer = _USED
                if answer.message:
                    message = f"{answer.message}; {message}" if message else answer.message
                candidate = Candidate(
                    name,
                    answer.start,
                    answer.never,
                    message,
                    candidate.cost,
                    standing.dispatches if standing is not None else 0,
                    candidate.moving,
                    candidate.bytes_to_move,
                )
            answers.append(candidate)
        return tuple(answers)

    def _forecast(self, wish: Wish, name: str) -> Candidate | None:
        """Return the cluster's next forecast for the gang's kind; None if earlier gangs have used them all."""
        kinds = self._starts.get(name)
        if kinds is None:
            return None
        starts = kinds.get(wish.kind)
        if starts:
            return starts[-1]
        own = self._answers[name].get(wish.uid)
        return own if own is not None and (own.never or own.start is None) else None

    def send(self, wish: Wish, chosen: Candidate, answers: tuple[Candidate, ...]) -> Decision:
        """Use the chosen forecast."""
        if starts := self._starts.get(chosen.name, {}).get(wish.kind):
            starts.pop()
        if chosen.name in self._standings:
            self._standings[chosen.name].dispatches += 1
        return Decision(chosen.name, chosen.start, answers)

    def note_waiting(self, name: str) -> None:
        """Count a gang that was sent to a cluster for a later start."""
        standing = self._standings[name]
        standing.waiting += 1
        if standing.waiting >= standing.most:
            self.open.discard(name)

    def with_reason(self, answer: Candidate) -> Candidate:
        """Return the answer with the reason why no gang is sent there now."""
        standing = self._standings.get(answer.name)
        if answer.never or standing is None or answer.name in self.open:
            return answer
        start = answer.start
        when = self._times.get(start)
        if when is None:
            when = self._times[start] = format_time(start) if start is not None else self._times[None]
        return Candidate(
            answer.name,
            start,
            answer.never,
            f"would start it {when}, and {standing.waiting} gangs already wait there",
            answer.cost,
            answer.dispatches,
            answer.moving,
            answer.bytes_to_move,
        )


_NO_ANSWERS: Mapping[str, Candidate] = MappingProxyType({})
_USED = Candidate("", never=True, message="earlier gangs have used the starts that it forecast")
