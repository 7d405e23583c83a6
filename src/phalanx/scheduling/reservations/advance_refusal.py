"""Reasons why an advance reservation is not granted: the missing room and its blockers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant, GrantRefusal
from phalanx.scheduling.reservations.advance_search import RoomQuestion, RoomSearch
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Window

_MOST_BLOCKERS = 5
_ROWS_LOOKED_AT = 256


def refusal_of(
    state: ClusterState,
    now: int,
    grant: AdvanceGrant,
    search: RoomSearch,
    question: RoomQuestion,
    start: int,
    windows: Iterable[tuple[str, Window]],
) -> GrantRefusal:
    """Return the reason why there is no room from `start` on. `windows` are all reserved windows by name."""
    end = start + grant.spec.duration if grant.spec.flexible_start and grant.spec.duration else grant.end
    count, full = search.count(start, end)
    wanted = question.nodes.count if question.nodes is not None else sum(part.count for part in question.parts)
    noun = "nodes" if question.nodes is not None else "copies"
    blockers = _blockers(state, now, full, start, end, windows)
    room_later = search.earliest(start, end - start if end < FOREVER else 0)
    next_start = room_later.start if room_later is not None else 0
    if count >= wanted:
        text = f"enough room is free, but queue {grant.spec.queue} would exceed its limits then"
    else:
        text = f"there is room for {count} of {wanted} {noun}"
    if blockers:
        text += f"; blocked by: {', '.join(blockers)}"
    next_text = f"it could start at {format_moment(next_start)}" if next_start else "no later start is known"
    return GrantRefusal(f"{text}; {next_text}", tuple(blockers), next_start)


def _blockers(
    state: ClusterState, now: int, full: BoolArray, start: int, end: int, windows: Iterable[tuple[str, Window]]
) -> list[str]:
    """Return the pods, gangs and windows on the full rows in [start, end), the most frequent first.

    A row in maintenance is blocked by that alone: it would be closed even without pods."""
    counts: dict[str, int] = {}
    rows = []
    for row in np.flatnonzero(full & state.nodes.alive)[:_ROWS_LOOKED_AT].tolist():
        closed = state.nodes.maintenance.closed_by([row], start, end)
        if closed:
            counts[closed] = counts.get(closed, 0) + 1
        else:
            rows.append(row)
            _count_pods(state, now, row, start, counts)
    for name, window in windows:
        if window.start < end and window.end > start:
            rows_in_window = len(set(rows).intersection(window.rows.tolist()))
            if rows_in_window:
                counts[name] = counts.get(name, 0) + rows_in_window
    return _ranked(counts)


def _count_pods(state: ClusterState, now: int, row: int, start: int, counts: dict[str, int]) -> None:
    for record in state.pods.on(row):
        if not record.pod.fixture and latest_end(record, now) > start:
            gang = record.gang
            name = f"gang {gang.title}" if gang is not None else f"pod {record.pod.key}"
            counts[name] = counts.get(name, 0) + 1


def _ranked(counts: dict[str, int]) -> list[str]:
    ranked: Sequence[str] = sorted(counts, key=lambda name: (-counts[name], name))
    hidden = len(ranked) - _MOST_BLOCKERS
    return [*ranked[:_MOST_BLOCKERS], *([f"{hidden} more"] if hidden > 0 else [])]
