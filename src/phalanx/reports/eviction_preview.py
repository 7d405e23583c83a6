"""Current or possible evictions for a waiting gang or pod, as data for views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.text.counts import count_of
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.model.verdict import Verdict
from phalanx.reports.eviction_entries import EvictionPreview, EvictionReasons, NodeRoom, PreviewedCost, PreviewedPod
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
    "; all grace periods are over: check their finalizers (kubectl get pod -o yaml) and the kubelets of their nodes"
)


def preview_evictions(dry_run: DryRun, unit: QueuedUnit, messages: Mapping[str, str]) -> EvictionPreview | None:
    """Return the evictions for a waiting gang or pod; None if it needs none. `messages`: eviction messages by uid
    of the pod."""
    eviction = dry_run.disruption(unit)
    if eviction is None:
        return None
    if isinstance(eviction, NothingHelps):
        return _vain(dry_run, unit, eviction)
    # Several pods of one class share their victims, so `terminating` can repeat a victim.
    pods = dict.fromkeys((*_records(eviction), *eviction.terminating))
    due = [record for record in pods if not record.pod.terminating]
    answer = _due(dry_run, eviction, due, messages) if due else _leaving(dry_run, eviction)
    answer.rooms, answer.held = _rooms(dry_run, eviction), bool(nominated_members(unit))
    answer.overtaken = [record.pod.key for record in eviction.displaced]
    answer.pods = [_departure(record) for record in pods]
    return answer


def _leaving(dry_run: DryRun, found: Eviction) -> EvictionPreview:
    now = dry_run.session.now
    last = max((record.pod.leaves for record in found.terminating), default=0)
    left = int(last - now)
    end = ""
    if last:
        end = f"; the last grace period ends in {format_duration(left)}" if left > 0 else _OVERDUE
    return EvictionPreview(LEAVING, f"{count_of(len(found.terminating), 'evicted pod')} terminating{end}")


def _due(
    dry_run: DryRun, found: Eviction, due: Sequence[PodRecord], messages: Mapping[str, str]
) -> EvictionPreview:
    groups: dict[str, list[str]] = {}
    for record in due:
        groups.setdefault(messages.get(record.pod.uid, "frees resources"), []).append(record.pod.key)
    grace = max(record.pod.grace for record in due)
    paced = dict.fromkeys(pace(account, rate) for record in due for account, rate in rates(record))
    when = "as soon as eviction rates permit" if paced else "now"
    return EvictionPreview(
        DUE,
        f"{count_of(len(due), 'pod')} would be evicted {when}, grace period at most {format_duration(grace)}",
        paced=list(paced),
        reasons=[EvictionReasons(why, pods) for why, pods in groups.items()],
        cost=_price(found, dry_run.session.now) if found.victims else None,
    )


def _vain(dry_run: DryRun, unit: QueuedUnit, found: NothingHelps) -> EvictionPreview:
    what_if = found.what_if
    if what_if is None:
        return EvictionPreview(
            NO_HELP, "its gang has its minimum; the policy evicts no pods for additional members"
        )
    if what_if.eviction is None:
        missing = _missing(unit, what_if.missing) if what_if.missing is not None else ""
        return EvictionPreview(NO_HELP, "evicting all other pods would not help", missing=missing)
    records, losers = _records(what_if.eviction), what_if.eviction.displaced
    stuck = {record.pod.uid for obstacle in what_if.obstacles for record in obstacle.records}
    protected = "all of them are" if len(stuck) == len(records) + len(losers) else f"{len(stuck)} of them"
    protected = protected if protected.endswith("are") else f"{protected} {'is' if len(stuck) == 1 else 'are'}"
    ways = [f"{count_of(len(records), 'pod')} would have to be evicted"] if records else []
    ways += [f"{count_of(len(losers), 'pod')} would have to lose reserved nodes"] if losers else []
    return EvictionPreview(
        NO_HELP,
        f"{', '.join(ways)}; {protected} protected",
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
    """Return the reason why pods are protected from eviction, in the singular for one pod."""
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
    return f"{verdict.message.rstrip('.')}" + (f"; to fix: {change}" if change else "")


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
    # A part of a decision has only its own share of the cost.
    cost = found.cost if found.cost.pods == len(records) else cost_of(found.victims, 0)
    hours = sum(hours_lost(record, now) for record in records)
    return PreviewedCost(cost.pods, cost.broken_quorums, cost.priority, cost.violations, round(hours, 2))


def _records(found: Eviction) -> Sequence[PodRecord]:
    return [record for victim in found.victims for record in victim.records]


def _rooms(dry_run: DryRun, found: Eviction) -> list[NodeRoom]:
    return _by_node(dry_run.state.nodes.names[row] for _, row in found.placements)


def _by_node(names: Iterable[str]) -> list[NodeRoom]:
    return [NodeRoom(node, pods) for node, pods in sorted(Counter(names).items())]
