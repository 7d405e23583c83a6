"""One gang as text: why it waits, what would help, who would leave, its members, and what has happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from phalanx.cli.explanation.eviction_lines import eviction_lines
from phalanx.cli.explanation.why import render
from phalanx.cli.listing.ages import age
from phalanx.cli.listing.harmless import harmless
from phalanx.cli.top.gangs import members, start
from phalanx.cli.top.pager import Line
from phalanx.cli.top.pieces import STATE_STYLES
from phalanx.dashboard.rows.entries import GangAnswer, MemberLine
from phalanx.model.text.quantity import format_quantity

_MOST_MEMBERS = 200


def story(answer: GangAnswer, now: float) -> list[Line]:
    # Before there are lines: a message with a line break would be two of them, the second in our name.
    answer = msgspec.convert(_single_lines(msgspec.to_builtins(answer)), GangAnswer)
    return [*_head(answer, now), *_why(answer), *_members(answer), *_timeline(answer, now)]


def _single_lines(content: Any) -> Any:
    if isinstance(content, str):
        return harmless(content)
    if isinstance(content, list):
        return [_single_lines(each) for each in content]
    if isinstance(content, dict):
        return {harmless(key): _single_lines(each) for key, each in content.items()}
    return content


def _head(answer: GangAnswer, now: float) -> Iterator[Line]:
    row = answer.row
    if row is None:
        yield Line("It is gone; this is what is still known of it.", "muted")
        return
    yield Line(f"{row.kind} {row.id}: {row.state}", STATE_STYLES.get(row.state, "title"))
    asks = ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in sorted(row.asks.items()))
    yield Line(
        f"queue {row.queue or '-'}, priority {row.priority}, members {members(row)} (running/minimum/all), "
        f"age {age(row.created, now) or '-'}, start {start(row, now)}",
        indent=2,
    )
    if asks:
        yield Line(f"asks for {asks}", indent=2)


def _why(answer: GangAnswer) -> Iterator[Line]:
    yield Line()
    yield Line("WHY", "title")
    why = answer.why
    if why is None:
        yield Line(answer.problem or "the rehearsal does not know it yet", "muted", 2)
        return
    for text in render(msgspec.structs.replace(why, evictions=None, change="")).split("\n"):
        yield Line(text.strip(), indent=2 + (len(text) - len(text.lstrip())))
    yield Line()
    yield Line("WHAT WOULD HELP", "title")
    yield Line(why.change or "-", "mark" if why.change else "muted", 2)
    yield Line()
    yield Line("WHO WOULD LEAVE", "title")
    if why.evictions is None:
        yield Line("nobody", "muted", 2)
    else:
        for text in eviction_lines(why.evictions):
            yield Line(text.strip(), indent=2 + (len(text) - len(text.lstrip())))


def _members(answer: GangAnswer) -> Iterator[Line]:
    yield Line()
    yield Line(f"MEMBERS ({len(answer.members)})", "title")
    for member in answer.members[:_MOST_MEMBERS]:
        where = f" on {member.node}" if member.node else ""
        yield Line(f"{member.name}: {member.state}{where}", indent=2)
    if len(answer.members) > _MOST_MEMBERS:
        yield Line(f"and {len(answer.members) - _MOST_MEMBERS} more", "muted", 2)
    if not answer.members:
        yield Line("none was seen", "muted", 2)


def _timeline(answer: GangAnswer, now: float) -> Iterator[Line]:
    yield Line()
    yield Line("TIMELINE (the latest first)", "title")
    moments = [(mark.when, mark.what, mark.message) for mark in answer.marks]
    moments += [each for member in answer.members[:_MOST_MEMBERS] for each in _moments(member)]
    for when, what, message in sorted(moments, reverse=True):
        ago = f" ({age(when, now)} ago)" if when else ""
        yield Line(f"{when}{ago}  {what}{f': {message}' if message else ''}", indent=2)
    if not moments:
        yield Line("nothing was seen yet", "muted", 2)
    for text in answer.omitted:
        yield Line(f"not shown: {text}", "muted", 2)


def _moments(member: MemberLine) -> Iterator[tuple[str, str, str]]:
    for when, what in (
        (member.planned, "placed by a plan"),
        (member.bound, f"bound to {member.node}" if member.node else "bound"),
        (member.started, "started"),
        (member.told, f"told to leave ({member.cause})" if member.cause else "told to leave"),
        (member.ended, f"ended ({member.state})"),
        (member.gone, "gone"),
    ):
        if when:
            yield when, member.name, what
