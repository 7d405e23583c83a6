"""Output lines of `phalanx what-if`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from phalanx.cli.columns import columns
from phalanx.cli.listing.ages import OVERDUE, promised_moment, relative
from phalanx.dialects.times import parse_time
from phalanx.model.text.duration import format_duration
from phalanx.model.text.moments import shown_span

if TYPE_CHECKING:
    from phalanx.reports.whatif.answer import AskedStart, EvictedGang, FreeRoom, NodeRoom, Starts, WhatIfAnswer

_MAX_ENTRIES = 8


def answer_lines(answer: WhatIfAnswer) -> Iterator[str]:
    """Yield the output lines of a prediction: first the predicted starts, then the effects on other gangs."""
    now = parse_time(answer.moment)
    if answer.changes:
        yield f"Changes: {'; '.join(answer.changes)}"
    shown = _grouped(answer.asked)
    for start, others in shown[:_MAX_ENTRIES]:
        yield from _asked_lines(start, others, answer.horizon_seconds, now)
    if len(shown) > _MAX_ENTRIES:
        yield f"... and {len(shown) - _MAX_ENTRIES} more"
    if answer.interrupted:
        yield f"Interrupted by the loss of nodes: {len(answer.interrupted)}"
        rows = [
            [entry.name, str(entry.pods), relative(entry.again, now) or "unknown"]
            for entry in answer.interrupted[:_MAX_ENTRIES]
        ]
        more = len(answer.interrupted) - _MAX_ENTRIES
        yield from _indented(columns(("GANG OR POD", "PODS", "RUNS AGAIN"), rows), more)
    if answer.evicted:
        yield f"Would evict: {len(answer.evicted)}"
        rows = [
            [
                entry.name,
                str(entry.pods),
                str(entry.priority),
                relative(entry.when, now),
                f"{entry.pod_hours:g}",
                _again(entry, now),
            ]
            for entry in answer.evicted[:_MAX_ENTRIES]
        ]
        header = ("GANG OR POD", "PODS", "PRIORITY", "AT", "POD-HOURS LOST", "RUNS AGAIN")
        yield from _indented(columns(header, rows), len(answer.evicted) - _MAX_ENTRIES)
    elif answer.asked:
        yield "Evictions: none"
    if answer.moved:
        yield f"Effect of the change on other starts: {len(answer.moved)}"
        rows = [
            [
                entry.name,
                relative(entry.without, now) or "unknown",
                relative(entry.changed, now) or "unknown",
                _effect(entry.delay_seconds),
            ]
            for entry in answer.moved[:_MAX_ENTRIES]
        ]
        yield from _indented(
            columns(("GANG OR POD", "WITHOUT", "WITH", "EFFECT"), rows), len(answer.moved) - _MAX_ENTRIES
        )
    elif answer.asked or answer.changes:
        yield "Effect on other starts: none"
    if answer.moved_promises:
        yield f"Promised starts that would move: {len(answer.moved_promises)}"
        promises = [
            [
                entry.name,
                relative(entry.promised, now),
                relative(entry.moves_to, now) or "dropped",
                entry.cause or "-",
            ]
            for entry in answer.moved_promises[:_MAX_ENTRIES]
        ]
        more = len(answer.moved_promises) - _MAX_ENTRIES
        yield from _indented(columns(("GANG OR POD", "FROM", "TO", "CAUSE"), promises), more)
    if answer.changes or answer.moved:
        yield "Other waiting gangs and pods:"
        rows = [_starts_row("without", answer.without), _starts_row("with", answer.changed)]
        yield from _indented(columns(("", "START NOW", "LATER", "NOT WITHIN " + _horizon(answer)), rows), 0)
    yield from (f"Note: {note}" for note in answer.notes)
    if answer.missing:
        yield "Based on readable objects only. Cannot read:"
        yield from _indented(list(answer.missing[:_MAX_ENTRIES]), len(answer.missing) - _MAX_ENTRIES)


def _again(evicted: EvictedGang, now: float) -> str:
    if evicted.lost:
        return "never: no controller recreates it"
    return relative(evicted.again, now) or "unknown"


def _horizon(answer: WhatIfAnswer) -> str:
    return _span(answer.horizon_seconds).upper()


def _span(seconds: int) -> str:
    days, seconds_left = divmod(seconds, 86400)
    return f"{days}d" if days and not seconds_left else format_duration(seconds)


def _grouped(asked: Sequence[AskedStart]) -> list[tuple[AskedStart, int]]:
    """Return one predicted start per distinct result, with the number of further single pods that have the same
    result."""
    groups: dict[tuple[object, ...], tuple[AskedStart, int]] = {}
    for start in asked:
        key = (start.state, start.start, start.expected) if start.pods == 1 else (start.name,)
        first, others = groups.get(key, (start, -1))
        groups[key] = (first, others + 1)
    return list(groups.values())


def _asked_lines(asked: AskedStart, others: int, horizon: int, now: float) -> Iterator[str]:
    subject = f"{asked.name} ({_pods(asked.pods)})" if asked.pods > 1 else asked.name
    if others:
        subject += f" and {others} more with the same result"
    wait = relative(asked.start, now)
    match asked.state:
        case "Now":
            yield f"{subject} would start now"
        case "AfterEvictions":
            yield f"{subject} would start {wait}, after evictions"
        case "Later":
            yield f"{subject} would start {wait}, if all pods run to their limits and no other pods arrive"
        case _:
            yield f"{subject} would not start within {_span(horizon)}"
    if asked.nodes:
        yield f"  On: {_rooms(asked.nodes)}"
    for key, counts in asked.domains.items():
        yield f"  By {key}: {', '.join(f'{value} {count}' for value, count in counts.items())}"
    if asked.expected:
        yield f"  Expected: {relative(asked.expected, now)}, if pods end at their users' estimates"
    if asked.promised:
        promised = promised_moment(asked.promised, now)
        yield f"  Promised: {'' if promised.startswith(OVERDUE) else 'no later than '}{promised} (action reserve)"
    verdict = asked.verdict
    if verdict is not None and asked.state != "AfterEvictions":
        yield f"  Now: {verdict.message}" + (f" ({verdict.reason})" if verdict.reason else "")
        yield from (f"    {count:>4}  {reason}" for reason, count in verdict.nodes.items())
        if verdict.change:
            yield f"  Fix: {verdict.change}"
    if asked.blockers and asked.state == "Later":
        yield "  Starts after the end of:"
        rows = [
            [blocker.name, str(blocker.pods), relative(blocker.end, now)]
            for blocker in asked.blockers[:_MAX_ENTRIES]
        ]
        more = len(asked.blockers) - _MAX_ENTRIES
        yield from (
            f"  {line}" for line in _indented(columns(("GANG OR POD", "PODS", "ENDS NO LATER THAN"), rows), more)
        )


def free_lines(room: FreeRoom) -> Iterator[str]:
    """Yield the output lines of --free: the number of pods that can start now, per pod size and run time."""
    rows = [
        [row.pod, format_duration(row.seconds) if row.seconds else "unlimited", str(row.pods), str(row.nodes)]
        for row in room.rows
    ]
    yield f"Can start now in queue {room.queue}, without evictions:"
    yield from columns(("PER POD", "RUN TIME", "PODS", "NODES"), rows)
    yield from (f"Note: {note}" for note in room.notes)
    if room.missing:
        yield "Based on readable objects only. Cannot read:"
        yield from _indented(list(room.missing[:_MAX_ENTRIES]), len(room.missing) - _MAX_ENTRIES)


def _starts_row(name: str, starts: Starts) -> list[str]:
    return [name, str(starts.now), str(starts.later), str(starts.never)]


def _effect(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds == 0:
        return "same time"
    return f"{shown_span(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _rooms(rooms: Sequence[NodeRoom]) -> str:
    named = ", ".join(f"{room.node} ({room.pods})" if room.pods > 1 else room.node for room in rooms[:_MAX_ENTRIES])
    return f"{named} and {len(rooms) - _MAX_ENTRIES} more nodes" if len(rooms) > _MAX_ENTRIES else named


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _indented(lines: list[str], more: int) -> Iterator[str]:
    yield from (f"  {line}" for line in lines)
    if more > 0:
        yield f"  and {more} more"
