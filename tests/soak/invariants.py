"""Checks of one plan that rest on declarations only, and on no function of the scheduler."""

from __future__ import annotations

from collections import Counter

from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.model.gang import MatchPolicy
from phalanx.model.pod import MemberState

from .cluster import SoakCluster

#: Seconds of patience with pods beyond the limit of their queue.
_PATIENCE = 60


def check_plan(cluster: SoakCluster, plan: Plan) -> None:
    """Raise an AssertionError for a plan that breaks a promise of the documentation."""
    _gangs_reach_their_minimum(cluster.state, plan)
    _composites_reach_their_minimum(cluster.state, plan)
    _closed_nodes_get_no_pod(cluster, plan)
    _exceeded_run_times_end(cluster)


def _gangs_reach_their_minimum(state: ClusterState, plan: Plan) -> None:
    for key in {bind.gang for bind in plan.binds if bind.gang is not None}:
        gang = state.gangs[key]
        counted = gang.spec is not None and gang.spec.match_policy is MatchPolicy.WAITING_AND_RUNNING
        if counted and gang.spec is not None:
            members = gang.active + gang.count(MemberState.SUCCEEDED)
            assert members >= gang.spec.min_member, f"{key} has {members} members after its start"


def _composites_reach_their_minimum(state: ClusterState, plan: Plan) -> None:
    starting = Counter(
        gang.spec.composite
        for key in {bind.gang for bind in plan.binds if bind.gang is not None}
        if (gang := state.gangs[key]).spec is not None and gang.spec.composite is not None
    )
    for key in starting:
        spec = state.gangs.composites.specs.get(key) if key is not None else None
        if spec is not None and not spec.initiated:
            groups = [gang for gang in state.gangs.values() if gang.spec is not None and gang.spec.composite == key]
            running = sum(bool(gang.active) for gang in groups)
            assert running >= min(spec.min_groups, len(groups)), f"{running} groups of composite {key} run"


def _closed_nodes_get_no_pod(cluster: SoakCluster, plan: Plan) -> None:
    resting = {node for node, backoff in cluster.backoffs.items() if cluster.clock < backoff.until}
    now = cluster.now
    for bind in plan.binds:
        assert bind.node not in resting, f"{bind.name} is bound to {bind.node}, which has just rejected a pod"
        for window in cluster.state.nodes.maintenance.windows.values():
            inside = bind.node in window.names and bool(window.spans(now, now + 1))
            assert not inside, f"{bind.name} is bound to {bind.node} in its maintenance"


def _exceeded_run_times_end(cluster: SoakCluster) -> None:
    if cluster.policy.exceeded_run_times != "kill":
        return
    for record in cluster.state.pods.values():
        allowed, started = record.pod.run_time.allowed, record.pod.started
        late = record.state is MemberState.RUNNING and bool(allowed and started)
        members = record.gang.members.values() if record.gang is not None else ()
        # A gang ends as a whole: once the bindings that are under way have arrived.
        late = late and all(member.state is not MemberState.ASSUMED for member in members)
        if late and not record.evicting and record.no_eviction_until <= cluster.clock:
            assert cluster.clock < started + allowed + _PATIENCE, f"{record.pod.name} exceeds its run time"
