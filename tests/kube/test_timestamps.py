"""Moments as Kubernetes writes them."""

from __future__ import annotations

import pytest

from phalanx.kube.timestamps import format_micro_time, format_time, parse_time

NOW = 1_767_225_600.9  # 2026-01-01T00:00:00.9Z


def test_times() -> None:
    assert format_time(NOW) == "2026-01-01T00:00:00Z"
    assert format_micro_time(NOW) == "2026-01-01T00:00:00.900000Z"
    assert format_micro_time(NOW - 0.9) == "2026-01-01T00:00:00.000000Z"
    assert parse_time("2026-01-01T01:00:00.900000123+01:00") == pytest.approx(NOW)
    for wrong in ("soon", "2026-01-01T00:00:00"):
        with pytest.raises(ValueError, match=r"isoformat|time zone"):
            parse_time(wrong)
