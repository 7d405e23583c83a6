"""The feature, as an installed package offers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.testing import ClusterScenario, installed


@pytest.fixture(autouse=True)
def entry_points() -> Iterator[None]:
    with installed(Path(__file__).parent / "pyproject.toml"):
        yield


def waiting_since(hours: float) -> ClusterScenario:
    """Return a cluster in which gang "large" has been ready for some hours and has no room."""
    scenario = ClusterScenario().node("a", cpu=2).pod("runs", node="a", cpu=1)
    scenario.job("large", 2, cpu=1).settle()
    scenario.now += int(hours * 3600)
    return scenario.pod("other", cpu=8).settle()


def test_verdict_counts_whole_hours_since_the_gang_was_ready() -> None:
    scenario = waiting_since(2.5)
    scenario.node("b", cpu=0.5).settle()
    assert "eady for 2 h." in scenario.why("large").message


def test_verdict_has_no_hours_at_first() -> None:
    assert "eady for" not in waiting_since(0.5).why("large").message


def test_wait_begins_anew_when_the_gang_has_lost_its_nodes() -> None:
    scenario = waiting_since(2.5).finishes("runs").settle()
    assert scenario.placed("large") == ["large-0", "large-1"]
    scenario.gone("large-0", "large-1").no_node("a").pods("large", 2, gang="large", cpu=1).settle()
    assert "eady for" not in scenario.why("large").message
    assert not scenario.failures
