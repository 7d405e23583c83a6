"""Page of one gang in `phalanx top`: reason, fix, planned evictions, members and timeline."""

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
    # Line breaks are removed first: a message must not add lines to the page.
    answer = msgspec.convert(_single_lines(msgspec.to_builtins(answer)), GangAnswer)
    return [*_head(answer, now), *_why(answer), *_members(answer), *_timeline(answer, now)]


def _single_lines(content: Any) -> Any:
    if isinstance(content, str):
        return harmless(content)
    if isinstance(content, list):
        return [_single_lines(item) for item in content]
    if isinstance(content, dict):
        return {harmless(key): _single_lines(value) for key, value in content.items()}
    return content


def _head(answer: GangAnswer, now: float) -> Iterator[Line]:
    row = answer.row
    if row is None:
        yield Line("The gang no longer exists; last known state:", "muted")
        return
    yield Line(f"{row.kind} {row.id}: {row.state}", STATE_STYLES.get(row.state, "title"))
    asks = ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in sorted(row.asks.items()))
    yield Line(
        f"queue {row.queue or '-'}, priority {row.priority}, members {members(row)} (running/minimum/all), "
        f"age {age(row.created, now) or '-'}, start {start(row, now)}",
        indent=2,
    )
    if asks:
        yield Line(f"requests {asks}", indent=2)


def _why(answer: GangAnswer) -> Iterator[Line]:
    yield Line()
    yield Line("WHY", "title")
    why = answer.why
    if why is None:
        yield Line(answer.problem or "not yet part of a dry run", "muted", 2)
        return
    for text in render(msgspec.structs.replace(why, evictions=None, change="")).split("\n"):
        yield Line(text.strip(), indent=2 + (len(text) - len(text.lstrip())))
    yield Line()
    yield Line("FIX", "title")
    yield Line(why.change or "-", "mark" if why.change else "muted", 2)
    yield Line()
    yield Line("WOULD EVICT", "title")
    if why.evictions is None:
        yield Line("none", "muted", 2)
    else:
        for text in eviction_lines(why.evictions):
            yield Line(text.strip(), indent=2 + (len(text) - len(text.lstrip())))


def _members(answer: GangAnswer) -> Iterator[Line]:
    yield Line()
    yield Line(f"MEMBERS ({len(answer.members)})", "title")
    for member in answer.members[:_MOST_MEMBERS]:
        node = f" on {member.node}" if member.node else ""
        yield Line(f"{member.name}: {member.state}{node}", indent=2)
    if len(answer.members) > _MOST_MEMBERS:
        yield Line(f"and {len(answer.members) - _MOST_MEMBERS} more", "muted", 2)
    if not answer.members:
        yield Line("no members seen", "muted", 2)


def _timeline(answer: GangAnswer, now: float) -> Iterator[Line]:
    yield Line()
    yield Line("TIMELINE (latest first)", "title")
    moments = [(mark.when, mark.what, mark.message) for mark in answer.marks]
    moments += [moment for member in answer.members[:_MOST_MEMBERS] for moment in _moments(member)]
    # A whole second comes before its fractions, and equal moments keep their order.
    moments.sort(key=lambda moment: moment[0].rstrip("Z"))
    for when, event, message in reversed(moments):
        ago = f" ({age(when, now)} ago)" if when else ""
        second = f"{when.rstrip('Z').partition('.')[0]}Z" if when else ""
        yield Line(f"{second}{ago}  {event}{f': {message}' if message else ''}", indent=2)
    if not moments:
        yield Line("no events yet", "muted", 2)
    for text in answer.omitted:
        yield Line(f"not shown: {text}", "muted", 2)


def _moments(member: MemberLine) -> Iterator[tuple[str, str, str]]:
    for when, event in (
        (member.planned, "placed by a plan"),
        (member.bound, f"bound to {member.node}" if member.node else "bound"),
        (member.started, "started"),
        (member.told, f"evicted ({member.cause})" if member.cause else "evicted"),
        (member.ended, f"ended ({member.state})"),
        (member.gone, "deleted"),
    ):
        if when:
            yield when, member.name, event
