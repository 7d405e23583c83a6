"""State of the scheduler that is preserved across cycles, besides the cluster and the queue."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.framework.timers import Timers
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.session.eviction_log import EvictionLog
from phalanx.scheduling.session.eviction_searches import SearchObserver, Unobserved
from phalanx.scheduling.session.failed_searches import FailedSearches
from phalanx.scheduling.session.share_pressures import SharePressures
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays


class CycleHistory:
    """`history` is the past usage of accounts, `timers` are the last rounds of periodic plugins. `evictions` are
    the recent evictions per account. `failed_evictions` are the searches for victims without a result (with the
    number of confirmed bindings), `failed_placements` those for a placement (with the number of tries).
    `share_pressures` are the last shares that a search for victims has read. `searches` is the observer of
    searches. The process stores `history` and `evictions`; the others are computed again.
    """

    def __init__(self, history: UsageHistory | None = None) -> None:
        self.history = history if history is not None else UsageHistory()
        self.timers = Timers()
        self.evictions = EvictionLog()
        self.failed_evictions = FailedSearches[tuple[object, int]]()
        self.failed_placements = FailedSearches[int]()
        self.share_pressures = SharePressures()
        self.searches: SearchObserver = Unobserved()
        self._victim_classes: VictimClassArrays | None = None

    def forget_failed_searches(self) -> None:
        """Repeat all searches without a result: filters or rules have changed."""
        self.failed_evictions.clear()
        self.failed_placements.clear()

    def victim_classes(self, state: ClusterState) -> VictimClassArrays:
        """Return the victim classes of `state` as arrays, up to date."""
        classes = self._victim_classes
        if classes is None or classes.state is not state:
            classes = self._victim_classes = VictimClassArrays(state)
        else:
            classes.update()
        return classes
