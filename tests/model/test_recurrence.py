"""Recurring times, on the wall clocks of zones with daylight saving."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phalanx.model.recurrence import Occurrence, Recurrence, merged, parse_recurrence
from tests.extent import examples

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
HOUR = 3600
DAY = 24 * HOUR

# Some days before clocks change: forward, back, by half an hour, at midnight, by a whole day, and never.
CHANGES = (
    ("Europe/Berlin", date(2026, 3, 27)),
    ("Europe/Berlin", date(2026, 10, 23)),
    ("America/New_York", date(2026, 3, 6)),
    ("America/New_York", date(2026, 10, 30)),
    ("Australia/Lord_Howe", date(2026, 4, 3)),
    ("Australia/Lord_Howe", date(2026, 10, 2)),
    ("America/Sao_Paulo", date(2018, 11, 2)),
    ("Pacific/Apia", date(2011, 12, 28)),
    ("Asia/Kolkata", date(2026, 1, 30)),
)


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def starts(rule: str, zone: str, start: str, days: int, skip: tuple[str, ...] = ()) -> list[str]:
    """Return the starts of hourly occurrences over this number of days, on the zone's clock, with its offset."""
    begin = seconds(start)
    found = parse_recurrence(rule, zone, skip, begin, HOUR).occurrences(begin, begin + days * DAY)
    return [datetime.fromtimestamp(at.start, ZoneInfo(zone)).strftime("%d %H:%M %z") for at in found]


# -- by hand --------------------------------------------------------------------------------------------------


def test_wall_clock_time_is_constant_when_clocks_change() -> None:
    found = starts("FREQ=WEEKLY;BYDAY=SU;BYHOUR=12", "Europe/Berlin", "2026-03-22T12:00:00+01:00", 8)
    assert found == ["22 12:00 +0100", "29 12:00 +0200"]


