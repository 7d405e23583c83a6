"""What evictions do, or would do, for something that waits: as data that people and programs read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.model.verdict import Verdict
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.preemption.solution import Eviction, cost_of
from phalanx.scheduling.preemption.victims import hours_lost
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import GangFault
from phalanx.scheduling.session.eviction_log import pace, rates
from phalanx.scheduling.whatif.dry_run import DryRun, NothingHelps
from phalanx.scheduling.whatif.what_if import EvictionObstacle

LEAVING = "Leaving"
DUE = "Due"
NO_HELP = "Vain"

_OVERDUE = (
    "; the grace of all of them is over: look for finalizers (kubectl get pod -o yaml), and whether the kubelets "
    "of their nodes answer"
)


class PreviewedPod(msgspec.Struct, omit_defaults=True):
    """A pod that leaves, would leave, or would have to. `since` and `until` (RFC 3339) are when it was told to and
    when its grace is over, where that is so already."""

    pod: str
    gang: str = ""
    node: str = ""
    priority: int = 0
    since: str = ""
    until: str = ""


class EvictionReasons(msgspec.Struct, omit_defaults=True):
    """Why these pods go, or why they may not; `until` (RFC 3339) is when the last of them may."""

    why: str
    pods: list[str]
    until: str = ""


class PreviewedCost(msgspec.Struct):
    """What is lost: pods, gangs that lose their minimum, the highest priority among them, pods taken against a
    PodDisruptionBudget, and hours of work since the start or the last checkpoint, in sum over the pods."""

    pods: int
    gangs: int
    priority: int
    violations: int
    pod_hours: float


class NodeRoom(msgspec.Struct):
    node: str
    pods: int


class EvictionPreview(msgspec.Struct, omit_defaults=True):
    """`state` is Leaving (others are on their way out), Due (the scheduler would tell them now) or Vain (evictions
    do not help; then `pods` are those who would have to go). `rooms` are where it would start, `held` whether they
    are kept for it, and `overtaken` who loses what was kept. `missing` is what would be missing even without all
    other pods. After any of `changes` others would go. `paced` are sentences about accounts that may lose so many
    pods only, and lose some if others go: what they have lost before is known in part.
    """

    state: str
    message: str
    rooms: list[NodeRoom] = []
    held: bool = False
    overtaken: list[str] = []
    pods: list[PreviewedPod] = []
    reasons: list[EvictionReasons] = []
    cost: PreviewedCost | None = None
    missing: str = ""
    changes: list[str] = []
    paced: list[str] = []


def preview_evictions(dry_run: DryRun, unit: QueuedUnit, messages: Mapping[str, str]) -> EvictionPreview | None:
    """What evictions do for a unit; None where they have nothing to do with it. `messages` are what the pods (by
    uid) that would be evicted now would be told."""
    found = dry_run.disruption(unit)
    if found is None:
        return None
    if isinstance(found, NothingHelps):
        return _vain(dry_run, unit, found)
    # Several pods that are alike share their victims: who goes for another's sake is among the victims.
    pods = dict.fromkeys((*_records(found), *found.terminating))
    told = [record for record in pods if not record.pod.terminating]
    answer = _due(dry_run, found, told, messages) if told else _leaving(dry_run, found)
    answer.rooms, answer.held = _rooms(dry_run, found), bool(nominated_members(unit))
    answer.overtaken = [record.pod.key for record in found.displaced]
    answer.pods = [_departure(record) for record in pods]
    return answer


def _leaving(dry_run: DryRun, found: Eviction) -> EvictionPreview:
    now = dry_run.session.now
    last = max((record.pod.leaves for record in found.terminating), default=0)
    left = int(last - now)
    end = ""
    if last:
        end = f"; the last ends in {format_duration(left)}" if left > 0 else _OVERDUE
    return EvictionPreview(LEAVING, f"{_pods(len(found.terminating))} terminating{end}")


def _due(
    dry_run: DryRun, found: Eviction, told: Sequence[PodRecord], messages: Mapping[str, str]
) -> EvictionPreview:
    groups: dict[str, list[str]] = {}
    for record in told:
        groups.setdefault(messages.get(record.pod.uid, "makes room"), []).append(record.pod.key)
    grace = max(record.pod.grace for record in told)
    paced = dict.fromkeys(pace(account, rate) for record in told for account, rate in rates(record))
    when = "as soon as eviction rates allow it" if paced else "now"
    return EvictionPreview(
        DUE,
        f"{_pods(len(told))} would be evicted {when}, with a grace period of at most {format_duration(grace)}",
        paced=list(paced),
        reasons=[EvictionReasons(why, pods) for why, pods in groups.items()],
        cost=_price(found, dry_run.session.now) if found.victims else None,
    )


def _vain(dry_run: DryRun, unit: QueuedUnit, found: NothingHelps) -> EvictionPreview:
    what_if = found.what_if
    if what_if is None:
        return EvictionPreview(NO_HELP, "the gang has its minimum; the policy evicts no pods for further members")
    if what_if.eviction is None:
        missing = _missing(unit, what_if.missing) if what_if.missing is not None else ""
        return EvictionPreview(NO_HELP, "it would not start even if all other pods were evicted", missing=missing)
    records, losers = _records(what_if.eviction), what_if.eviction.displaced
    stuck = {record.pod.uid for obstacle in what_if.obstacles for record in obstacle.records}
    needs = [f"the eviction of {_pods(len(records))}"] if records else []
    needs += [f"the reserved room of {_pods(len(losers))}"] if losers else []
    return EvictionPreview(
        NO_HELP,
        f"the start needs {' and '.join(needs)}, of which {len(stuck)} cannot be evicted",
        overtaken=[record.pod.key for record in losers],
        rooms=_rooms(dry_run, what_if.eviction),
        pods=[_departure(record) for record in records],
        reasons=[
            EvictionReasons(
                _about(obstacle),
                [record.pod.key for record in obstacle.records],
                format_moment(int(obstacle.until)) if obstacle.until is not None else "",
            )
            for obstacle in what_if.obstacles
        ],
        cost=_price(what_if.eviction, dry_run.session.now) if records else None,
        changes=list(found.changes),
    )


def _about(obstacle: EvictionObstacle) -> str:
    """Why, in the number that fits."""
    if len(obstacle.records) > 1:
        return obstacle.why
    return (
        obstacle.why.removeprefix("each ")
        .replace("their priority", "its priority", 1)
        .replace("for them", "for it", 1)
    )


def _missing(unit: QueuedUnit, facts: GangFault) -> str:
    verdict = _sentence(unit, facts)
    change = verdict.change.replace("free or add", "add")
    return f"{verdict.message.rstrip('.')}" + (f". Fix: {change}" if change else "")


def _sentence(unit: QueuedUnit, facts: GangFault) -> Verdict:
    if unit.pod is not None:
        return facts.pod_verdict(unit.pod)
    return facts.gang_verdict(unit.gangs[facts.culprit])


def _departure(record: PodRecord) -> PreviewedPod:
    pod = record.pod
    leaves = pod.leaves if pod.terminating else 0
    return PreviewedPod(
        pod.key,
        record.gang.title if record.gang is not None else "",
        pod.node,
        pod.priority,
        format_moment(leaves - pod.grace) if leaves else "",
        format_moment(leaves) if leaves else "",
    )


def _price(found: Eviction, now: float) -> PreviewedCost:
    records = _records(found)
    # What is but a part of a decision costs its own part.
    cost = found.cost if found.cost.pods == len(records) else cost_of(found.victims, 0)
    hours = sum(hours_lost(record, now) for record in records)
    return PreviewedCost(cost.pods, cost.broken_quorums, cost.priority, cost.violations, round(hours, 2))


def _records(found: Eviction) -> Sequence[PodRecord]:
    return [record for victim in found.victims for record in victim.records]


def _rooms(dry_run: DryRun, found: Eviction) -> list[NodeRoom]:
    return _by_node(dry_run.state.nodes.names[row] for _, row in found.placements)


def _by_node(names: Iterable[str]) -> list[NodeRoom]:
    return [NodeRoom(node, pods) for node, pods in sorted(Counter(names).items())]


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"
