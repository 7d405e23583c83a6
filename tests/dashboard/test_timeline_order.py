"""Order of the entries in a gang's timeline."""

from __future__ import annotations

from phalanx.dashboard.rows.entries import Mark
from phalanx.dashboard.timeline import _mark, _moment, _resource_version


def test_entries_of_one_second_are_ordered_by_their_fractions() -> None:
    moments = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:00.900Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z"]
    marks = sorted((Mark(when=moment, what="") for moment in moments), key=_moment)
    assert [mark.when[17:] for mark in marks] == ["00Z", "00.1Z", "00.900Z", "01Z"]


def test_events_of_whole_seconds_are_in_the_order_of_their_writes() -> None:
    def event(version: str, reason: str) -> dict[str, object]:
        return {
            "metadata": {"resourceVersion": version},
            "reason": reason,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }

    events = sorted([event("100", "Running"), event("99", "Scheduled")], key=_resource_version)
    assert [_mark(entry).what for entry in events] == ["Scheduled", "Running"]
    assert _resource_version({"metadata": {"resourceVersion": "odd"}}) == 0
    assert _resource_version(None) == 0