def test_skipped_wall_clock_time_is_moved_by_the_skipped_span() -> None:
    found = starts("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "Europe/Berlin", "2026-03-28T00:00:00+01:00", 3)
    assert found == ["28 02:30 +0100", "29 03:30 +0200", "30 02:30 +0200"]


def test_repeated_wall_clock_time_means_the_first() -> None:
    found = starts("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "Europe/Berlin", "2026-10-24T00:00:00+02:00", 3)
    assert found == ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]


def test_every_hour_occurs_once_where_an_hour_is_skipped_or_repeated() -> None:
    forward = starts("FREQ=HOURLY", "Europe/Berlin", "2026-03-29T01:00:00+01:00", 1)
    assert forward[:3] == ["29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]
    back = starts("FREQ=HOURLY", "Europe/Berlin", "2026-10-25T01:00:00+02:00", 1)
    assert back[:3] == ["25 01:00 +0200", "25 02:00 +0200", "25 03:00 +0100"]


def test_occurrence_has_its_full_length_when_clocks_change_within_it() -> None:
    begin = seconds("2026-03-29T01:00:00+01:00")
    found = parse_recurrence("FREQ=DAILY", "Europe/Berlin", (), begin, 4 * HOUR).occurrences(begin, begin + HOUR)
    assert found == (Occurrence(begin, begin + 4 * HOUR),)


def test_last_friday_and_last_day_of_a_month_are_supported() -> None:
    assert starts("FREQ=MONTHLY;BYDAY=-1FR", "UTC", "2026-01-01T02:00:00Z", 60) == [
        "30 02:00 +0000",
        "27 02:00 +0000",
    ]
    assert starts("FREQ=MONTHLY;BYMONTHDAY=-1", "UTC", "2026-01-01T02:00:00Z", 60) == [
        "31 02:00 +0000",
        "28 02:00 +0000",
    ]


def test_start_that_the_rule_does_not_match_is_no_occurrence() -> None:
    assert starts("FREQ=DAILY;BYHOUR=3", "UTC", "2026-01-01T02:00:00Z", 1) == ["01 03:00 +0000"]


def test_skipped_date_is_left_out_and_counts() -> None:
    found = starts("FREQ=DAILY;COUNT=3", "UTC", "2026-01-01T02:00:00Z", 9, skip=("2026-01-02",))
    assert found == ["01 02:00 +0000", "03 02:00 +0000"]


def test_date_as_the_end_is_the_whole_day_in_the_zone() -> None:
    found = starts("FREQ=DAILY;BYHOUR=22;UNTIL=20260102", "America/New_York", "2026-01-01T00:00:00-05:00", 9)
    assert found == ["01 22:00 -0500", "02 22:00 -0500"]
    found = starts(
        "FREQ=DAILY;BYHOUR=22;UNTIL=20260103T030000Z", "America/New_York", "2026-01-01T00:00:00-05:00", 9
    )
    assert found == ["01 22:00 -0500", "02 22:00 -0500"]
    found = starts(
        "FREQ=DAILY;BYHOUR=22;UNTIL=20260103T025959Z", "America/New_York", "2026-01-01T00:00:00-05:00", 9
    )
    assert found == ["01 22:00 -0500"]


def test_occurrence_that_has_begun_before_is_included() -> None:
    begin = seconds("2026-01-01T00:00:00Z")
    rule = parse_recurrence("FREQ=DAILY", "UTC", (), begin, 6 * HOUR)
    assert rule.occurrences(begin + 3 * HOUR, begin + 4 * HOUR) == (Occurrence(begin, begin + 6 * HOUR),)
    assert rule.occurrences(begin + 6 * HOUR, begin + DAY) == ()
    assert rule.next_start(begin + 1) == begin + DAY


def test_ended_rule_has_no_next_start() -> None:
    begin = seconds("2026-01-01T00:00:00Z")
    rule = parse_recurrence("FREQ=DAILY;COUNT=2", "UTC", (), begin, HOUR)
    assert rule.next_start(begin) == begin
    assert rule.next_start(begin + 1) == begin + DAY
    assert rule.next_start(begin + DAY + 1) is None


def test_start_in_the_second_of_two_equal_hours_is_that_start() -> None:
    begin = seconds("2026-10-25T02:30:00+01:00")
    rule = parse_recurrence("FREQ=DAILY", "Europe/Berlin", (), begin, HOUR)
    assert rule.next_start(begin) == begin
    assert rule.next_start(begin + 1) == begin + DAY


def test_adjacent_spans_are_merged() -> None:
    spans = [Occurrence(5, 7), Occurrence(0, 2), Occurrence(2, 3), Occurrence(6, 9)]
    assert merged(spans) == (Occurrence(0, 3), Occurrence(5, 9))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("FREQ=DAILY;BYSECOND=1", "rule: unknown key 'BYSECOND'; expected one of FREQ, INTERVAL"),
        ("FREQ=DAILY;COUNT=1000000000", "rule: COUNT='1000000000' is not a whole number from 1 to 10000"),
        ("FREQ=SECONDLY", "rule: unknown FREQ=SECONDLY; expected one of HOURLY, DAILY, WEEKLY, MONTHLY"),
        ("BYDAY=SU", "rule: unknown FREQ=;"),
        ("FREQ=DAILY;FREQ=WEEKLY", "rule: FREQ occurs twice"),
        ("FREQ=DAILY;INTERVAL=0", "rule: INTERVAL='0' is not a whole number from 1"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101", "rule: has both COUNT and UNTIL"),
        ("FREQ=DAILY;UNTIL=tomorrow", "rule: UNTIL='TOMORROW' is neither a time such as"),
        ("FREQ=WEEKLY;BYDAY=1SU", "rule: BYDAY='1SU': a number (1 to 5, or -1 to -5)"),
        ("FREQ=WEEKLY;BYDAY=XX", "rule: BYDAY='XX' is not one of MO"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "rule: BYMONTHDAY is invalid with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "rule: BYMONTHDAY=0 is not a day"),
        ("FREQ=DAILY;BYHOUR=24", "rule: BYHOUR='24' is not a whole number from 0 to 23"),
        ("FREQ=DAILY;", "rule: '' is not KEY=VALUE"),
        ("", "rule: '' is not KEY=VALUE"),
        ("FREQ=DAILY;" * 99, "rule: has 1089 characters; at most 512 are allowed"),
        ("FREQ=HOURLY;BYMINUTE=0,10,20,30,40", "rule: matches more than 96 times a day"),
    ],
)
def test_unreadable_rule_is_named_with_its_correction(rule: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^rule:") as caught:
        parse_recurrence(rule, "UTC", (), 0, HOUR)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=5",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31",
        "FREQ=HOURLY;INTERVAL=24;BYDAY=MO;BYHOUR=5",
        "FREQ=MONTHLY;BYMONTHDAY=30;BYDAY=5MO,-5MO;INTERVAL=12",
    ],
)
def test_rule_that_never_matches_is_refused_after_bounded_work(rule: str) -> None:
    with pytest.raises(ValueError, match="rule: matches no date"):
        parse_recurrence(rule, "UTC", (), seconds("2026-02-01T00:00:00Z"), HOUR)


def test_count_that_is_not_reached_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rule: COUNT=10000 is not reached in \d+ years; remove COUNT"):
        parse_recurrence("FREQ=DAILY;BYDAY=SU;COUNT=10000", "UTC", (), 0, HOUR)


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "/etc/passwd", "a\0b", "UTC+2"])
def test_unknown_zone_is_named(zone: str) -> None:
    with pytest.raises(ValueError, match=r"timeZone: .* is not an IANA time zone such as Europe/Berlin"):
        parse_recurrence("FREQ=DAILY", zone, (), 0, HOUR)


