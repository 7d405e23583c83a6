"""Durations: bindings of pods, all bindings of a gang, and terminations of evicted pods."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.api_requests import ApiRequests, resource_of
from phalanx.daemon.metrics.bind_times import BindTimes
from phalanx.daemon.metrics.eviction_times import EvictionTimes
from phalanx.daemon.metrics.stages import StageClock
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import Bind, Evict, EvictionReason
from phalanx.model.gang import GangKey

GANG = GangKey("ns", "train")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def bind(name: str, gang: GangKey | None = None) -> Bind:
    return Bind(f"uid-{name}", "ns", name, "n1", gang, cause="c1")


class TestBindings:
    def test_a_pod_waits_from_when_it_could_be_scheduled_to_the_answer(
        self, registry: CollectorRegistry, clock: Clock
    ) -> None:
        times, pod = BindTimes(registry, clock), bind("a")
        times.pod_waits("uid-a")
        clock.now += 5
        times.pod_waits("uid-a")
        times.refused("uid-a")
        clock.now += 5
        times.decided([pod])
        clock.now += 2
        times.answered(BindResult(pod, BindOutcome.BOUND))
        value = registry.get_sample_value
        sli = "scheduler_pod_scheduling_sli_duration_seconds"
        assert value(f"{sli}_sum", {"attempts": "2"}) == 12
        assert value("phalanx_binding_duration_seconds_sum") == 2
        assert value("scheduler_pod_scheduling_attempts_sum") == 2

    def test_attempts_beyond_fifteen_are_one_series_as_in_kube_scheduler(
        self, registry: CollectorRegistry, clock: Clock
    ) -> None:
        times, pod = BindTimes(registry, clock), bind("a", GANG)
        for _ in range(40):
            times.refused(GANG)
        times.decided([pod])
        times.answered(BindResult(pod, BindOutcome.BOUND))
        sli = "scheduler_pod_scheduling_sli_duration_seconds"
        assert registry.get_sample_value(f"{sli}_count", {"attempts": "15+"}) == 1

    def test_unbound_pod_has_no_duration(self, registry: CollectorRegistry, clock: Clock) -> None:
        times, pod = BindTimes(registry, clock), bind("a")
        times.decided([pod])
        times.answered(BindResult(pod, BindOutcome.REFUSED))
        times.decided([pod])
        times.pod_gone("uid-a")
        times.answered(BindResult(pod, BindOutcome.BOUND))
        assert registry.get_sample_value("phalanx_binding_duration_seconds_count") == 0

    def test_a_gang_spans_from_its_first_to_its_last_answer(
        self, registry: CollectorRegistry, clock: Clock
    ) -> None:
        times, members = BindTimes(registry, clock), [bind(name, GANG) for name in "abc"]
        times.decided([*members, bind("alone")])
        clock.now += 10
        for member, outcome in zip(
            members, (BindOutcome.BOUND, BindOutcome.REFUSED, BindOutcome.BOUND), strict=True
        ):
            clock.now += 1
            times.answered(BindResult(member, outcome))
        times.answered(BindResult(bind("alone"), BindOutcome.BOUND))
        assert registry.get_sample_value("phalanx_gang_bind_span_seconds_count") == 1
        assert registry.get_sample_value("phalanx_gang_bind_span_seconds_sum") == 2

    def test_memory_of_refused_pods_is_bounded(self, registry: CollectorRegistry, clock: Clock) -> None:
        times = BindTimes(registry, clock)
        for number in range(50_000):
            times.refused(f"uid-{number}")
        assert len(times._refusals) <= 20_000


class TestEvictions:
    def order(self, times: EvictionTimes, name: str, cause: str, gang: GangKey | None = GANG) -> None:
        evict = Evict(f"uid-{name}", "ns", name, "n1", EvictionReason.PREEMPTED, "", gang=gang, cause=cause)
        times.answered(EvictResult(evict, EvictionOutcome.EVICTED))

    def test_termination_lasts_from_the_deletion_request_until_the_pod_is_gone(
        self, registry: CollectorRegistry, clock: Clock
    ) -> None:
        times = EvictionTimes(registry, clock)
        self.order(times, "a", "c1")
        clock.now += 30
        times.pod_gone("uid-a")
        times.pod_gone("uid-a")
        assert registry.get_sample_value("phalanx_eviction_duration_seconds_count") == 1
        assert registry.get_sample_value("phalanx_eviction_duration_seconds_sum") == 30

    def test_the_fourth_decision_within_an_hour_is_a_repetition(
        self, registry: CollectorRegistry, clock: Clock
    ) -> None:
        times, repeated = EvictionTimes(registry, clock), "phalanx_repeated_gang_evictions_total"
        for number in range(3):
            for member in "ab":
                self.order(times, member, f"c{number}")
            clock.now += 600
        assert registry.get_sample_value(repeated) == 0
        self.order(times, "a", "c9")
        assert registry.get_sample_value(repeated) == 1

    def test_old_and_foreign_deletions_have_no_duration(self, registry: CollectorRegistry, clock: Clock) -> None:
        times = EvictionTimes(registry, clock)
        for number in range(8):
            self.order(times, "a", f"c{number}")
            self.order(times, "x", f"d{number}", gang=None)
            self.order(times, "y", f"e{number}", gang=GangKey("ns", f"g{number}"))
            clock.now += 1300
        assert registry.get_sample_value("phalanx_repeated_gang_evictions_total") == 0


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/a/pods/b/binding", "pods/binding"),
        ("/api/v1/namespaces/a/pods/b", "pods"),
        ("/api/v1/pods", "pods"),
        ("/api/v1/nodes/n1", "nodes"),
        ("/api/v1/namespaces/a", "namespaces"),
        ("/apis/scheduling.volcano.sh/v1beta1/namespaces/a/podgroups/g/status", "podgroups/status"),
        ("/apis/authentication.k8s.io/v1/tokenreviews", "tokenreviews"),
        ("/apis", ""),
        ("/version", ""),
    ],
)
def test_the_resource_of_a_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def test_requests_without_an_answer_have_kubernetes_word_for_it(registry: CollectorRegistry) -> None:
    requests = ApiRequests(registry, "https://10.0.0.1:6443")
    requests.answered("POST", "/api/v1/namespaces/a/pods/b/binding", 0, 1.0)
    requests.answered("POST", "/api/v1/namespaces/a/pods/b/binding", 429, 0.1)
    lines = set(requests.lines())
    assert 'rest_client_requests_total{code="<error>",method="POST",host="10.0.0.1:6443"} 1' in lines
    assert 'phalanx_api_requests_total{verb="post",resource="pods/binding",code="429"} 1' in lines
    assert 'scheduler_async_api_call_execution_total{call_type="pod_binding",result="error"} 2' in lines
    durations = "scheduler_async_api_call_execution_duration_seconds"
    labels = {"call_type": "pod_binding", "result": "error"}
    assert registry.get_sample_value(f"{durations}_sum", labels) == pytest.approx(1.1)
    assert registry.get_sample_value(f"{durations}_bucket", labels | {"le": "0.128"}) == 1
    assert registry.get_sample_value(f"{durations}_bucket", labels | {"le": "+Inf"}) == 2


def test_a_stage_ends_where_the_next_begins(clock: Clock) -> None:
    stages = StageClock(clock)
    stages.begin("left by a cycle that raised")
    begin = stages.begin_cycle()
    begin("pop")
    clock.now += 1
    begin("act_allocate")
    clock.now += 2
    assert stages.take() == [("pop", 100, 101), ("act_allocate", 101, 103)]
