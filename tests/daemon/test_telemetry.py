"""Metrics about evictions."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.daemon.telemetry import Telemetry
from phalanx.execution.conditions import NominationOutcome
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import Evict, EvictionReason, Plan


def evict(name: str, cause: str, reason: EvictionReason = EvictionReason.PREEMPTED) -> Evict:
    return Evict(f"uid-{name}", "ns", name, "n1", reason, "it is worth less", cause=cause)


def test_decisions_are_counted_by_reason_and_their_victims_by_number() -> None:
    telemetry = Telemetry()
    reclaimed = evict("d", "c3", EvictionReason.RECLAIMED)
    plan = Plan(1, evictions=[evict("a", "c1"), evict("b", "c1"), evict("c", "c2"), reclaimed])
    telemetry.cycle(plan, 0.01, ClusterState(), 1000)
    value = telemetry.registry.get_sample_value
    assert value("phalanx_eviction_decisions_total", {"reason": "Preempted"}) == 2
    assert value("phalanx_eviction_decisions_total", {"reason": "Reclaimed"}) == 1
    assert value("phalanx_eviction_decisions_total", {"reason": "Revoked"}) == 0
    # Preemptions only, as kube-scheduler counts; every decision has its place elsewhere.
    assert value("scheduler_preemption_attempts_total") == 2
    assert value("scheduler_preemption_victims_count") == 2
    assert value("scheduler_preemption_victims_sum") == 3
    assert value("phalanx_eviction_victims_count") == 3
    assert value("phalanx_last_cycle_timestamp_seconds") == 1000


def test_evictions_are_counted_by_reason_and_outcome() -> None:
    telemetry = Telemetry()
    for outcome in (EvictionOutcome.EVICTED, EvictionOutcome.EVICTED, EvictionOutcome.CALLED_OFF):
        telemetry.evicted(EvictResult(evict("a", "c1"), outcome))
    value = telemetry.registry.get_sample_value
    assert value("phalanx_evictions_total", {"reason": "Preempted", "outcome": "evicted"}) == 2
    assert value("phalanx_evictions_total", {"reason": "Preempted", "outcome": "called off"}) == 1
    assert value("phalanx_evictions_total", {"reason": "Preempted", "outcome": "refused"}) == 0


def test_nominations_are_counted_by_outcome() -> None:
    telemetry = Telemetry()
    telemetry.nominated(NominationOutcome.WRITTEN)
    telemetry.nominated(NominationOutcome.LOST)
    value = telemetry.registry.get_sample_value
    assert value("phalanx_nominations_total", {"outcome": "written"}) == 1
    assert value("phalanx_nominations_total", {"outcome": "lost"}) == 1
