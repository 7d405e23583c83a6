"""What a what-if question is answered with, as data that people and programs read. Moments are RFC 3339."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.reports.eviction_preview import NodeRoom as NodeRoom
from phalanx.views.promises import PromiseOrigin

NOW = "Now"
AFTER_EVICTIONS = "AfterEvictions"
LATER = "Later"
UNKNOWN = "Unknown"
NEVER = "NotWithinHorizon"


class Blocker(msgspec.Struct):
    """Pods of a gang (or one on its own) that leave the nodes in question before; the last of them at `end`."""

    name: str
    pods: int
    end: str


class WaitSummary(msgspec.Struct, omit_defaults=True):
    """Why it does not start at once: the dominant reason, how many nodes are out for what, what would help."""

    reason: str
    message: str
    nodes: dict[str, int] = {}
    change: str = ""


class AskedStart(msgspec.Struct, omit_defaults=True):
    """What becomes of a gang, or of a pod on its own, that was asked about.

    `state` is Now, AfterEvictions (as soon as those have left who would be told to), Later, or NotWithinHorizon.
    `start` is when it starts if everybody runs until killed, `expected` if they run for as long as their users say
    (where anybody says something else). `promised` is what a policy that keeps starts would promise. `nodes` are
    where it starts, `domains` how many pods that are by values of topology labels. It starts as soon as `blockers`
    have left.
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
    """Who would be told to leave at `when`; `pod_hours` of work since the start or the last checkpoint are lost. It
    runs again from `again` on, "" where it does not within the horizon; it is `lost` where nobody makes its pods
    again."""

    name: str
    pods: int
    priority: int
    when: str
    pod_hours: float = 0.0
    again: str = ""
    lost: bool = False


class InterruptedGang(msgspec.Struct, omit_defaults=True):
    """Who loses so many pods with their nodes; it runs again from `again` on, "" where it does not within the
    horizon."""

    name: str
    pods: int
    again: str = ""


class MovedStart(msgspec.Struct, omit_defaults=True):
    """Somebody else who waits and starts at another time; "" where it does not start within the horizon.
    `delay_seconds` is below 0 for who starts earlier, absent where one of the two is unknown."""

    name: str
    without: str
    changed: str
    delay_seconds: int | None = None


class MovedPromise(msgspec.Struct, omit_defaults=True):
    """Promised start that the scheduler would move from `promised` to `moves_to`, "" where it would give it up.
    `cause` is why, "" where it moves forward."""

    name: str
    promised: str
    moves_to: str = ""
    cause: str = ""


class Starts(msgspec.Struct):
    """How many of those that wait start at once, later, and not within the horizon."""

    now: int
    later: int
    never: int


class WhatIfAnswer(msgspec.Struct, omit_defaults=True):
    """`without` counts what becomes of those that wait as things are, `changed` with all that was asked for.
    `missing` says what of the cluster is unknown: then the answer rests on what may be seen. The forecasts begin
    with the promised starts of the scheduler, of the version and time of `origin`; `moved_promises` are those that
    it would move, with all that was asked for."""

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
    """Replace the names of gangs, which tell them apart, by those in `titles`, by which users know them."""
    blockers = [each for asked in answer.asked for each in asked.blockers]
    named: list[AskedStart | EvictedGang | MovedStart | MovedPromise | InterruptedGang | Blocker]
    named = [*answer.asked, *answer.evicted, *answer.moved, *answer.moved_promises, *answer.interrupted, *blockers]
    for each in named:
        each.name = titles.get(each.name, each.name)
    return answer


def to_builtins(answer: msgspec.Struct) -> object:
    return msgspec.to_builtins(answer)
