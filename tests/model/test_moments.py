"""Times as commands show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.explanation.moments import moment_text
from phalanx.cli.listing.ages import age, relative
from phalanx.model.text.moments import relative_moment, shown_moment

NOW = 1_795_881_600  # 2026-11-28T16:00:00Z
# No cluster has a time of the first year after the epoch: it represents an absent field.
EVERY = st.one_of(st.none(), st.integers(-(2**62), 0), st.integers(31_536_000, 2**62), st.floats(-1e18, 0.99))


@given(EVERY, st.integers(NOW, 4 * NOW))
def test_no_formatter_of_commands_shows_1970_for_an_absent_time(moment: float | None, now: int) -> None:
    shown = [shown_moment(moment), relative_moment(moment, now)]
    shown += [relative(shown[0], now), relative("", now), relative("1970-01-01T00:00:00Z", now)]
    shown += [age("1970-01-01T00:00:00Z", now), age("no moment", now)]
    if moment is None or isinstance(moment, int):
        shown.append(moment_text(moment))
    assert not [text for text in shown if "1970" in text]
    if moment is None or moment < 1:
        assert not any(shown)


@given(st.integers(31_536_000, 253_402_300_799))
def test_shown_moment_is_read_back_as_the_same_second(seconds: int) -> None:
    assert datetime.fromisoformat(shown_moment(seconds)) == datetime.fromtimestamp(seconds, UTC)


@given(st.integers(31_536_000, 10**10), st.integers(31_536_000, 10**10))
def test_relative_moment_has_one_form(seconds: int, now: int) -> None:
    text = relative_moment(seconds, now)
    span = r"\d+ (s|min|h|d)( \d+ (min|h))?"
    clock = r"\((\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\)"
    assert re.fullmatch(rf"(in {span}|{span} ago|now) {clock}", text)


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (0, "now (16:00:00)"),
        (45, "in 45 s (16:00:45)"),
        (929, "in 15 min (16:15:29)"),
        (1229, "in 20 min (16:20:29)"),
        (3599, "in 1 h (16:59:59)"),
        (12_000, "in 3 h 20 min (19:20:00)"),
        (-1200, "20 min ago (15:40:00)"),
        (86_400, "in 1 d (2026-11-29 16:00:00)"),
        (183_600, "in 2 d 3 h (2026-11-30 19:00:00)"),
    ],
)
def test_relative_moment_is_in_the_largest_units_with_the_clock(left: int, text: str) -> None:
    assert relative_moment(NOW + left, NOW) == text
