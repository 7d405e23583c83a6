"""Tests name the feature that they need: `pytest.mark.feature(NAME)`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.scheduling import scheduler
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.session.cycle_history import CycleHistory

from .left_out import feature_names, leave_out

TESTS = Path(__file__).parents[1]
MARK = re.compile(r"pytest\.mark\.feature\(\"([^\"]+)\"\)")


def test_each_feature_of_the_registry_is_named_by_a_mark_and_no_other_name_is() -> None:
    marked = {name for path in TESTS.rglob("test_*.py") for name in MARK.findall(path.read_text("utf-8"))}
    assert marked == set(feature_names())


@pytest.mark.parametrize("name", feature_names())
def test_scheduler_is_built_without_a_feature_that_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(name, monkeypatch)
    state = ClusterState()
    features = vars(scheduler)["cycle_plugins"](state, SchedulingQueue(state), CycleHistory())
    assert [feature.name for feature in features] == [other for other in feature_names() if other != name]


def test_unknown_feature_is_refused_with_the_names_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.UsageError, match="unknown feature 'maintenence'; expected one of past-use, "):
        leave_out("maintenence", monkeypatch)
