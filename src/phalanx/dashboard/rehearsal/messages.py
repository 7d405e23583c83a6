"""Messages between the page's process and the process of the dry runs."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Objects, Verdict
from phalanx.reports.account_entries import QueueReport
from phalanx.reports.snapshot import DisruptionTarget
from phalanx.reports.start_entries import StartEntry
from phalanx.reports.turn_entries import OrderReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.quota.usage_history import AccountUsage
from phalanx.views.gang_state import PlacementForecast
from phalanx.views.promises import PromisedStart, Promises
from phalanx.views.verdict_texts import brief_text


class Facts(msgspec.Struct, frozen=True):
    """Message with the events of the cluster state since the previous message, in order."""

    events: list[ClusterEvent]


class Rehearse(msgspec.Struct, frozen=True):
    """Request for a dry run of one scheduling cycle at `now` over all events so far.

    The other fields are those of a Snapshot.
    """

    now: float
    refused: dict[str, str]
    disruption_targets: dict[str, DisruptionTarget]
    usages: list[AccountUsage]
    promises: Promises
    missing: list[str]


class AskWhy(msgspec.Struct, frozen=True):
    """Question why a gang or a single pod waits, about the last dry run."""

    namespace: str
    name: str
    pod: bool = False


class AskReport(msgspec.Struct, frozen=True):
    """Question to the report of the last dry run: `part` names the method (REPORT_PARTS), with its arguments."""

    part: str
    arguments: tuple[Any, ...] = ()


#: Methods of WhyReport that AskReport can call.
REPORT_PARTS = frozenset({"pod", "gang", "composite", "pods_below"})


class AskList(msgspec.Struct, frozen=True):
    """Request for a list of all waiting units, from a dry run of its own at `now`: "order" or "starts"."""

    kind: str
    now: float


class RehearsedVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of the dry run for a gang or a single pod: it would start now, or the reason why it waits.

    `brief` states the reason with counts and without names. `objects` are the objects that `message` and `change`
    name.
    """

    forecast: PlacementForecast = PlacementForecast.NONE
    reason: str = ""
    message: str = ""
    change: str = ""
    brief: str = ""
    objects: Objects = None


def rehearsed_verdict(verdict: Verdict) -> RehearsedVerdict:
    return RehearsedVerdict(
        PlacementForecast.NONE,
        verdict.code,
        verdict.message,
        verdict.change,
        brief_text(
            verdict.code,
            needed=verdict.needed,
            placeable=verdict.placeable,
            members=verdict.members,
            nodes=verdict.nodes,
        ),
        verdict.objects,
    )


class PlannedStart(msgspec.Struct, frozen=True):
    """Planned start of a waiting gang or pod; `gang` is None for a single pod."""

    queue: str
    pods: int
    start: PromisedStart
    gang: GangKey | None = None
    pod: str = ""


class Rehearsed(msgspec.Struct, frozen=True):
    """Result of a dry run.

    `gangs` and `pods` (by uid) hold the verdicts of waiting units; `seconds` is its duration.
    """

    now: float
    seconds: float
    gangs: dict[GangKey, RehearsedVerdict]
    pods: dict[str, RehearsedVerdict]
    starts: list[PlannedStart]
    queues: QueueReport


class Failed(msgspec.Struct, frozen=True):
    """Answer for a failed request, with the reason."""

    why: str


Question = AskWhy | AskReport
Request = Facts | Rehearse | Question | AskList
Answer = Rehearsed | WhyAnswer | OrderReport | list[StartEntry] | Failed | None
