"""What a rehearsal is asked and what it answers: plain records that cross from one process to another."""

from __future__ import annotations

import msgspec

from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Objects, Verdict
from phalanx.reports.account_entries import QueueReport
from phalanx.reports.snapshot import DisruptionTarget
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.quota.usage_history import AccountUsage
from phalanx.views.gang_state import PlacementForecast
from phalanx.views.promises import PromisedStart, Promises
from phalanx.views.verdict_texts import brief_text


class Facts(msgspec.Struct, frozen=True):
    """What has happened since the last ones, in order."""

    events: list[ClusterEvent]


class Rehearse(msgspec.Struct, frozen=True):
    """A dry run of one cycle at `now`, over all facts that were told; the rest is as in a Snapshot."""

    now: float
    refused: dict[str, str]
    disruption_targets: dict[str, DisruptionTarget]
    usages: list[AccountUsage]
    promises: Promises
    missing: list[str]


class AskWhy(msgspec.Struct, frozen=True):
    """About a gang, or a pod on its own, in the last rehearsal."""

    namespace: str
    name: str
    pod: bool = False


class RehearsedVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of the rehearsal for a gang, or a pod on its own: whether it would start now, or why it waits. `brief`
    says the latter with its counts and names nothing, `objects` are those that `message` and `change` name."""

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
    """When somebody who waits starts; of a pod on its own `gang` is None."""

    queue: str
    pods: int
    start: PromisedStart
    gang: GangKey | None = None
    pod: str = ""


class Rehearsed(msgspec.Struct, frozen=True):
    """`gangs` and `pods` (by uid) hold what was said of those that wait; `seconds` is how long the run took."""

    now: float
    seconds: float
    gangs: dict[GangKey, RehearsedVerdict]
    pods: dict[str, RehearsedVerdict]
    starts: list[PlannedStart]
    queues: QueueReport


class Failed(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    why: str


Request = Facts | Rehearse | AskWhy
Answer = Rehearsed | WhyAnswer | Failed | None
