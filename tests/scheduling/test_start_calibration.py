"""Calibration of forecast starts: quantiles, their coverage, and when none is published."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.daemon.metrics.starts import StartMetrics
from phalanx.model.promise_records import (
    ObservedStart,
    SlipCause,
    StoredStarts,
    ToldStart,
    decode_starts,
    encode_starts,
)
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.calibration import PERCENTS, StartCalibration
from phalanx.scheduling.reservations.outcomes import KEPT, PromiseOutcomes
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.telling import start_sentence
from phalanx.scheduling.reservations.window import Window

from .scenario import Scenario
from .test_reserve import busy, plan_of, policy, waiting

pytestmark = pytest.mark.feature("start-reservations")


def seen(*parts: float, told: int = 1000, pods: int = 1, queue: str = "q") -> StartCalibration:
    """Starts after these fractions of their forecast waits, with the quantiles of that time."""
    found = StartCalibration()
    for part in parts:
        predicted = found.quantiles(told, pods)
        found.observe(ObservedStart(queue, pods, told, round(told * part), predicted))
    return found


def spread(count: int) -> list[float]:
    """Fractions evenly from 0 to 1, in an order without information."""
    return [(number * 61) % 100 / 100 for number in range(count)]


class TestQuantiles:
    def test_half_of_similar_units_waited_at_most_as_long_as_the_median(self) -> None:
        found = seen(*spread(200)).quantiles(1000, 1)
        assert dict(zip(PERCENTS, found, strict=True)) == {5: 50, 50: 500, 80: 800, 90: 900, 95: 950}

    def test_quantiles_grow_with_the_forecast_wait(self) -> None:
        assert seen(*spread(200)).quantiles(10_000, 1)[1] == 5000

    def test_too_few_starts_give_no_quantiles(self) -> None:
        assert seen(*spread(99)).quantiles(1000, 1) == ()
        assert seen(*spread(100)).quantiles(1000, 1) != ()

    def test_units_of_similar_size_and_wait_count_first(self) -> None:
        calibration = seen(*[0.2] * 100)
        for _ in range(100):
            calibration.observe(ObservedStart("q", 64, 1000, 900))
            calibration.observe(ObservedStart("q", 1, 100_000, 70_000))
        assert calibration.quantiles(1000, 1)[1] == 200
        assert calibration.quantiles(1000, 64)[1] == 900
        assert calibration.quantiles(100_000, 1)[1] == 70_000
        # No unit had this size: units with a similar forecast count.
        assert calibration.quantiles(100_000, 500)[1] == 70_000

    def test_unit_that_still_waits_is_compared_with_units_that_waited_longer(self) -> None:
        found = seen(*spread(200)).quantiles(1000, 1, elapsed=500)
        assert 740 <= found[1] <= 760
        assert seen(*spread(200)).quantiles(1000, 1, elapsed=990) == ()

    def test_old_starts_are_forgotten(self) -> None:
        assert seen(*[0.1] * 600, *[0.9] * 600).quantiles(1000, 1)[0] == 900
        assert len(seen(*[0.1] * 1200)) == 600


class TestCoverage:
    def test_quantiles_are_published_once_enough_starts_have_confirmed_them(self) -> None:
        assert not seen(*spread(199)).calibrated("q")
        assert seen(*spread(200)).calibrated("q")

    def test_quantiles_are_not_published_while_their_coverage_is_wrong(self) -> None:
        longer_and_longer = [1 + number / 10 for number in range(1, 60)]
        for rest in (longer_and_longer, [0.0] * 300):
            assert not seen(*spread(200), *rest).calibrated("q")
        assert seen(*spread(200), *longer_and_longer).score().coverage[2] < 0.8
        assert seen(*spread(200), *[0.0] * 300).score().coverage[2] > 0.97

    def test_each_queue_has_its_own_coverage_once_it_has_enough_starts(self) -> None:
        calibration = seen(*spread(250))
        for _ in range(100):
            calibration.observe(ObservedStart("late", 1, 1000, 1500, calibration.quantiles(1000, 1)))
            for part in spread(3):
                calibration.observe(ObservedStart("q", 1, 1000, round(1000 * part), (50, 500, 800, 900, 950)))
        assert not calibration.calibrated("late")

    def test_coverage_is_computed_over_the_last_three_hundred_starts(self) -> None:
        score = seen(*[1.0] * 400, *spread(300)).score()
        assert score.starts == 300

    def test_score_of_a_queue_covers_its_last_starts_among_the_last_six_hundred_of_all(self) -> None:
        calibration, waits = StartCalibration(), spread(1500)
        queues = ["rare" if number % 7 == 0 else "q" if number < 1000 else "other" for number in range(1500)]
        for queue, part in zip(queues, waits, strict=True):
            wait = round(1000 * part)
            calibration.observe(ObservedStart(queue, 1, 1000, wait, (50, 500, 800, 900, 950)))
        for queue in ("rare", "q", "other"):
            last = [
                round(1000 * part) for name, part in zip(queues[-600:], waits[-600:], strict=True) if name == queue
            ]
            expected = tuple(sum(wait <= most for wait in last[-300:]) for most in (500, 800, 900))
            assert calibration.score(queue).covered == expected
            assert calibration.score(queue).starts == min(len(last), 300)
        assert calibration.score("none").starts == 0

    def test_pinball_loss_matches_its_definition(self) -> None:
        calibration = StartCalibration()
        calibration.observe(ObservedStart("q", 1, 100, 60, (0, 50, 80, 90, 95)))
        # 0.5 * 10 above P50; 0.2 * 20 below P80; 0.1 * 30 below P90
        assert calibration.score().pinball_loss == pytest.approx((5 + 4 + 3) / 3)
        assert calibration.score().coverage == (0.0, 1.0, 1.0)


STARTS = st.lists(
    st.builds(
        ObservedStart,
        st.sampled_from(["a", "b"]),
        st.integers(1, 300),
        st.integers(1, 700_000),
        st.integers(0, 900_000),
        st.just(()) | st.tuples(*[st.integers(0, 900_000)] * 5),
    ),
    max_size=700,
)


@settings(max_examples=25, deadline=None)
@given(STARTS, st.integers(1, 700_000), st.integers(1, 300))
def test_restart_changes_no_quantile_and_quantiles_are_in_order(
    starts: list[ObservedStart], told: int, pods: int
) -> None:
    before, after = StartCalibration(), StartCalibration()
    for start in starts:
        before.observe(start)
    stored, fault = decode_starts(encode_starts(StoredStarts(before.starts), 200_000))
    assert not fault
    after.load(stored.promised)
    assert after.starts == before.starts == tuple(starts[-600:])
    assert after.quantiles(told, pods) == before.quantiles(told, pods)
    assert [after.score(queue) for queue in (None, "a", "b")] == [before.score(q) for q in (None, "a", "b")]
    assert list(before.quantiles(told, pods)) == sorted(before.quantiles(told, pods))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2000), min_size=100, max_size=300), st.integers(1, 100_000))
def test_quantile_is_the_order_statistic_of_the_ratios(waits: list[int], told: int) -> None:
    calibration = StartCalibration()
    for wait in waits:
        calibration.observe(ObservedStart("q", 1, 1000, wait))
    # All have the same forecast, so there is one bucket for all units of another size.
    found = calibration.quantiles(told, 1)
    for percent, wait in zip(PERCENTS, found, strict=True):
        ratio = sorted(waits)[min(len(waits), -(-(len(waits) + 1) * percent // 100)) - 1]
        assert abs(wait - Fraction(ratio * told, 1000)) <= 1


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"version":1,"starts":3}', '{"version":1,"starts":{"promised":[[1]]}}']
)
def test_unreadable_record_is_reported_and_forgotten(text: str) -> None:
    starts, fault = decode_starts(text)
    assert starts == StoredStarts()
    assert "forgotten" in fault


def test_invalid_entries_of_the_record_are_skipped() -> None:
    calibration = StartCalibration()
    calibration.load([ObservedStart("q", 1, 0, 5), ObservedStart("q", 1, 5, -1), ObservedStart("q", 1, 5, 1, (1,))])
    assert not len(calibration)


def test_record_stays_within_the_size_of_an_object() -> None:
    starts = StoredStarts(seen(*spread(300), queue="q" * 200).starts)
    text = encode_starts(starts, 20_000)
    assert len(text) <= 20_000
    assert decode_starts(text)[0].promised[-1] == starts.promised[-1]


class TestPublishedForecasts:
    def world(self, parts: list[float]) -> Scenario:
        world = Scenario(policy()).node("a", cpu=4)
        plan_of(world).starts.calibration.load(seen(*parts).starts)
        busy(world, "runs", "a", 1000, cpu=4)
        waiting(world, "head", 50, cpu=4)
        # An event on another node makes cycles run.
        world.node("b", cpu=1)
        for number in range(5):
            busy(world, f"small-{number}", "b", 2000)
        return world.settle()

    def test_expected_start_is_published_beside_the_promise(self) -> None:
        words = self.world(spread(300)).why_pod("head").message
        assert "no later than 1970-01-01T00:33:20Z" in words
        assert "; expected 1970-01-01T00:25:00Z, in 80 of 100 cases until 1970-01-01T00:30:00Z; " in words

    def test_no_expected_start_is_published_without_known_coverage(self) -> None:
        assert "expected" not in self.world(spread(150)).why_pod("head").message

    def test_next_expected_start_is_published_only_once_the_last_has_passed(self) -> None:
        world = self.world(spread(300))
        said = len([plan for plan in world.plans if plan.pods])
        cycles = len(world.plans)
        for number, now in enumerate((1200, 1400, 1499)):
            world.now = now
            world.gone(f"small-{number}").settle()
        assert len(world.plans) >= cycles + 3
        assert len([plan for plan in world.plans if plan.pods]) == said
        world.now = 1510
        world.gone("small-3").settle()
        assert "; expected 1970-01-01T00:30:00Z, in 80" in world.why_pod("head").message

    def test_lost_promise_is_published_with_its_cause_and_counted(self) -> None:
        world = Scenario(policy()).nodes(2, cpu=4).pod("service", node="n2", cpu=4)
        busy(world, "one", "n1", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.now += 10
        world.gone("one").no_node("n1").settle()
        plan = plan_of(world)
        assert not plan.active
        told = f"Its start at {format_moment(1100)} was lost at {format_moment(1010)}: NodeLost"
        assert told in world.why_pod("head").message
        assert dict(plan.starts.outcomes.counts) == {SlipCause.NODE_LOST.value: 1}
        # Its next promise includes that.
        world.now += 10
        world.node("n3", cpu=4)
        busy(world, "two", "n3", 300, cpu=4)
        waiting(world, "other", 50, cpu=4).settle()
        (kept,) = plan.all()
        assert [slip.start for slip in kept.slips] == [0]
        assert not plan.starts.lost(kept.key)

    def test_fulfilled_promise_is_counted_and_recorded(self) -> None:
        world = Scenario(policy()).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        waiting(world, "head", 50, cpu=4)
        world.settle()
        world.now += 20
        world.gone("runs").settle()
        plan = plan_of(world)
        assert dict(plan.starts.outcomes.counts) == {KEPT: 1}
        assert plan.starts.calibration.starts == (ObservedStart("default", 1, 100, 20),)


class TestForecasts:
    def test_units_without_a_promise_are_recorded_too(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for name in ("head", "next"):
            world.now += 1
            waiting(world, name, 50, cpu=4)
        world.settle()
        assert plan_of(world).starts.forecasts.keys == ["next"]
        world.now = 1050
        world.gone("runs").settle()
        world.now = 1060
        world.gone("head").settle()
        (start,) = plan_of(world).starts.forecasts.calibration.starts
        assert (start.told, start.waited) == (1150 - 1002, 1060 - 1002)

    def test_start_of_a_unit_with_a_forecast_needs_no_further_cycle(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=3)
        busy(world, "small", "a", 50, cpu=1)
        waiting(world, "head", 50, cpu=4)
        waiting(world, "next", 40, cpu=1)
        world.settle()
        assert plan_of(world).starts.forecasts.keys == ["next"]
        world.now = 1050
        world.gone("small").cycle()
        assert len(plan_of(world).starts.forecasts.calibration.starts) == 1
        assert not world.scheduler.features.outdated

    def test_deleted_unit_is_not_recorded(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for name in ("head", "next"):
            world.now += 1
            waiting(world, name, 50, cpu=4)
        world.settle().gone("next", "runs").settle()
        assert not plan_of(world).starts.forecasts.keys
        assert not plan_of(world).starts.forecasts.calibration.starts

    def test_forecasts_are_published_once_their_coverage_is_known(self) -> None:
        world = Scenario(policy(depth=1)).node("a", cpu=4)
        plan_of(world).starts.forecasts.calibration.load(seen(*spread(300)).starts)
        busy(world, "runs", "a", 1000, cpu=4)
        for name in ("head", "next"):
            waiting(world, name, 200, cpu=4)
        world.settle()
        assert (
            "No start is promised; expected 1970-01-01T00:27:00Z, in 80 of 100 cases until 1970-01-01T00:33:00Z."
            in world.why_pod("next").message
        )

    def test_policy_can_switch_forecasts_off(self) -> None:
        world = Scenario(policy(depth=1, forecastSeconds=0)).node("a", cpu=4)
        busy(world, "runs", "a", 100, cpu=4)
        for name in ("head", "next"):
            waiting(world, name, 50, cpu=4)
        world.settle()
        assert not plan_of(world).starts.forecasts.keys


def test_metrics_of_forecasts_are_exported() -> None:
    world = Scenario(policy()).node("a", cpu=4)
    plan = plan_of(world)
    for number in range(60):
        plan.starts.calibration.load([ObservedStart(f"q{number:02}", 1, 100, 60, (0, 50, 80, 90, 95))])
    plan.starts.outcomes.counts[KEPT] += 3
    plan.starts.outcomes.lateness["Overrun"] += 75
    samples = [sample for family in StartMetrics(lambda: plan).collect() for sample in family.samples]
    covered = {
        (each.labels["queue"], each.labels["quantile"]): each.value
        for each in samples
        if each.name == "phalanx_start_forecast_coverage"
    }
    assert (covered["", "0.5"], covered["", "0.9"], covered["q00", "0.8"]) == (0.0, 1.0, 1.0)
    assert len({queue for queue, _ in covered}) == 51
    values = [(each.name, each.value) for each in samples]
    assert ("phalanx_promised_starts_total", 3.0) in values
    assert ("phalanx_promised_start_lateness_seconds_total", 75.0) in values
    assert "phalanx_earliest_promised_start_timestamp_seconds" not in dict(values)
    assert all(not family.samples for family in StartMetrics(lambda: None).collect())


def test_earliest_promised_start_is_exported() -> None:
    world = Scenario(policy()).node("a", cpu=4)
    busy(world, "runs", "a", 100, cpu=4)
    waiting(world, "head", 50, cpu=4)
    world.settle()
    samples = [sample for family in StartMetrics(lambda: plan_of(world)).collect() for sample in family.samples]
    assert ("phalanx_earliest_promised_start_timestamp_seconds", 1100.0) in [(s.name, s.value) for s in samples]


def test_late_start_counts_its_seconds_under_its_cause() -> None:
    world = Scenario(policy()).node("a", cpu=4)
    busy(world, "runs", "a", 100, cpu=4)
    waiting(world, "head", 50, cpu=4)
    world.settle()
    world.now = 1101
    world.scheduler.activate_due(world.now)
    world.settle()
    world.now = 1130
    world.gone("runs").settle()
    outcomes = plan_of(world).starts.outcomes
    assert dict(outcomes.counts) == {"Overrun": 1}
    assert dict(outcomes.lateness) == {"Overrun": 30}


def test_late_start_without_a_cause_counts_as_broken() -> None:
    outcomes, window = PromiseOutcomes(), Window(1000, 1100, ())
    reservation = Reservation("u", "pod ns/u", "", 0, (), 100, window, 900)
    outcomes.started(reservation, 1000, previous=950)
    outcomes.started(reservation, 1007, previous=1001)
    assert dict(outcomes.counts) == {"Kept": 1, "Unknown": 1}
    assert dict(outcomes.lateness) == {"Unknown": 7}


def test_start_in_the_first_cycle_after_its_promised_time_counts_as_kept() -> None:
    """The cycle begins a moment after its alarm; one that begins a minute later is a fault."""
    outcomes, window = PromiseOutcomes(), Window(1000, 1100, ())
    reservation = Reservation("u", "pod ns/u", "", 0, (), 100, window, 900)
    outcomes.started(reservation, 1002, previous=950)
    outcomes.started(reservation, 1060, previous=950)
    assert dict(outcomes.counts) == {"Kept": 1, "Unknown": 1}
    assert dict(outcomes.lateness) == {"Unknown": 60}


def test_text_of_a_start_that_has_passed_says_so() -> None:
    words = ToldStart(900, 1, 0, 950, 980)
    assert start_sentence(1000, words, [], 1000).startswith("it starts no later than 1970-01-01T00:16:40Z, by the")
    assert start_sentence(1000, words, [], 1001) == (
        "its promised start at 1970-01-01T00:16:40Z has passed; planned 1970-01-01T00:15:00Z"
    )
