"""Schedulers without one feature of the cycle, for a run of the suite with `--without-feature NAME`.

The cycle and every other feature have to do without any of them. A test that needs a feature is marked
`pytest.mark.feature(NAME)`; the run without that feature deselects it (tests/conftest.py).
"""

from __future__ import annotations

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.scheduling import scheduler
from phalanx.scheduling.policy import registry
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.cycle_plugin import CyclePlugin


def feature_names() -> list[str]:
    """Return the names of our features of the cycle."""
    state = ClusterState()
    return [feature.name for feature in registry.cycle_plugins(state, SchedulingQueue(state), CycleHistory())]


def leave_out(name: str, patch: pytest.MonkeyPatch) -> None:
    """Build every scheduler of this process without the feature `name`, until `patch` is undone.

    Raises UsageError for an unknown name.
    """
    names = feature_names()
    if name not in names:
        raise pytest.UsageError(f"unknown feature {name!r}; expected one of {', '.join(names)}")

    def remaining(state: ClusterState, queue: SchedulingQueue, history: CycleHistory) -> tuple[CyclePlugin, ...]:
        features = registry.cycle_plugins(state, queue, history)
        return tuple(feature for feature in features if feature.name != name)

    patch.setattr(scheduler, "cycle_plugins", remaining)
