"""The numbers, against values worked out by hand."""

from __future__ import annotations

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.promise_records import ObservedStart
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.simulation.gantt import gantt_hour
from phalanx.simulation.history import Integral, JobHistory, JobOutcome, Stint
from phalanx.simulation.metrics import (
    allocation_at_loads,
    bounded_slowdown,
    by_group,
    fairness,
    jain,
    job_metrics,
    limit_class,
    percentile,
    saturated,
    start_metrics,
    width_class,
)
from phalanx.simulation.report.comparison import interval
from phalanx.simulation.timeline import SampledTimeline, TimelineSample
from tests.simulation.worlds import job


def done(name: str, submit: int, start: int, end: int, **fields: object) -> JobHistory:
    given: dict[str, object] = {"width": 1, "pods": 1, "queue": "q", "user": "", "limit": 0}
    return JobHistory(name, submit, start=start, end=end, outcome=JobOutcome.DONE, **(given | fields))  # type: ignore[arg-type]


def sample(
    time: int, waiting: int = 0, held: dict[str, int] | None = None, fair: dict[str, int] | None = None
) -> TimelineSample:
    return TimelineSample(time, waiting, 0, {}, held or {}, fair or {})


def test_the_slowdown_is_bounded_below_and_by_ten_seconds() -> None:
    assert bounded_slowdown(0, 5) == 1.0
    assert bounded_slowdown(95, 5) == 10.0
    assert bounded_slowdown(100, 50) == 3.0
    assert bounded_slowdown(2, 1) == 1.0


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile([10.0, 20.0, 30.0, 40.0], percent) for percent in (1, 25, 50, 51, 99, 100)] == [
        10.0,
        10.0,
        20.0,
        30.0,
        40.0,
        40.0,
    ]
    assert percentile([], 50) == 0.0


def test_waits_and_slowdowns_of_three_jobs() -> None:
    jobs = [
        done("a", 0, 0, 100, ran=100, useful=100),
        done("b", 10, 100, 150, ran=80, useful=50, evicted=1, restarts=1),
        JobHistory("c", 20, 1, 1, "q", "", 0),
    ]
    told = job_metrics(jobs, 200)
    assert (told["jobs"], told["jobs_done"], told["jobs_waiting"]) == (3, 2, 1)
    # The third one has waited for 180 seconds.
    assert told["mean_wait_seconds"] == (0 + 90 + 180) / 3
    assert (told["p50_wait_seconds"], told["max_wait_seconds"]) == (90, 180)
    assert (told["never_started"], told["censored_waits"]) == (1, 1)
    assert told["mean_bounded_slowdown"] == pytest.approx((1 + 140 / 50) / 2)
    assert told["mean_flow_seconds"] == (100 + 140) / 2
    assert told["makespan_seconds"] == 150
    assert told["goodput"] == 150 / 180
    assert told["evictions_per_1000_gangs"] == pytest.approx(1000 / 3)


def test_nothing_happened_is_no_error() -> None:
    assert job_metrics([], 0)["mean_bounded_slowdown"] == 0


