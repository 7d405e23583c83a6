"""Durations and times, read and written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from phalanx.model.text.duration import format_duration, format_moment, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h10m", 4200), ("1.5m", 90), ("0", 0), ("1ms", 1), ("-2s", -2), (".5h", 1800)],
)
def test_durations_are_read_in_whole_seconds_rounded_up(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "1d", "4 h", "1h-1m", "h4"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (90, "1m30s"), (86400, "24h"), (3661, "1h1m1s"), (600, "10m")]
)
def test_durations_are_written_in_the_shortest_form(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds


def test_times_are_written_as_in_the_calendar() -> None:
    """Every 11th day and some seconds over 500 years, including turns of centuries and leap days."""
    for day in range(0, 500 * 366, 11):
        seconds = day * 86_400 + day % 86_400
        moment = datetime.fromtimestamp(seconds, UTC)
        assert format_moment(seconds) == moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert format_moment(951_782_400) == "2000-02-29T00:00:00Z"
    assert format_moment(4_107_542_399) == "2100-02-28T23:59:59Z"
