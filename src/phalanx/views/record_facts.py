"""Counts and flags that decide the state of gangs and pods, from records of the cluster's state, live or in the
snapshot of a dry run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangCounts, GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.gangs.quorum import ONCE, quorum_requirement
from phalanx.views.gang_state import GangFacts, GangState, gang_state


def gang_facts(record: GangRecord, evicted: Collection[str] = ()) -> GangFacts:
    """Return the counts and flags of a gang that decide its state.

    `evicted` are uids of pods with the condition DisruptionTarget, if the caller has read them. Records know only
    evictions by schedulers.
    """
    counts, spec = record.counts(), record.spec
    minimum = spec.min_member if spec is not None else 0
    met = False
    if spec is not None and 0 < counts.active < minimum and spec.match_policy in ONCE:
        met = quorum_requirement(record, spec).satisfied
    return _facts(counts, minimum, _evicted(record, evicted) if counts.terminating else 0, met=met)


def observed_states(state: ClusterState, evicted: Collection[str] = ()) -> dict[GangKey, GangState]:
    """Return the state of every gang. Call it before a dry run, which changes the records."""
    return {key: gang_state(gang_facts(record, evicted)) for key, record in state.gangs.items()}


def pod_facts(record: PodRecord, evicted: Collection[str] = ()) -> GangFacts:
    """Return the counts and flags of a single pod, as a gang of one."""
    return member_facts([record.state], minimum=1, evicted=int(_is_evicted(record, evicted)))


def member_facts(states: Iterable[MemberState], *, minimum: int = 0, evicted: int = 0) -> GangFacts:
    """Return the counts and flags of a gang whose members have these states; `evicted` of the terminating ones are
    evicted."""
    numbers = [0] * len(MemberState)
    for state in states:
        numbers[state] += 1
    return _facts(GangCounts(*numbers), minimum, evicted)


def _facts(counts: GangCounts, minimum: int, evicted: int, *, met: bool = False) -> GangFacts:
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
        evicted=evicted,
    )


def _evicted(record: GangRecord, evicted: Collection[str]) -> int:
    return sum(_is_evicted(member, evicted) for member in record.members.values())


def _is_evicted(record: PodRecord, evicted: Collection[str]) -> bool:
    """Return whether a terminating pod is evicted: by this scheduler, by its condition, or because `evicted`
    contains it.
    """
    if record.state is not MemberState.TERMINATING:
        return False
    return record.evicting or bool(record.pod.condemned) or record.pod.uid in evicted
