"""Windows of the day: when they are open, and when that changes."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.scheduling.daytime import Window, next_turn

BERLIN = ZoneInfo("Europe/Berlin")
DAY = 24 * 3600


def at(text: str, zone: ZoneInfo | None = None) -> float:
    """`2026-03-01 22:00` in UTC, or by the clock of a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


def test_a_window_is_open_from_its_start_up_to_its_end() -> None:
    window = Window.parse("10:00-21:00")
    assert [window.is_open(at(f"2026-03-01 {clock}")) for clock in ("09:59", "10:00", "20:59", "21:00")] == [
        False,
        True,
        True,
        False,
    ]


def test_a_window_may_cross_midnight() -> None:
    window = Window.parse("22:00-06:00")
    assert window.is_open(at("2026-03-01 23:00"))
    assert window.is_open(at("2026-03-02 05:59"))
    assert not window.is_open(at("2026-03-02 06:00"))
    assert not window.is_open(at("2026-03-02 21:59"))


def test_a_window_that_ends_when_it_begins_is_always_open() -> None:
    window = Window.parse("08:00-08:00")
    assert window.is_open(at("2026-03-01 07:59"))
    assert window.next_turn(at("2026-03-01 07:59")) is None


def test_it_turns_at_its_start_and_at_its_end() -> None:
    window = Window.parse("22:00-06:00")
    assert window.next_turn(at("2026-03-01 12:00")) == at("2026-03-01 22:00")
    assert window.next_turn(at("2026-03-01 22:00")) == at("2026-03-02 06:00")
    assert window.next_turn(at("2026-03-02 06:00")) == at("2026-03-02 22:00")


def test_the_clock_is_that_of_the_zone_summer_and_winter() -> None:
    window = Window.parse("08:00-20:00", BERLIN)
    assert window.is_open(at("2026-01-15 07:30"))  # 08:30 there
    assert not window.is_open(at("2026-07-15 18:30"))  # 20:30 there
    assert window.next_turn(at("2026-07-15 03:00")) == at("2026-07-15 08:00", BERLIN) == at("2026-07-15 06:00")


def test_of_several_windows_the_first_turn_counts() -> None:
    windows = [Window.parse("10:00-21:00"), Window.parse("12:00-14:00"), Window.parse("00:00-00:00")]
    assert next_turn(windows, at("2026-03-01 11:00")) == at("2026-03-01 12:00")
    assert next_turn(windows[2:], 0.0) is None


@pytest.mark.parametrize(
    "text", ["", "10:00", "10-21", "25:00-06:00", "10:60-11:00", "10:00-24:00", "10:00 - 21:00"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a window"):
        Window.parse(text)


@given(
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.integers(1_750_000_000, 1_750_000_000 + 400 * DAY),
    st.sampled_from([UTC, BERLIN, ZoneInfo("Asia/Kolkata")]),
)
def test_nothing_changes_before_the_next_turn_and_everything_at_it(
    start: int, end: int, now: int, zone: ZoneInfo
) -> None:
    window = Window(start, end, zone)
    turn = window.next_turn(now)
    if turn is None:
        assert start == end
        return
    assert now < turn <= now + 2 * DAY
    here = window.is_open(now)
    assert all(window.is_open(now + (turn - now) * part / 7) == here for part in range(7))
    assert window.is_open(turn) != here
