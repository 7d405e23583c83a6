"""Times of cron expressions, in zones with clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.jobs.cron_schedule import CronSchedule, find_zone, is_cron_schedule, parse_cron, split_zone

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def at(text: str, zone: object = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())  # type: ignore[arg-type]


def cron(text: str) -> CronSchedule:
    found = parse_cron(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("expression", "after", "following"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("* * * * *", "2026-01-01T00:00:59", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:16:00", "2026-01-01T00:30:00"),
        ("5/20 * * * *", "2026-01-01T00:26:00", "2026-01-01T00:45:00"),
        ("0 6 * * mon-fri", "2026-01-02T06:00:00", "2026-01-05T06:00:00"),
        ("0 0 31 * *", "2026-01-31T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 29 feb *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        # The 13th, or a Friday.
        ("0 0 13 * fri", "2026-01-10T00:00:00", "2026-01-13T00:00:00"),
        ("0 0 13 * fri", "2026-01-13T00:00:00", "2026-01-16T00:00:00"),
        # Neither: every second day that is a Friday.
        ("0 0 * * fri", "2026-01-13T00:00:00", "2026-01-16T00:00:00"),
        ("30 4 1,15 * *", "2026-01-01T04:30:00", "2026-01-15T04:30:00"),
        ("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@every 90s", "2026-01-01T00:00:00", "2026-01-01T00:01:30"),
        ("@every 1h30m", "2026-01-01T00:00:07", "2026-01-01T01:30:07"),
    ],
)
def test_the_next_time(expression: str, after: str, following: str) -> None:
    assert cron(expression).next_after(at(after)) == at(following)


@pytest.mark.parametrize("never", ["0 0 31 2 *", "0 0 31 4,6 *"])
def test_a_day_that_no_month_has_never_comes(never: str) -> None:
    assert is_cron_schedule(never)
    assert cron(never).next_after(at("2026-01-01T00:00:00")) is None


def test_a_time_that_the_clocks_skip_does_not_come_that_day() -> None:
    # 29 March 2026: 02:00 is followed by 03:00.
    following = cron("30 2 * * *").next_after(at("2026-03-28T12:00:00", BERLIN), BERLIN)
    assert following == at("2026-03-30T02:30:00", BERLIN)


def test_a_time_that_the_clocks_show_twice_comes_twice() -> None:
    # 1 November 2026: 01:59 is followed by 01:00.
    first = cron("30 1 * * *").next_after(at("2026-11-01T00:00:00", NEW_YORK), NEW_YORK)
    assert first is not None
    assert first == at("2026-11-01T05:30:00")
    assert cron("30 1 * * *").next_after(first, NEW_YORK) == first + 3600


def test_a_day_may_begin_at_one() -> None:
    # Sao Paulo, 4 November 2018: midnight was skipped.
    zone = ZoneInfo("America/Sao_Paulo")
    following = cron("0 1 * * *").next_after(at("2018-11-03T12:00:00", zone), zone)
    assert following == at("2018-11-04T03:00:00")
    assert cron("0 0 * * *").next_after(at("2018-11-03T12:00:00", zone), zone) == at("2018-11-05T02:00:00")


@given(
    expression=st.sampled_from(
        ("*/7 * * * *", "30 1,2,3 * * *", "0 */6 * * *", "15 2 * * sun", "45 23 * 3,10 *", "0 0 * * *")
    ),
    zone=st.sampled_from(
        ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Asia/Beirut")
    ),
    day=st.sampled_from(("2026-03-07", "2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24", "2026-10-31")),
    minute=st.integers(0, 2000),
)
@settings(max_examples=150, deadline=None)
def test_schedule_follows_the_wall_clock(expression: str, zone: str, day: str, minute: int) -> None:
    """Against a walk through the minutes."""
    where, schedule = ZoneInfo(zone), cron(expression)
    begin = at(f"{day}T00:00:00") + minute * 60
    moment = begin + 60
    while moment < begin + 3 * 86400:
        local = datetime.fromtimestamp(moment, where)
        if (
            local.minute in schedule.minutes
            and local.hour in schedule.hours
            and local.month in schedule.months
            and local.day in schedule.days
            and local.isoweekday() % 7 in schedule.weekdays
        ):
            assert schedule.next_after(begin, where) == moment
            return
        moment += 60
    following = schedule.next_after(begin, where)
    assert following is None or following >= moment


@given(
    expression=st.sampled_from(("*/7 * * * *", "0 9-17 * * mon-fri", "* 0 1 1 *", "@hourly", "@every 100s")),
    length=st.integers(0, 40 * 86400),
)
@settings(max_examples=60, deadline=None)
def test_the_last_time_before_a_moment(expression: str, length: int) -> None:
    schedule, begin = cron(expression), at("2025-12-20T13:07:11")
    last, following = None, schedule.next_after(begin)
    while following is not None and following <= begin + length:
        last, following = following, schedule.next_after(following)
    assert schedule.last_between(begin, begin + length) == last


def test_a_moment_beyond_all_years_is_none() -> None:
    assert cron("* * * * *").next_after(2**62) is None
    assert cron("* * * * *").next_after(int(timedelta(days=366 * 9998).total_seconds())) is None


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *", "@often",
     "@every", "@every -5m", "@every 0s", "5-1 * * * *", ", * * * *", "* * * * * *"],
)  # fmt: skip
def test_invalid_schedule_is_rejected(text: str) -> None:
    assert parse_cron(text) is None


def test_zone_can_precede_the_expression() -> None:
    assert split_zone("CRON_TZ=Asia/Tokyo 0 6 * * *") == ("Asia/Tokyo", "0 6 * * *")
    assert split_zone(" 0 6 * * *") == (None, "0 6 * * *")
    assert find_zone("Nowhere/Land") is None
    assert find_zone("../etc/passwd") is None
