"""Windows of the day: opening and closing times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.scheduling.plugins.nodes.time_windows import DailyWindow, next_turn, parse_offset

DAY = 24 * 3600


def at(text: str) -> float:
    """Return the time of a text such as `2026-03-01 22:00`, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_window_is_open_from_its_start_until_its_end() -> None:
    window = DailyWindow.parse("10:00-21:00")
    clocks = ("09:59", "10:00", "20:59", "21:00")
    assert [window.is_open(at(f"2026-03-01 {clock}")) for clock in clocks] == [False, True, True, False]


def test_window_can_cross_midnight() -> None:
    window = DailyWindow.parse("22:00-06:00")
    assert window.is_open(at("2026-03-01 23:00"))
    assert window.is_open(at("2026-03-02 05:59"))
    assert not window.is_open(at("2026-03-02 06:00"))
    assert not window.is_open(at("2026-03-02 21:59"))


def test_window_whose_start_equals_its_end_is_always_open() -> None:
    window = DailyWindow.parse("08:00-08:00")
    assert window.is_open(at("2026-03-01 07:59"))
    assert window.next_turn(at("2026-03-01 07:59")) is None


def test_window_changes_at_its_start_and_at_its_end() -> None:
    window = DailyWindow.parse("22:00-06:00")
    assert window.next_turn(at("2026-03-01 12:00")) == at("2026-03-01 22:00")
    assert window.next_turn(at("2026-03-01 22:00")) == at("2026-03-02 06:00")
    assert window.next_turn(at("2026-03-02 06:00")) == at("2026-03-02 22:00")


@pytest.mark.parametrize(
    ("offset", "opens", "name"), [("+08:00", "00:00", "UTC+08:00"), ("-03:30", "11:30", "UTC-03:30")]
)
def test_window_clock_can_be_ahead_of_or_behind_utc(offset: str, opens: str, name: str) -> None:
    window = DailyWindow.parse("08:00-20:00", parse_offset(offset))
    opening = at(f"2026-03-01 {opens}")
    assert window.is_open(opening)
    assert not window.is_open(opening - 1)
    assert window.end == f"20:00 {name}"


def test_with_several_windows_the_next_change_is_the_first_of_all() -> None:
    windows = [DailyWindow.parse("10:00-21:00"), DailyWindow.parse("12:00-14:00"), DailyWindow.parse("00:00-00:00")]
    assert next_turn(windows, at("2026-03-01 11:00")) == at("2026-03-01 12:00")
    assert next_turn(windows[2:], 0.0) is None


@pytest.mark.parametrize(
    "text", ["", "10:00", "10-21", "25:00-06:00", "10:60-11:00", "10:00-24:00", "10:00 - 21:00"]
)
def test_text_that_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a window"):
        DailyWindow.parse(text)


@pytest.mark.parametrize("text", ["", "8", "08:00", "+8:00", "+15:00", "+08:60", "Europe/Berlin"])
def test_text_that_is_no_utc_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an offset"):
        parse_offset(text)


@given(
    st.integers(0, DAY - 1),
    st.integers(0, DAY - 1),
    st.integers(-14 * 3600, 14 * 3600),
    st.integers(1_750_000_000, 1_750_000_000 + 3 * DAY),
)
def test_window_state_changes_exactly_at_the_announced_time(start: int, end: int, offset: int, now: int) -> None:
    window = DailyWindow(start, end, offset)
    assert window.is_open(now) == (start == end or (now + offset - start) % DAY < (end - start) % DAY)
    turn = window.next_turn(now)
    if turn is None:
        assert start == end
        return
    here = window.is_open(now)
    assert now < turn <= now + DAY
    assert all(window.is_open(now + (turn - now) * part / 7) == here for part in range(7))
    assert window.is_open(turn) != here
