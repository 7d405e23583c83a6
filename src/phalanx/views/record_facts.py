"""Facts about gangs and pods from the records of a cluster's state: the live one, or the snapshot of a dry run."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.gangs.quorum import ONCE, quorum_requirement
from phalanx.views.gang_state import GangFacts


def gang_facts(record: GangRecord, evicted: Collection[str] = ()) -> GangFacts:
    """Return the facts about a gang, from its counts. `evicted` are the uids of pods that a condition says are
    evicted, beside those that this scheduler evicts."""
    counts, spec = record.counts(), record.spec
    minimum = spec.min_member if spec is not None else 0
    met = False
    if spec is not None and 0 < counts.active < minimum and spec.match_policy in ONCE:
        met = quorum_requirement(record, spec).satisfied
    return GangFacts(
        minimum=minimum,
        minimum_met=met,
        pending=counts.pending,
        gated=counts.gated,
        other_scheduler=counts.other_scheduler,
        placed=counts.assumed + counts.bound,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        terminating=counts.terminating,
        evicted=_evicted(record, evicted) if counts.terminating else 0,
    )


def pod_facts(record: PodRecord, evicted: Collection[str] = ()) -> GangFacts:
    """Return the facts about a pod on its own, as a gang of one."""
    state = record.state
    terminating = state is MemberState.TERMINATING
    return GangFacts(
        minimum=1,
        pending=int(state is MemberState.PENDING),
        gated=int(state is MemberState.GATED),
        other_scheduler=int(state is MemberState.OTHER_SCHEDULER),
        placed=int(state in (MemberState.ASSUMED, MemberState.BOUND)),
        running=int(state is MemberState.RUNNING),
        succeeded=int(state is MemberState.SUCCEEDED),
        failed=int(state is MemberState.FAILED),
        terminating=int(terminating),
        evicted=int(terminating and (record.evicting or record.pod.uid in evicted)),
    )


def _evicted(record: GangRecord, evicted: Collection[str]) -> int:
    return sum(
        member.state is MemberState.TERMINATING and (member.evicting or uid in evicted)
        for uid, member in record.members.items()
    )