@pytest.mark.parametrize("text", ["2026-1-1", "20260101", "2026-02-30", "Christmas", "2026-01-01T00:00:00Z"])
def test_invalid_skipped_date_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"skip: .* is not a date such as 2026-12-24"):
        parse_recurrence("FREQ=DAILY", "UTC", (text,), 0, HOUR)


def test_years_beyond_the_calendar_are_refused() -> None:
    for start in (-1, 10**12):
        with pytest.raises(ValueError, match="start: expected a time in the years 1970 to 8999"):
            parse_recurrence("FREQ=DAILY", "UTC", (), start, HOUR)


def test_years_far_ahead_can_be_queried() -> None:
    rule = parse_recurrence("FREQ=MONTHLY;INTERVAL=1000", "Europe/Berlin", (), 0, HOUR)
    assert rule.occurrences(10**13, 10**14) == ()
    assert rule.next_start(10**14) is None


# -- against every minute of the wall clock -------------------------------------------------------------------


def first_moment(local: datetime, zone: str) -> int:
    """Try every offset of the zone around the time: the first moment at which its clock shows this, or would."""
    naive = int(local.replace(tzinfo=UTC).timestamp())
    clock = ZoneInfo(zone)
    offsets = []
    for hours in range(-48, 49):
        offset = datetime.fromtimestamp(naive + hours * HOUR, clock).utcoffset()
        assert offset is not None
        offsets.append(int(offset.total_seconds()))
    shown = [
        naive - offset
        for offset in offsets
        if datetime.fromtimestamp(naive - offset, clock).replace(tzinfo=None) == local
    ]
    # Skipped: as if the clock had not been put forward yet.
    return min(shown) if shown else naive - offsets[0]


rules = st.fixed_dictionaries(
    {
        "frequency": st.sampled_from(("HOURLY", "DAILY", "WEEKLY", "MONTHLY")),
        "interval": st.integers(1, 3),
        "days": st.sets(st.sampled_from(DAYS), max_size=3),
        "hours": st.sets(st.sampled_from((0, 1, 2, 3, 10, 23)), max_size=3),
        "minutes": st.sets(st.sampled_from((0, 15, 30, 59)), max_size=2),
        "dates": st.sets(st.sampled_from((1, 2, 25, 29, 30, 31, -1, -2)), max_size=3),
    }
)


def matches(local: datetime, first: datetime, rule: dict[str, object]) -> bool:
    """RFC 5545 3.3.10, a minute at a time."""
    frequency, interval = rule["frequency"], rule["interval"]
    days, hours, minutes, dates = rule["days"], rule["hours"], rule["minutes"], rule["dates"]
    assert isinstance(interval, int)
    assert isinstance(days, set)
    assert isinstance(hours, set)
    assert isinstance(minutes, set)
    assert isinstance(dates, set)
    following = (local.replace(day=28) + timedelta(days=4)).replace(day=1)
    length = (following - timedelta(days=1)).day
    day_of_week = DAYS[local.weekday()]
    monday = local.date() - timedelta(days=local.weekday())
    first_monday = first.date() - timedelta(days=first.weekday())
    turns = {
        "HOURLY": (local.replace(minute=0) - first.replace(minute=0)) // timedelta(hours=1),
        "DAILY": (local.date() - first.date()).days,
        "WEEKLY": (monday - first_monday).days // 7,
        "MONTHLY": (local.year - first.year) * 12 + local.month - first.month,
    }[str(frequency)]
    if turns % interval:
        return False
    if local.minute not in (minutes or {first.minute}):
        return False
    if local.hour not in (hours or ({local.hour} if frequency == "HOURLY" else {first.hour})):
        return False
    if days and day_of_week not in days:
        return False
    if dates and local.day not in dates and local.day - length - 1 not in dates:
        return False
    if frequency == "WEEKLY" and not days:
        return local.weekday() == first.weekday()
    return not (frequency == "MONTHLY" and not days and not dates and local.day != first.day)


