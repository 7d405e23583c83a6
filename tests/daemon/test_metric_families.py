"""Metric names: every metric is declared, and Kubernetes' names have Kubernetes' labels and buckets."""

from __future__ import annotations

import pytest

from phalanx.daemon.metrics.families import FAMILIES, Kind, MetricFamily, powers

# kube-scheduler 1.36 and component-base: kind, labels and buckets.
UPSTREAM: dict[str, tuple[Kind, set[str], tuple[float, ...]]] = {
    "scheduler_pending_pods": (Kind.GAUGE, {"queue"}, ()),
    "scheduler_schedule_attempts_total": (Kind.COUNTER, {"result", "profile"}, ()),
    "scheduler_podgroup_schedule_attempts_total": (Kind.COUNTER, {"result", "profile"}, ()),
    "scheduler_pod_scheduling_sli_duration_seconds": (Kind.HISTOGRAM, {"attempts"}, powers(0.01, 20)),
    "scheduler_pod_scheduling_attempts": (Kind.HISTOGRAM, set(), (1, 2, 4, 8, 16)),
    "scheduler_preemption_attempts_total": (Kind.COUNTER, set(), ()),
    "scheduler_preemption_victims": (Kind.HISTOGRAM, set(), (1, 2, 4, 8, 16, 32, 64)),
    "scheduler_cache_size": (Kind.GAUGE, {"type"}, ()),
    "scheduler_pending_async_api_calls": (Kind.GAUGE, {"call_type"}, ()),
    "scheduler_async_api_call_execution_total": (Kind.COUNTER, {"call_type", "result"}, ()),
    "scheduler_async_api_call_execution_duration_seconds": (
        Kind.HISTOGRAM,
        {"call_type", "result"},
        powers(0.001, 15),
    ),
    "rest_client_requests_total": (Kind.COUNTER, {"code", "method", "host"}, ()),
    "rest_client_request_duration_seconds": (
        Kind.HISTOGRAM,
        {"verb", "host"},
        (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
    ),
    "leader_election_master_status": (Kind.GAUGE, {"name"}, ()),
}
# Label values that would create one series per pod, gang, or short-lived object.
UNBOUNDED = {"pod", "gang", "uid", "node", "namespace", "name", "job", "job_name", "instance"}
ours = [family for family in FAMILIES.values() if family.name.startswith("phalanx_")]


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES.values() if each not in ours], ids=lambda family: family.name
)
def test_metric_with_a_name_of_kubernetes_matches_its_original(family: MetricFamily) -> None:
    kind, labels, buckets = UPSTREAM[family.name]
    assert (family.kind, set(family.labels)) == (kind, labels)
    assert family.buckets == pytest.approx(buckets)


@pytest.mark.parametrize("family", ours, ids=lambda family: family.name)
def test_ours_have_bounded_labels_and_names_as_prometheus_wants_them(family: MetricFamily) -> None:
    assert not UNBOUNDED & set(family.labels)
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert (family.kind is Kind.HISTOGRAM) == bool(family.buckets)
    assert list(family.buckets) == sorted(set(family.buckets))
    assert family.help
    assert "|" not in family.help
    assert not family.help.endswith(".")
