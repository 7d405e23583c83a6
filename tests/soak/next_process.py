"""Comparison with the next scheduler process: it has the API objects and the stored promises, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from phalanx.cluster.devices.shared import SHARED_DEVICES, Given
from phalanx.cluster.pods.nominations import PATIENCE
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.model.events import ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.pod import MemberState, Pod
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.scheduling.policy.loader import draft_policy
from phalanx.scheduling.scheduler import Scheduler

from ..scheduling.features import starts
from .cluster import SoakCluster
from .records import StoredRecords

_MOST_CYCLES = 20


def differences(cluster: SoakCluster) -> str:
    """Return what the next process would decide or forget, "" for nothing.

    All writes of the present process have arrived: bindings, nominations, evictions and admissions. Without a
    change since the last comparison there is nothing to compare.
    """
    if not cluster.changed:
        return ""
    if any(why(cluster) for why in (_differs_by_time, _has_pods_without_node)):
        return ""
    cluster.changed = False
    cluster.compared += 1
    state, scheduler = next_process(cluster)
    # A binding that arrives is a change: from then on its pod can be a victim, and its run time begins.
    arriving = any(record.state is MemberState.ASSUMED for record in cluster.state.pods.values())
    decided: list[str] = []
    for _ in range(_MOST_CYCLES):
        if scheduler.idle:
            break
        plan = scheduler.cycle(cluster.clock)
        if _completes_a_lost_plan(cluster, plan):
            return ""
        if plan.binds and _moves_promises(cluster):
            return ""
        decided += [f"binds {bind.name} to {bind.node}" for bind in plan.binds]
        # An admission counts the possible victims too.
        if (plan.evictions or plan.admissions) and (arriving or _awaits_a_retry(cluster)):
            return ""
        decided += [f"evicts {evict.name} ({evict.reason})" for evict in plan.evictions]
        decided += [f"admits {admit.gang.name}" for admit in plan.admissions]
    if decided:
        return f"the next process {decided[0]} although nothing has changed"
    if arriving or _evictions_arrive(cluster):
        return _lost_nomination(cluster, state)
    return _lost_nomination(cluster, state) or _lost_promise(cluster, scheduler)


def _completes_a_lost_plan(cluster: SoakCluster, plan: Plan) -> bool:
    """Return whether a plan binds or evicts for a gang whose former plan can seem incomplete to its process."""
    pods = [*(bind.uid for bind in plan.binds), *(nominate.uid for nominate in plan.nominations)]
    gangs = [gang for uid in pods if (gang := cluster.state.pods[uid].gang) is not None]
    return any(gang.key in cluster.lost_marks for gang in gangs)


def _differs_by_time(cluster: SoakCluster) -> bool:
    """Return whether a victim is overdue: each process has waited for it since another moment."""
    records = cluster.state.pods.values()
    return any(record.pod.terminating and record.pod.leaves + PATIENCE <= cluster.clock for record in records)


def _has_pods_without_node(cluster: SoakCluster) -> bool:
    """Return whether the node of a pod was removed: the garbage collector of pods is about to delete the pod."""
    return bool(cluster.without_node())


def _evictions_arrive(cluster: SoakCluster) -> bool:
    """Return whether the API has not shown an eviction yet: the end of its pod is known from then on."""
    return any(record.evicting and not record.pod.terminating for record in cluster.state.pods.values())


def _moves_promises(cluster: SoakCluster) -> bool:
    """Return whether a pod with a run-time limit or an eviction arrives beside promised starts: the end of its pod
    is known from then on, and starts behind it move."""
    plan = starts(cluster.scheduler).plan
    records = cluster.state.pods.values()
    limited = any(record.state is MemberState.ASSUMED and record.pod.run_time.limit for record in records)
    return (limited or _evictions_arrive(cluster)) and plan is not None and plan.active


def _awaits_a_retry(cluster: SoakCluster) -> bool:
    """Return whether the API has refused an eviction: only this process knows it, the API refuses the next one
    too."""
    return any(record.no_eviction_until > cluster.clock for record in cluster.state.pods.values())


def next_process(cluster: SoakCluster) -> tuple[ClusterState, Scheduler]:
    """Return a process that has observed the API objects and has loaded the stored promises."""
    cluster.forget_expired()
    state = ClusterState()
    # Plugins belong to one scheduler.
    policy, _ = draft_policy(_policy_document(cluster.policy_text))
    scheduler = Scheduler(state, policy, refresh_verdicts=False)
    for event in _api_objects(cluster):
        state.apply(event)
    state.pods.load_nominations()
    StoredRecords.of(cluster.scheduler, cluster.state).load(scheduler, state)
    scheduler.activate_due(cluster.clock)
    return state, scheduler


@cache
def _policy_document(text: str) -> Mapping[str, object]:
    document: Mapping[str, object] = decode_yaml(text)
    return document


def _api_objects(cluster: SoakCluster) -> list[ClusterEvent]:
    events = []
    for about, event in zip(cluster.known, cluster.events, strict=True):
        if isinstance(event, PodUpdated) and _is_replaced(cluster, event.pod):
            continue
        if isinstance(event, PodUpdated) and event.pod.uid in cluster.state.pods:
            event = PodUpdated(_written(cluster, cluster.state.pods[event.pod.uid]))
        elif isinstance(event, GangUpdated) and about.startswith("gang "):
            gang = cluster.state.gangs.get(event.gang.key)
            if gang is not None and gang.admitted:
                event = GangUpdated(cluster.declaration_of(gang, event.gang))
        events.append(event)
    # The dialects create placeholders for the members that follow the present ones.
    return sorted(events, key=lambda event: isinstance(event, PodUpdated) and event.pod.placeholder)


def _is_replaced(cluster: SoakCluster, pod: Pod) -> bool:
    """Return whether a pod is a placeholder that the dialects do not create again: a later member has arrived while
    the leader waits."""
    placeholders = cluster.state.pods.placeholders
    claimant = placeholders.claimed.get(pod.uid)
    if claimant is None:
        return False
    claim = placeholders.claims[claimant]
    return not claim.node and not cluster.state.gangs[claim.gang].active


def _written(cluster: SoakCluster, record: PodRecord) -> Pod:
    """Return a pod as the API has it once all writes about it have arrived."""
    pod = record.pod
    if pod.placeholder:
        return msgspec.structs.replace(pod, nominated_node=record.nominated_node if _is_stored(record) else "")
    if record.state is MemberState.ASSUMED:
        taken = record.allocated.get(SHARED_DEVICES)
        cards = tuple(hold.card for share in taken.shares for hold in share) if isinstance(taken, Given) else ()
        node = record.assumed_node
        return msgspec.structs.replace(
            pod, node=node, mark=record.mark, cards=cards, nominated_node="", bound=cluster.now
        )
    if record.evicting and not pod.terminating:
        return msgspec.structs.replace(pod, terminating=True, condemned="phalanx", leaves=cluster.now + pod.grace)
    if record.state is MemberState.PENDING:
        return msgspec.structs.replace(pod, nominated_node=record.nominated_node)
    return pod


def _is_stored(record: PodRecord) -> bool:
    """Return whether the API has the nomination of a pod. That of an expected member is in the annotation of its
    leader, while the leader runs or is nominated."""
    gang = record.gang
    if not record.pod.placeholder:
        return True
    return gang is not None and (gang.active > 0 or any(entry.nominated_node for entry in gang.pending.values()))


def _lost_nomination(cluster: SoakCluster, state: ClusterState) -> str:
    for uid, record in cluster.state.pods.items():
        if record.nomination is not None and _is_stored(record) and state.pods[uid].nomination is None:
            return f"the next process holds no room for {uid}"
    return ""


def _lost_promise(cluster: SoakCluster, scheduler: Scheduler) -> str:
    plan, next_plan = starts(cluster.scheduler).plan, starts(scheduler).plan
    for promise in plan.all() if plan is not None else ():
        demand = cluster.scheduler.queue.demand_of(promise.key)
        if demand is None or not demand.for_room:
            continue  # the unit waits for other things: its start is lost in the next cycle that plans starts
        found = next_plan.get(promise.key) if next_plan is not None else None
        if found is None:
            return f"the next process has no promise for {promise.name}"
        if found.made != promise.made:
            return f"the next process has promised {promise.name} a start anew"
        if found.start > promise.start:
            return f"the next process promises {promise.name} a start {found.start - promise.start} s later"
    return ""
