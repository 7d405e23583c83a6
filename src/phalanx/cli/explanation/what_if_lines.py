"""Answers to what-if questions as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from phalanx.cli.columns import columns
from phalanx.cli.listing.ages import relative
from phalanx.dialects.times import parse_time
from phalanx.model.text.duration import format_duration

if TYPE_CHECKING:
    from phalanx.reports.whatif.answer import AskedStart, EvictedGang, NodeRoom, Starts, WhatIfAnswer
    from phalanx.reports.whatif.free_room import FreeRoom

_NAMED = 8


def answer_lines(answer: WhatIfAnswer) -> Iterator[str]:
    """What was asked about first, then what it does to others."""
    now = parse_time(answer.moment)
    if answer.changes:
        yield f"With: {'; '.join(answer.changes)}"
    shown = _alike(answer.asked)
    for start, others in shown[:_NAMED]:
        yield from _asked_lines(start, others, answer.horizon_seconds, now)
    if len(shown) > _NAMED:
        yield f"... and {len(shown) - _NAMED} more"
    if answer.interrupted:
        yield f"Would be interrupted by the loss of nodes: {len(answer.interrupted)}"
        rows = [
            [each.name, str(each.pods), relative(each.again, now) or "unknown"]
            for each in answer.interrupted[:_NAMED]
        ]
        more = len(answer.interrupted) - _NAMED
        yield from _indented(columns(("GANG OR POD", "PODS", "RUNS AGAIN"), rows), more)
    if answer.evicted:
        yield f"Would be told to leave: {len(answer.evicted)}"
        rows = [
            [
                each.name,
                str(each.pods),
                str(each.priority),
                relative(each.when, now),
                f"{each.pod_hours:g}",
                _again(each, now),
            ]
            for each in answer.evicted[:_NAMED]
        ]
        header = ("GANG OR POD", "PODS", "PRIORITY", "AT", "POD-HOURS LOST", "RUNS AGAIN")
        yield from _indented(columns(header, rows), len(answer.evicted) - _NAMED)
    elif answer.asked:
        yield "Nobody would be told to leave"
    if answer.moved:
        yield f"Would start at another time: {len(answer.moved)}"
        rows = [
            [
                each.name,
                relative(each.without, now) or "unknown",
                relative(each.changed, now) or "unknown",
                _delay(each.delay_seconds),
            ]
            for each in answer.moved[:_NAMED]
        ]
        yield from _indented(
            columns(("GANG OR POD", "WITHOUT", "WITH", "LATER BY"), rows), len(answer.moved) - _NAMED
        )
    elif answer.asked or answer.changes:
        yield "Nobody else would start at another time"
    if answer.moved_promises:
        yield f"Promised starts that would move: {len(answer.moved_promises)}"
        promises = [
            [each.name, relative(each.promised, now), relative(each.moves_to, now) or "given up", each.cause or "-"]
            for each in answer.moved_promises[:_NAMED]
        ]
        more = len(answer.moved_promises) - _NAMED
        yield from _indented(columns(("GANG OR POD", "FROM", "TO", "CAUSE"), promises), more)
    if answer.changes or answer.moved:
        yield "Of all others that wait:"
        rows = [_starts_row("without", answer.without), _starts_row("with", answer.changed)]
        yield from _indented(columns(("", "START NOW", "LATER", "NOT WITHIN " + _horizon(answer)), rows), 0)
    yield from (f"Note: {note}" for note in answer.notes)
    if answer.missing:
        yield "This answer rests on what you may see. Not read:"
        yield from _indented(list(answer.missing[:_NAMED]), len(answer.missing) - _NAMED)


def _again(evicted: EvictedGang, now: float) -> str:
    if evicted.lost:
        return "never: nobody makes it again"
    return relative(evicted.again, now) or "unknown"


def _horizon(answer: WhatIfAnswer) -> str:
    return _span(answer.horizon_seconds).upper()


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return f"{days}d" if days and not rest else format_duration(seconds)


def _alike(asked: Sequence[AskedStart]) -> list[tuple[AskedStart, int]]:
    """Pods on their own that fare alike are told once, with the number of the others."""
    found: dict[tuple[object, ...], tuple[AskedStart, int]] = {}
    for each in asked:
        key = (each.state, each.start, each.expected) if each.pods == 1 else (each.name,)
        first, others = found.get(key, (each, -1))
        found[key] = (first, others + 1)
    return list(found.values())


def _asked_lines(asked: AskedStart, others: int, horizon: int, now: float) -> Iterator[str]:
    what = f"{asked.name} ({_pods(asked.pods)})" if asked.pods > 1 else asked.name
    if others:
        what += f" and {others} more that fare alike"
    wait = relative(asked.start, now)
    match asked.state:
        case "Now":
            yield f"{what} would start now"
        case "AfterEvictions":
            yield f"{what} would start {wait}, when those have left who would be told to"
        case "Later":
            yield f"{what} would start {wait}, if all run to their limits and nothing else comes"
        case _:
            yield f"{what} would not start within {_span(horizon)}"
    if asked.nodes:
        yield f"  On: {_rooms(asked.nodes)}"
    for key, counts in asked.domains.items():
        yield f"  By {key}: {', '.join(f'{value} {count}' for value, count in counts.items())}"
    if asked.expected:
        yield f"  Expected: {relative(asked.expected, now)}, if pods run for as long as their users say"
    if asked.promised:
        yield f"  Promised: at the latest {relative(asked.promised, now)} (action reserve)"
    verdict = asked.verdict
    if verdict is not None and asked.state != "AfterEvictions":
        yield f"  Now: {verdict.message}" + (f" ({verdict.reason})" if verdict.reason else "")
        yield from (f"    {count:>4}  {reason}" for reason, count in verdict.nodes.items())
        if verdict.change:
            yield f"  What would help: {verdict.change}"
    if asked.blockers and asked.state == "Later":
        yield "  It starts when these have ended:"
        rows = [[each.name, str(each.pods), relative(each.end, now)] for each in asked.blockers[:_NAMED]]
        more = len(asked.blockers) - _NAMED
        yield from (
            f"  {line}" for line in _indented(columns(("GANG OR POD", "PODS", "AT THE LATEST"), rows), more)
        )


def free_lines(room: FreeRoom) -> Iterator[str]:
    """What starts now, for each size of pod and length."""
    rows = [
        [each.pod, format_duration(each.seconds) if each.seconds else "any time", str(each.pods), str(each.nodes)]
        for each in room.rows
    ]
    yield f"Starts now in queue {room.queue}, without waiting for anybody and nobody told to leave:"
    yield from columns(("EACH POD", "FOR AT MOST", "PODS", "NODES"), rows)
    yield from (f"Note: {note}" for note in room.notes)
    if room.missing:
        yield "This answer rests on what you may see. Not read:"
        yield from _indented(list(room.missing[:_NAMED]), len(room.missing) - _NAMED)


def _starts_row(name: str, starts: Starts) -> list[str]:
    return [name, str(starts.now), str(starts.later), str(starts.never)]


def _delay(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return format_duration(seconds) if seconds >= 0 else f"-{format_duration(-seconds)}"


def _rooms(rooms: Sequence[NodeRoom]) -> str:
    named = ", ".join(f"{room.node} ({room.pods})" if room.pods > 1 else room.node for room in rooms[:_NAMED])
    return f"{named} and {len(rooms) - _NAMED} more nodes" if len(rooms) > _NAMED else named


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _indented(lines: list[str], more: int) -> Iterator[str]:
    yield from (f"  {line}" for line in lines)
    if more > 0:
        yield f"  and {more} more"