@pytest.mark.parametrize(
    ("width", "name"), [(1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (100, "65-128"), (128, "65-128")]
)
def test_widths_are_grouped_by_powers_of_two(width: int, name: str) -> None:
    assert width_class(done("a", 0, 0, 1, width=width)) == name


def test_groups_have_their_own_means() -> None:
    jobs = [done("a", 0, 10, 20), done("b", 0, 30, 40, queue="r")]
    told = by_group(jobs, lambda job: job.queue, 40)
    assert {name: metrics["mean_wait_seconds"] for name, metrics in told.items()} == {"q": 10, "r": 30}


def test_jains_index() -> None:
    assert jain([1.0, 1.0, 1.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([2.0, 1.0]) == 9 / 10


def test_fairness_is_weighed_by_time() -> None:
    fair = {"a": 10, "b": 10}
    samples = [
        sample(0, held={"a": 20, "b": 0}, fair=fair),
        sample(100, held={"a": 10, "b": 10}, fair=fair),
        sample(400, held={}, fair=fair),
    ]
    # a held 2000 + 3000 of 4000, b 3000 of 4000; both were 10 apart for 100 of 400 seconds.
    index, gap = fairness(samples)
    assert index == pytest.approx((1.25 + 0.75) ** 2 / (2 * (1.25**2 + 0.75**2)))
    assert gap == pytest.approx(0.25)


def test_queue_that_grows_until_the_end_is_reported() -> None:
    jobs = [done(str(number), number, number, number + 1) for number in range(100)]
    assert saturated(jobs, [sample(number, waiting=number) for number in range(100)])
    assert not saturated(jobs, [sample(number, waiting=30) for number in range(100)])


def test_integrals_are_exact() -> None:
    integral = Integral()
    integral.add(10, (("cpu", 3),), 2)
    integral.add(15, (("cpu", 3),), -1)
    assert integral.total(25) == {"cpu": 6 * 5 + 3 * 10}
    integral.restart(25)
    assert integral.total(30) == {"cpu": 3 * 5}


def test_intervals_are_students() -> None:
    told = interval([1.0, 2.0, 3.0, 4.0])
    assert told["mean"] == 2.5
    assert told["high"] == pytest.approx(2.5 + 3.182 * 1.2909944487 / 2)
    assert interval([7.0]) == {"mean": 7.0, "low": None, "high": None}


def test_a_timeline_keeps_few_samples_of_a_long_time() -> None:
    timeline = SampledTimeline()
    for now in range(0, 3_000_000, 7):
        if timeline.wants(now):
            timeline.add(sample(now))
    assert 256 <= len(timeline.samples) < 1024
    assert timeline.samples[-1].time > 2_990_000


def test_accuracy_of_promised_starts_is_measured() -> None:
    plan = ReservationPlan(ClusterState(), ReservationSettings())
    for number in range(200):
        waited = (number * 61) % 100
        plan.starts.calibration.observe(
            ObservedStart("q", 1, 100, waited, plan.starts.calibration.quantiles(100, 1))
        )
    plan.starts.outcomes.counts.update({"Kept": 190, "NodeLost": 9, "Unknown": 1})
    found = start_metrics(plan)
    assert (found["promises"], found["slipped_promises"], found["broken_promises"]) == (200, 9, 1)
    assert found["coverage_p50"] == pytest.approx(0.5, abs=0.02)
    assert found["coverage_p90"] == pytest.approx(0.9, abs=0.02)
    # Of waits that are spread evenly over 100 seconds, at the best quantiles: 50 p (1 - p).
    assert found["pinball_loss"] == pytest.approx((12.5 + 8 + 4.5) / 3, abs=0.5)


def test_a_policy_that_promises_nothing_has_nothing_to_say_of_promises() -> None:
    found = start_metrics(None)
    assert (found["promises"], found["coverage_p90"], found["pinball_loss"]) == (0, None, None)


def test_allocation_when_so_much_has_been_asked_for() -> None:
    jobs = [job(str(number), number, None, cpu=5) for number in range(4)]
    histories = [JobHistory(each.name, each.submit, 1, 1, "q", "", 0) for each in jobs]
    for started in histories[:2]:
        started.start = 0
    told = allocation_at_loads(jobs, histories, "cpu", 10_000)
    # The second gets all it requests; the third and the fourth get nothing.
    assert told == {
        f"allocation_at_load_{load}": 0.5 if load < 100 else 1.0 for load in (80, 90, 100, 110, 120, 130)
    }
    assert allocation_at_loads([job("ends")], histories[:1], "cpu", 10_000) == {}


@pytest.mark.parametrize(
    ("limit", "name"), [(0, "none"), (300, "5m"), (301, "15m"), (86_400, "1d"), (10**6, "longer")]
)
def test_limits_are_grouped(limit: int, name: str) -> None:
    assert limit_class(done("a", 0, 0, 1, limit=limit)) == name


def test_hour_lists_the_jobs_of_each_node() -> None:
    early = done("early", 0, 0, 100, stints=[Stint(0, {"n2": 1}, 100)])
    there = done("there", 0, 3000, 9000, stints=[Stint(3000, {"n10": 2, "n2": 1}, 9000)])
    still = JobHistory("still", 0, 1, 1, "q", "", 0, start=5000, stints=[Stint(5000, {"n2": 1})])
    jobs = [early, there, still]
    hour = gantt_hour(jobs, [sample(0), sample(5400, waiting=3), sample(9000)], None, 9500)
    assert hour.begin == 5400 - 1800
    assert [(bar.node, bar.job, bar.begin, bar.end, bar.pods) for bar in hour.bars] == [
        ("n2", "there", 3000, 9000, 1),
        ("n2", "still", 5000, 9500, 1),
        ("n10", "there", 3000, 9000, 2),
    ]
    assert [bar.job for bar in gantt_hour(jobs, [sample(0)], 0, 9500).bars] == ["early", "there", "there"]
