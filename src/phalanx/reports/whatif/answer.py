"""Answer to a what-if question as data. Times are RFC 3339."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.reports.eviction_entries import NodeRoom as NodeRoom
from phalanx.views.promises import PromiseOrigin

NOW = "Now"
AFTER_EVICTIONS = "AfterEvictions"
LATER = "Later"
UNKNOWN = "Unknown"
NEVER = "NotWithinHorizon"


class Blocker(msgspec.Struct):
    """Gang or single pod whose pods end before the predicted start and use its nodes until then; the last of them
    ends at `end`."""

    name: str
    pods: int
    end: str


class WaitSummary(msgspec.Struct, omit_defaults=True):
    """Reason why a gang or pod waits: the dominant reason, the number of nodes that each filter rejects, and the
    smallest helpful change. `brief` is the message with counts and without names of objects."""

    reason: str
    message: str
    nodes: dict[str, int] = {}
    change: str = ""
    brief: str = ""


class AskedStart(msgspec.Struct, omit_defaults=True):
    """Predicted start of a gang or single pod.

    `state` is Now, AfterEvictions (once its victims have terminated), Later, or NotWithinHorizon. `start` assumes
    that all pods run to their limits. `expected` assumes the run times that users estimate, if any estimates exist.
    `promised` is the start that a policy with start reservations would promise. `nodes` are the planned nodes;
    `domains` counts pods by values of topology labels. The start follows the end of all `blockers`.
    """

    name: str
    pods: int
    state: str
    start: str = ""
    wait_seconds: int = 0
    expected: str = ""
    promised: str = ""
    nodes: list[NodeRoom] = []
    domains: dict[str, dict[str, int]] = {}
    blockers: list[Blocker] = []
    verdict: WaitSummary | None = None


class EvictedGang(msgspec.Struct, omit_defaults=True):
    """Gang that would be evicted at `when` in a what-if forecast.

    `pod_hours` of work since the start or the last checkpoint are lost. It restarts at `again`, "" for no restart
    within the horizon; it is `lost` if no controller recreates its pods.
    """

    name: str
    pods: int
    priority: int
    when: str
    pod_hours: float = 0.0
    again: str = ""
    lost: bool = False


class InterruptedGang(msgspec.Struct, omit_defaults=True):
    """Gang that loses pods with the removed nodes in a what-if forecast. It restarts at `again`, "" for no restart
    within the horizon."""

    name: str
    pods: int
    again: str = ""


class MovedStart(msgspec.Struct, omit_defaults=True):
    """Waiting gang or pod, not part of the question, whose start changes; "" for no start within the horizon.

    `delay_seconds` is negative for an earlier start, None if one of the two starts is unknown.
    """

    name: str
    without: str
    changed: str
    delay_seconds: int | None = None


class MovedPromise(msgspec.Struct, omit_defaults=True):
    """Promised start that the scheduler would move from `promised` to `moves_to`, "" for a cancelled promise.

    `cause` states why, "" for an earlier start.
    """

    name: str
    promised: str
    moves_to: str = ""
    cause: str = ""


class Starts(msgspec.Struct):
    """Numbers of waiting gangs and pods that start at once, later, and not within the horizon."""

    now: int
    later: int
    never: int


class WhatIfAnswer(msgspec.Struct, omit_defaults=True):
    """Answer to a what-if question.

    `without` counts the starts without the change, `changed` with it. `missing` names unreadable parts of the
    cluster: the answer then relies on the readable ones. Forecasts begin with the scheduler's promised starts,
    whose version and time are in `origin`. `moved_promises` are the promises that the change would move.
    """

    moment: str
    horizon_seconds: int
    asked: list[AskedStart]
    without: Starts
    changed: Starts
    changes: list[str] = []
    evicted: list[EvictedGang] = []
    moved: list[MovedStart] = []
    interrupted: list[InterruptedGang] = []
    notes: list[str] = []
    missing: list[str] = []
    moved_promises: list[MovedPromise] = []
    origin: PromiseOrigin | None = None


def with_shown_names(answer: WhatIfAnswer, titles: Mapping[str, str]) -> WhatIfAnswer:
    """Replace the internal names of gangs in an answer by the shown names in `titles`."""
    blockers = [item for asked in answer.asked for item in asked.blockers]
    named: list[AskedStart | EvictedGang | MovedStart | MovedPromise | InterruptedGang | Blocker]
    named = [*answer.asked, *answer.evicted, *answer.moved, *answer.moved_promises, *answer.interrupted, *blockers]
    for item in named:
        item.name = titles.get(item.name, item.name)
    return answer


def to_builtins(answer: msgspec.Struct) -> object:
    return msgspec.to_builtins(answer)


class FreeRow(msgspec.Struct):
    """Number of pods of one size: this many pods with the requests `pod` can start now as one gang if they end
    within `seconds` (0: no limit)."""

    pod: str
    seconds: int
    pods: int
    nodes: int


class FreeRoom(msgspec.Struct, omit_defaults=True):
    moment: str
    queue: str
    rows: list[FreeRow]
    notes: list[str] = []
    missing: list[str] = []