def readable(rule: str, zone: str, skip: tuple[str, ...], start: int, duration: int) -> Recurrence | None:
    """Return None for a rule that matches nothing."""
    try:
        return parse_recurrence(rule, zone, skip, start, duration)
    except ValueError as error:
        if "matches no date" in str(error):
            return None
        raise


@pytest.mark.thorough
@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(CHANGES), rules, st.integers(0, 2), st.sampled_from((0, 1, 2, 3)), st.integers(1, 5 * HOUR))
@example(
    CHANGES[7],
    {"frequency": "DAILY", "interval": 1, "days": set(), "hours": {0, 2}, "minutes": set(), "dates": set()},
    0,
    0,
    HOUR,
)
def test_occurrences_equal_a_scan_of_every_minute_of_the_wall_clock(
    change: tuple[str, date], rule: dict[str, object], asked: int, hour: int, duration: int
) -> None:
    zone, day = change
    if rule["frequency"] == "WEEKLY":
        rule = {**rule, "dates": set()}
    first = datetime(day.year, day.month, day.day, hour, 30)
    start = first_moment(first, zone)
    first = datetime.fromtimestamp(start, ZoneInfo(zone)).replace(tzinfo=None)
    text = f"FREQ={rule['frequency']};INTERVAL={rule['interval']}"
    for key, name in (("days", "BYDAY"), ("hours", "BYHOUR"), ("minutes", "BYMINUTE"), ("dates", "BYMONTHDAY")):
        values = rule[key]
        assert isinstance(values, set)
        if values:
            text += f";{name}=" + ",".join(map(str, sorted(values)))
    skip = {(first + timedelta(days=2)).date()}
    begin = start + asked * DAY
    end = begin + 4 * DAY
    expected = set()
    for minute in range(7 * 24 * 60):
        local = first + timedelta(minutes=minute)
        # No rule matches any other minute.
        if (
            local.minute in (0, 15, 30, 59, first.minute)
            and matches(local, first, rule)
            and local.date() not in skip
        ):
            at = first_moment(local, zone)
            if at < end and at + duration > begin and at >= start:
                expected.add((at, at + duration))
    parsed = readable(text, zone, tuple(map(str, skip)), start, duration)
    if parsed is None:
        assert not expected
        return
    found = [(at.start, at.end) for at in parsed.occurrences(begin, end)]
    assert found == sorted(expected)
    after = [at for at, _ in found if at >= begin]
    if after:
        assert parsed.next_start(begin) == after[0]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CHANGES), rules, st.integers(1, 40))
def test_count_ends_a_rule_without_a_walk_over_the_past(
    change: tuple[str, date], rule: dict[str, object], count: int
) -> None:
    """Queried in one piece, in pieces, and far from the start, a rule gives the same occurrences."""
    zone, day = change
    start = first_moment(datetime(day.year, day.month, day.day, 2, 30), zone)
    days = rule["days"]
    assert isinstance(days, set)
    text = f"FREQ={rule['frequency']};INTERVAL={rule['interval']}" + (
        f";BYDAY={','.join(sorted(days))}" if days else ""
    )
    endless = readable(text, zone, (), start, HOUR)
    if endless is None:
        return
    span = {"HOURLY": 60, "DAILY": 400, "WEEKLY": 500, "MONTHLY": 6000}[str(rule["frequency"])] * DAY
    whole = endless.occurrences(start, start + span)
    counted = parse_recurrence(f"{text};COUNT={count}", zone, (), start, HOUR)
    found = counted.occurrences(start, start + span)
    assert found == whole[: len(found)]
    # Two occurrences at one moment are counted as two.
    assert len(found) == min(count, len(whole)) or zone != "Asia/Kolkata"
    assert len(found) <= count
    pieces: list[Occurrence] = []
    for begin in range(start, start + span, span // 7):
        pieces += endless.occurrences(begin, min(begin + span // 7, start + span))
    assert sorted(set(pieces)) == list(whole)
